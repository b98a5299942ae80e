//! The experts' router.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{F32, Room, Words};
use super::super::workload::{Float, Set, Workload, room};
use super::moe_permute::chosen;

/// R, E, K.
pub fn moe_route(shape: &[usize]) -> Vec<Workload> {
    let &[rows, experts, top_k] = shape else { unreachable!("three letters") };
    let (n, pairs) = (rows * experts, rows * top_k);
    let route = move |set: &Set| abi::MoeRoute {
        logits: set.at(0),
        mask: super::bare(),
        rows: rows as u32,
        experts: experts as u32,
        top_k: top_k as u32,
        groups: 1,
        topk_group: 1,
        normalise: 1,
        scale: 2.5,
        unused: 0,
    };
    let forward = vec![F32(n), F32(experts), Room(4 * pairs), Room(4 * pairs)];
    let backward = |dtype: Float| {
        let buffers = vec![F32(n), Words(chosen(rows, experts, top_k)), F32(pairs), room(dtype, n)];
        let sizes = [(4 + dtype.bytes()) * n + 8 * pairs, 4 * n];
        Workload::of("moe_route_backward", dtype, sizes, buffers, move |set| abi::MoeRouteBackward {
            route: route(set),
            chosen: set.at(1),
            dweights: set.at(2),
            dlogits: set.at(3),
            row_sums: null_mut(),
        })
    };
    let forward =
        Workload::new("moe_route_forward_f32", [4 * (n + experts) + 8 * pairs, n * top_k], forward, move |set| {
            abi::MoeRouteForward { route: route(set), bias: set.at(1), weights: set.at(2), chosen: set.at(3) }
        });
    [forward].into_iter().chain(Float::BOTH.map(backward)).collect()
}
