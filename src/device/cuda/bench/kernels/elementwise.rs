//! Ops of one element at a time.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::Room;
use super::super::workload::{Float, Workload, floats, room};
use super::{Masked, bare};

/// R, F.
pub fn relu2(shape: &[usize]) -> Vec<Workload> {
    let (rows, width) = (shape[0], shape[1]);
    let n = rows * width;
    let of = |dtype: Float| {
        let forward = vec![floats(dtype, n), room(dtype, n)];
        let backward = vec![floats(dtype, n), floats(dtype, n), room(dtype, n)];
        [
            Workload::of("relu2_forward", dtype, [2 * dtype.bytes() * n, 2 * n], forward, move |set| {
                abi::Relu2Forward { x: set.at(0), y: set.at(1), mask: bare(), rows: rows as u32, width: width as u32 }
            }),
            Workload::of("relu2_backward", dtype, [3 * dtype.bytes() * n, 3 * n], backward, move |set| {
                abi::Relu2Backward {
                    x: set.at(0),
                    dy: set.at(1),
                    dx: set.at(2),
                    row_sums: null_mut(),
                    mask: bare(),
                    rows: rows as u32,
                    width: width as u32,
                }
            }),
        ]
    };
    Float::BOTH.into_iter().flat_map(of).collect()
}

/// R, d.
pub fn residual_add(shape: &[usize]) -> Vec<Workload> {
    let (rows, width) = (shape[0], shape[1]);
    let n = rows * width;
    let of = |dtype: Float| {
        let buffers = || vec![floats(dtype, n), floats(dtype, n), room(dtype, n)];
        let bytes = 3 * dtype.bytes() * n;
        let (hidden, gate) = (Masked::new(rows, width), Masked::gate(rows, width));
        let mut backward = buffers();
        backward.extend([Room(hidden.row_sums()), Room(gate.row_sums())]);
        backward.extend(hidden.contents().into_iter().chain(gate.contents()));
        let sums = hidden.row_sums() + gate.row_sums();
        [
            Workload::of("residual_add_forward", dtype, [bytes, n], buffers(), move |set| abi::ResidualAddForward {
                h: set.at(0),
                x: set.at(1),
                out: set.at(2),
                hidden: bare(),
                gate: bare(),
                rows: rows as u32,
                width: width as u32,
            }),
            // Without a mask there is nothing to compute.
            Workload::of("residual_add_backward", dtype, [bytes + sums, 6 * n], backward, move |set| {
                abi::ResidualAddBackward {
                    x: set.at(0),
                    dout: set.at(1),
                    dx: set.at(2),
                    hidden_sums: set.at(3),
                    gate_sums: set.at(4),
                    hidden: hidden.at(set, 5),
                    gate: gate.at(set, 8),
                    rows: rows as u32,
                    width: width as u32,
                }
            }),
        ]
    };
    Float::BOTH.into_iter().flat_map(of).collect()
}
