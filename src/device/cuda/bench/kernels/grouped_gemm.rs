//! Products of experts whose rows are spread evenly.

use super::super::super::embedded::abi;
use super::super::workload::Contents::{Bf16, Room, Words};
use super::super::workload::{Set, Workload};

/// R, E, out, in: R rows of all experts together.
pub fn grouped_gemm(shape: &[usize]) -> Vec<Workload> {
    const EDGE: usize = 128;
    let (rows, experts, out, inner) = (shape[0], shape[1], shape[2], shape[3]);
    let offsets: Vec<u32> = (0..=experts).map(|e| (rows * e / experts) as u32).collect();
    let mut tiles = vec![0];
    for of_expert in offsets.windows(2) {
        tiles.push(tiles[tiles.len() - 1] + (of_expert[1] - of_expert[0]).div_ceil(EDGE as u32));
    }
    tiles.push(tiles[experts]); // no rows behind the last expert's
    let flops = 2 * rows * out * inner;
    let bounds = || vec![Words(offsets.clone()), Words(tiles.clone())];
    let with = |mut own: Vec<_>| {
        own.extend(bounds());
        own
    };
    let (x, w, y) = (rows * inner, experts * out * inner, rows * out);
    let product = move |set: &Set, n: usize, k: usize| abi::GroupedGemm {
        a: set.at(0),
        b: set.at(1),
        c: set.at(2),
        offsets: set.at(3),
        tiles: set.at(4),
        rows: rows as u32,
        n: n as u32,
        k: k as u32,
        experts: experts as u32,
    };
    let bytes = 2 * (x + w + y);
    vec![
        Workload::new(
            "grouped_gemm_pipelined_nt_bf16",
            [bytes, flops],
            with(vec![Bf16(x), Bf16(w), Room(2 * y)]),
            move |set| product(set, out, inner),
        )
        .on_tensor_cores(),
        Workload::new(
            "grouped_gemm_pipelined_nn_bf16",
            [bytes, flops],
            with(vec![Bf16(y), Bf16(w), Room(2 * x)]),
            move |set| product(set, inner, out),
        )
        .on_tensor_cores(),
        Workload::new(
            "grouped_gemm_pipelined_tn_bf16",
            [2 * (x + y) + 4 * w, flops],
            with(vec![Bf16(y), Bf16(x), Room(4 * w)]),
            move |set| abi::GroupedWeights {
                dy: set.at(0),
                x: set.at(1),
                dw: set.at(2),
                offsets: set.at(3),
                m: out as u32,
                n: inner as u32,
                experts: experts as u32,
                accumulate: 0,
            },
        )
        .on_tensor_cores(),
    ]
}
