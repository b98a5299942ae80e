use std::ops::Range;

use rayon::prelude::*;

use crate::device::gemm::{Mat, matmul};

/// Rows of one expert per task.
const ROWS: usize = 144;
/// Rows of an expert's weight gradient per task.
const GRAD_ROWS: usize = 144;

#[derive(Clone, Copy)]
pub struct Sizes {
    pub inner: usize,
    pub out: usize,
}

/// Every expert's rows in blocks of at most [`ROWS`]; the rows behind the last offset come last, without an expert.
fn blocks(offsets: &[usize], rows: usize) -> Vec<(Option<usize>, Range<usize>)> {
    let experts = offsets.windows(2).enumerate().map(|(e, w)| (Some(e), w[0]..w[1]));
    let tail = offsets[offsets.len() - 1]..rows;
    let mut blocks = Vec::new();
    for (expert, range) in experts.chain([(None, tail)]) {
        let mut start = range.start;
        while start < range.end {
            let end = (start + ROWS).min(range.end);
            blocks.push((expert, start..end));
            start = end;
        }
    }
    blocks
}

/// Cuts `values` into the blocks' rows.
fn rows_of(
    blocks: Vec<(Option<usize>, Range<usize>)>,
    mut values: &mut [f32],
    width: usize,
) -> Vec<(Option<usize>, Range<usize>, &mut [f32])> {
    let mut cut = Vec::with_capacity(blocks.len());
    for (expert, rows) in blocks {
        let (head, tail) = values.split_at_mut(rows.len() * width);
        cut.push((expert, rows, head));
        values = tail;
    }
    cut
}

pub fn forward(x: &[f32], w: &[f32], offsets: &[usize], Sizes { inner, out }: Sizes, y: &mut [f32]) {
    let rows = y.len().checked_div(out).unwrap_or(0);
    rows_of(blocks(offsets, rows), y, out).into_par_iter().for_each(|(expert, rows, y)| {
        let Some(expert) = expert else { return y.fill(0.0) };
        let x = Mat::new(&x[rows.start * inner..], rows.len(), inner);
        let w = Mat::new(&w[expert * out * inner..], out, inner);
        matmul(x, w.t(), y, out, false);
    });
}

pub fn input_grad(dy: &[f32], w: &[f32], offsets: &[usize], Sizes { inner, out }: Sizes, dx: &mut [f32]) {
    let rows = dx.len().checked_div(inner).unwrap_or(0);
    rows_of(blocks(offsets, rows), dx, inner).into_par_iter().for_each(|(expert, rows, dx)| {
        let Some(expert) = expert else { return dx.fill(0.0) };
        let dy = Mat::new(&dy[rows.start * out..], rows.len(), out);
        let w = Mat::new(&w[expert * out * inner..], out, inner);
        matmul(dy, w, dx, inner, false);
    });
}

/// dW_e = dy_eᵀ·x_e, or dW_e += it.
pub fn weight_grad(
    dy: &[f32],
    x: &[f32],
    offsets: &[usize],
    Sizes { inner, out }: Sizes,
    dw: &mut [f32],
    accumulate: bool,
) {
    if inner == 0 || out == 0 {
        return;
    }
    dw.par_chunks_mut(out * inner).enumerate().for_each(|(expert, dw)| {
        let rows = offsets[expert]..offsets[expert + 1];
        let x = Mat::new(&x[rows.start * inner..], rows.len(), inner);
        dw.par_chunks_mut(GRAD_ROWS * inner).enumerate().for_each(|(block, dw)| {
            let height = dw.len() / inner;
            let dy = Mat::strided(&dy[(rows.start * out + block * GRAD_ROWS).min(dy.len())..], rows.len(), height, out);
            matmul(dy.t(), x, dw, inner, accumulate);
        });
    });
}
