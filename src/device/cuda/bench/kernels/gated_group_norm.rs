//! Mamba's gated norm.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::Room;
use super::super::workload::{Float, Workload, floats, room};
use super::bare;

const ROWS_PER_BLOCK: usize = 16;

/// R, G, columns of a group.
pub fn gated_group_norm(shape: &[usize]) -> Vec<Workload> {
    let &[rows, groups, columns] = shape else { unreachable!("three letters") };
    Float::BOTH.into_iter().flat_map(|dtype| of(dtype, rows, groups, columns)).collect()
}

fn of(dtype: Float, rows: usize, groups: usize, columns: usize) -> [Workload; 2] {
    let width = groups * columns;
    let (n, element) = (rows * width, dtype.bytes());
    let forward = vec![floats(dtype, n), floats(dtype, n), floats(dtype, width), room(dtype, n)];
    let partials = rows.div_ceil(ROWS_PER_BLOCK) * width * 4;
    let mut backward = vec![floats(dtype, n), floats(dtype, n), floats(dtype, width), floats(dtype, n)];
    backward.extend([room(dtype, n), room(dtype, n), Room(partials)]);
    [
        Workload::of("gated_group_norm_forward", dtype, [3 * element * n, 10 * n], forward, move |set| {
            abi::GatedGroupNormForward {
                y: set.at(0),
                z: set.at(1),
                weight: set.at(2),
                out: set.at(3),
                mask: bare(),
                rows: rows as u32,
                groups: groups as u32,
                columns: columns as u32,
                head_dim: 64,
                rows_per_block: ROWS_PER_BLOCK as u32,
                eps: 1e-5,
            }
        }),
        Workload::of("gated_group_norm_backward", dtype, [5 * element * n + partials, 25 * n], backward, move |set| {
            abi::GatedGroupNormBackward {
                y: set.at(0),
                z: set.at(1),
                weight: set.at(2),
                dout: set.at(3),
                dy: set.at(4),
                dz: set.at(5),
                weight_partials: set.at(6),
                row_sums: null_mut(),
                mask: bare(),
                rows: rows as u32,
                groups: groups as u32,
                columns: columns as u32,
                head_dim: 64,
                rows_per_block: ROWS_PER_BLOCK as u32,
                eps: 1e-5,
            }
        }),
    ]
}
