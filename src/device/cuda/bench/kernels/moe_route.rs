//! The router.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{F32, Room, Words};
use super::super::workload::{Set, Workload};

/// R, E, K.
pub fn moe_route(shape: &[usize]) -> Vec<Workload> {
    let (rows, experts, top_k) = (shape[0], shape[1], shape[2]);
    let (n, pairs) = (rows * experts, rows * top_k);
    let chosen: Vec<u32> = (0..pairs).map(|pair| ((pair / top_k * 5 + pair % top_k) % experts) as u32).collect();
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
    let backward = vec![F32(n), Words(chosen), F32(pairs), Room(2 * n)];
    vec![
        Workload::new("moe_route_forward_f32", [4 * (n + experts) + 8 * pairs, n * top_k], forward, move |set| {
            abi::MoeRouteForward { route: route(set), bias: set.at(1), weights: set.at(2), chosen: set.at(3) }
        }),
        Workload::new("moe_route_backward_bf16", [6 * n + 8 * pairs, 4 * n], backward, move |set| {
            abi::MoeRouteBackward {
                route: route(set),
                chosen: set.at(1),
                dweights: set.at(2),
                dlogits: set.at(3),
                row_sums: null_mut(),
            }
        }),
    ]
}
