//! Norms of whole rows.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{F32, Room};
use super::super::workload::{Float, Workload, floats, room};
use super::bare;

const ROWS_PER_BLOCK: usize = 16;

/// R, d.
pub fn rms_norm(shape: &[usize]) -> Vec<Workload> {
    Float::BOTH.into_iter().flat_map(|dtype| of(dtype, shape[0], shape[1])).collect()
}

fn of(dtype: Float, rows: usize, width: usize) -> [Workload; 2] {
    let (n, element) = (rows * width, dtype.bytes());
    let partials = 4 * rows.div_ceil(ROWS_PER_BLOCK) * width;
    let forward = vec![floats(dtype, n), floats(dtype, width), room(dtype, n), Room(4 * rows)];
    let mut backward = vec![floats(dtype, n), floats(dtype, width), floats(dtype, n), F32(rows)];
    backward.extend([room(dtype, n), Room(partials)]);
    let small = element * width + 4 * rows;
    [
        Workload::of("rms_norm_forward", dtype, [2 * element * n + small, 4 * n], forward, move |set| {
            abi::RmsNormForward {
                x: set.at(0),
                weight: set.at(1),
                y: set.at(2),
                scales: set.at(3),
                mask: bare(),
                rows: rows as u32,
                width: width as u32,
                rows_per_block: ROWS_PER_BLOCK as u32,
                eps: 1e-5,
            }
        }),
        Workload::of("rms_norm_backward", dtype, [3 * element * n + small + partials, 10 * n], backward, move |set| {
            abi::RmsNormBackward {
                x: set.at(0),
                weight: set.at(1),
                dy: set.at(2),
                scales: set.at(3),
                dx: set.at(4),
                weight_partials: set.at(5),
                row_sums: null_mut(),
                mask: bare(),
                rows: rows as u32,
                width: width as u32,
                rows_per_block: ROWS_PER_BLOCK as u32,
                unused: 0,
            }
        }),
    ]
}
