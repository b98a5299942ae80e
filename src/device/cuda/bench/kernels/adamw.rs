//! The optimiser's three kernels over one tensor.

use super::super::super::embedded::abi;
use super::super::workload::Contents::{Bytes, F32, Room, Zeros};
use super::super::workload::{Float, Set, Workload, floats};
use super::step_state;

/// Elements whose squares one partial sum holds.
const TILE: usize = 16384;

/// elements.
pub fn adamw(shape: &[usize]) -> Vec<Workload> {
    let n = shape[0];
    let count = n.div_ceil(TILE);
    let norm = Workload::new("adamw_norm_f64", [8 * count + 4, count], vec![Zeros(8 * count), Room(4)], move |set| {
        abi::AdamWNorm { partials: set.at(0), norm: set.at(1), count: count as u64 }
    });
    Float::BOTH.into_iter().flat_map(|dtype| [squares(dtype, n), update(dtype, n)]).chain([norm]).collect()
}

fn squares(dtype: Float, n: usize) -> Workload {
    let buffers = vec![floats(dtype, n), Room(8 * n.div_ceil(TILE))];
    Workload::of("adamw_squares", dtype, [dtype.bytes() * n, 2 * n], buffers, move |set| abi::AdamWSquares {
        grad: set.at(0),
        partials: set.at(1),
        elements: n as u64,
    })
}

/// The master and both moments are read and written, the gradient is read, the bf16 copy written.
fn update(dtype: Float, n: usize) -> Workload {
    let buffers = vec![Bytes(step_state()), F32(1), floats(dtype, n), F32(n), F32(n), Zeros(4 * n), Room(2 * n)];
    let sizes = [(26 + dtype.bytes()) * n, 15 * n];
    Workload::of("adamw_update", dtype, sizes, buffers, move |set: &Set| abi::AdamWUpdate {
        state: set.at(0),
        norm: set.at(1),
        grad: set.at(2),
        value: set.at(3),
        first: set.at(4),
        second: set.at(5),
        weight: set.at(6),
        elements: n as u64,
        rate: 1.0,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        unused: 0,
    })
}
