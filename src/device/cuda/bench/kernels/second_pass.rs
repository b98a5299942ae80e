//! The sums that other ops' backward kernels leave to a second launch.

use super::super::super::embedded::abi;
use super::super::workload::Contents::{F32, Room, Words};
use super::super::workload::{Set, Workload};

/// P partial sums, their width.
pub fn column_sum(shape: &[usize]) -> Vec<Workload> {
    let (rows, width) = (shape[0], shape[1]);
    let (n, buffers) = (rows * width, vec![F32(rows * width), Room(4 * width)]);
    vec![Workload::new("column_sum_rows_f32", [4 * (n + width), n], buffers, move |set| abi::ColumnSum {
        partials: set.at(0),
        out: set.at(1),
        rows: rows as u32,
        width: width as u32,
        accumulate: 0,
        unused: 0,
    })]
}

/// Rows of a tile.
const TILE: usize = 1024;

/// R, draws, C.
pub fn mask_grad(shape: &[usize]) -> Vec<Workload> {
    let &[rows, draws, candidates] = shape else { unreachable!("three letters") };
    let length = rows.div_ceil(draws);
    let (n, out) = (rows * candidates, draws * candidates);
    let partials = rows.div_ceil(TILE) * out;
    let args = move |set: &Set| abi::MaskGrad {
        row_sums: set.at(0),
        draw: set.at(1),
        partials: set.at(2),
        out: set.at(3),
        length: length as u32,
        rows: rows as u32,
        draws: draws as u32,
        candidates: candidates as u32,
        accumulate: 0,
        unused: 0,
    };
    let buffers = |partials| vec![F32(n), Words((0..draws as u32).collect()), partials, Room(4 * out)];
    vec![
        Workload::new("mask_grad_tiles_f32", [4 * (n + partials), n], buffers(Room(4 * partials)), args),
        Workload::new("mask_grad_total_f32", [4 * (partials + out), partials], buffers(F32(partials)), args),
    ]
}
