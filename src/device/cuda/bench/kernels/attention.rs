//! Causal self-attention of one sequence, forward and backward.

use super::super::super::embedded::abi;
use super::super::workload::Contents::{Bf16, F32, Room, Words};
use super::super::workload::{Set, Workload};

/// T, Hq, Hkv, D. A tensor-core kernel takes heads of 64 and 128 alone.
pub fn attention(shape: &[usize]) -> Vec<Workload> {
    let (rows, heads, kv_heads, d) = (shape[0], shape[1], shape[2], shape[3]);
    let (q, kv, scalars) = (rows * heads * d, rows * kv_heads * d, 4 * rows * heads);
    let rungs = [("tiled", 32), ("tensor_core", 64)];
    let mut all = Vec::new();
    for (rung, edge) in rungs.into_iter().filter(|(rung, _)| *rung == "tiled" || matches!(d, 64 | 128)) {
        let attention = move |set: &Set| abi::Attention {
            q: set.at(0),
            k: set.at(1),
            v: set.at(2),
            offsets: set.at(3),
            keys: set.at(3),
            tiles: set.at(4),
            rows: rows as u32,
            key_rows: rows as u32,
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            head_dim: d as u32,
            segments: 1,
            scale: (d as f32).powf(-0.5),
            unused: 0,
        };
        let bounds = || [Words(vec![0, rows as u32]), Words(vec![0, rows.div_ceil(edge) as u32])];
        let shared = || -> Vec<_> { [Bf16(q), Bf16(kv), Bf16(kv)].into_iter().chain(bounds()).collect() };
        // Half of the scores are behind the diagonal.
        let product = heads * rows * (rows + 1) / 2 * d * 2;
        let mut buffers = shared();
        buffers.extend([Room(2 * q), Room(scalars)]);
        let symbol = format!("attention_{rung}_forward_bf16");
        let sizes = [2 * (2 * q + 2 * kv) + scalars, 2 * product];
        all.push(Workload::new(symbol, sizes, buffers, move |set| abi::AttentionForward {
            attention: attention(set),
            out: set.at(5),
            lse: set.at(6),
        }));
        let backward = move |set: &Set| abi::AttentionBackward {
            attention: attention(set),
            out: set.at(5),
            dout: set.at(6),
            lse: set.at(7),
            delta: set.at(8),
            dq: set.at(9),
            dk: set.at(10),
            dv: set.at(11),
        };
        let inputs = 2 * (2 * q + 2 * kv) + 2 * scalars;
        for (kernel, outputs, products) in [("query_grad", 2 * q, 3), ("key_grad", 4 * kv, 4)] {
            let mut buffers = shared();
            buffers.extend([
                Bf16(q),
                Bf16(q),
                F32(scalars / 4),
                F32(scalars / 4),
                Room(2 * q),
                Room(2 * kv),
                Room(2 * kv),
            ]);
            let symbol = format!("attention_{rung}_{kernel}_bf16");
            all.push(Workload::new(symbol, [inputs + outputs, products * product], buffers, backward));
        }
    }
    all
}
