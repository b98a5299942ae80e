//! Causal self-attention of one sequence, forward and backward.

use super::super::super::embedded::abi;
use super::super::workload::Contents::{self, F32, Room, Words};
use super::super::workload::{Float, Set, Workload, floats, room};

/// A rung of the ladder: its name, the queries of a tile, its dtypes.
const RUNGS: [(&str, usize, &[Float]); 2] = [("tiled", 32, &Float::BOTH), ("tensor_core", 64, &[Float::Bf16])];

/// Sizes: T, Hq, Hkv, D.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    heads: usize,
    kv_heads: usize,
    d: usize,
}

impl Sizes {
    /// Elements of the queries, and of the keys.
    fn elements(self) -> (usize, usize) {
        (self.rows * self.heads * self.d, self.rows * self.kv_heads * self.d)
    }

    /// Numbers of one query and head.
    fn scalars(self) -> usize {
        self.rows * self.heads
    }

    /// Operations of one product of queries and keys. Half of the scores are behind the diagonal.
    fn product(self) -> usize {
        self.heads * self.rows * (self.rows + 1) / 2 * self.d * 2
    }

    /// What all kernels read: queries, keys, values, and where segments and their tiles begin.
    fn shared(self, dtype: Float, edge: usize) -> Vec<Contents> {
        let (q, kv) = self.elements();
        let bounds = [Words(vec![0, self.rows as u32]), Words(vec![0, self.rows.div_ceil(edge) as u32])];
        [floats(dtype, q), floats(dtype, kv), floats(dtype, kv)].into_iter().chain(bounds).collect()
    }

    fn attention(self, set: &Set) -> abi::Attention {
        abi::Attention {
            q: set.at(0),
            k: set.at(1),
            v: set.at(2),
            offsets: set.at(3),
            keys: set.at(3),
            tiles: set.at(4),
            rows: self.rows as u32,
            key_rows: self.rows as u32,
            heads: self.heads as u32,
            kv_heads: self.kv_heads as u32,
            head_dim: self.d as u32,
            segments: 1,
            scale: (self.d as f32).powf(-0.5),
            unused: 0,
        }
    }
}

/// T, Hq, Hkv, D. A tensor-core kernel takes heads of 64 and 128 alone.
pub fn attention(shape: &[usize]) -> Vec<Workload> {
    let &[rows, heads, kv_heads, d] = shape else { unreachable!("four letters") };
    let sizes = Sizes { rows, heads, kv_heads, d };
    let mut all: Vec<Workload> = Float::BOTH.into_iter().map(|dtype| delta(sizes, dtype)).collect();
    for (rung, edge, dtypes) in RUNGS {
        for dtype in dtypes.iter().copied().filter(|_| rung == "tiled" || matches!(d, 64 | 128)) {
            let on = |workload: Workload| if rung == "tiled" { workload } else { workload.on_tensor_cores() };
            all.push(on(forward(sizes, rung, edge, dtype)));
            all.extend(
                [("query_grad", 3), ("key_grad", 4)].map(|kernel| on(backward(sizes, rung, edge, dtype, kernel))),
            );
        }
    }
    all
}

fn forward(sizes: Sizes, rung: &str, edge: usize, dtype: Float) -> Workload {
    let ((q, kv), scalars) = (sizes.elements(), 4 * sizes.scalars());
    let mut buffers = sizes.shared(dtype, edge);
    buffers.extend([room(dtype, q), Room(scalars)]);
    let least = [dtype.bytes() * 2 * (q + kv) + scalars, 2 * sizes.product()];
    Workload::of(&format!("attention_{rung}_forward"), dtype, least, buffers, move |set| abi::AttentionForward {
        attention: sizes.attention(set),
        out: set.at(5),
        lse: set.at(6),
    })
}

/// What the backward kernels read and write.
fn gradients(sizes: Sizes, dtype: Float, edge: usize) -> (Vec<Contents>, impl Fn(&Set) -> abi::AttentionBackward) {
    let ((q, kv), scalars) = (sizes.elements(), sizes.scalars());
    let mut buffers = sizes.shared(dtype, edge);
    buffers.extend([floats(dtype, q), floats(dtype, q), F32(scalars), F32(scalars)]);
    buffers.extend([room(dtype, q), room(dtype, kv), room(dtype, kv)]);
    let args = move |set: &Set| abi::AttentionBackward {
        attention: sizes.attention(set),
        out: set.at(5),
        dout: set.at(6),
        lse: set.at(7),
        delta: set.at(8),
        dq: set.at(9),
        dk: set.at(10),
        dv: set.at(11),
    };
    (buffers, args)
}

/// A product per query and head of the output and its gradient.
fn delta(sizes: Sizes, dtype: Float) -> Workload {
    let (q, _) = sizes.elements();
    let (buffers, args) = gradients(sizes, dtype, 32);
    Workload::of("attention_delta", dtype, [2 * dtype.bytes() * q + 4 * sizes.scalars(), 2 * q], buffers, args)
}

/// `kernel` and how many products of queries and keys it makes.
fn backward(sizes: Sizes, rung: &str, edge: usize, dtype: Float, (kernel, products): (&str, usize)) -> Workload {
    let (q, kv) = sizes.elements();
    let outputs = if kernel == "query_grad" { q } else { 2 * kv };
    let bytes = dtype.bytes() * (2 * (q + kv) + outputs) + 8 * sizes.scalars();
    let (buffers, args) = gradients(sizes, dtype, edge);
    let symbol = format!("attention_{rung}_{kernel}");
    Workload::of(&symbol, dtype, [bytes, products * sizes.product()], buffers, args)
}
