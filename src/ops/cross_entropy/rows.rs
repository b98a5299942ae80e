//! Losses work on some of the rows: a block of them as one matrix, and back.

use std::ops::Deref;

use crate::device::parallel::for_rows;
use crate::device::pool::Buffer;
use crate::numerics::fma;

/// Rows of a matrix, back to back: lent where they lie so already, else copied.
pub enum Gathered<'a> {
    Lent(&'a [f32]),
    Copied(Buffer<f32>),
}

impl Deref for Gathered<'_> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match self {
            Gathered::Lent(values) => values,
            Gathered::Copied(values) => values,
        }
    }
}

fn consecutive(rows: &[usize]) -> bool {
    rows.windows(2).all(|w| w[1] == w[0] + 1)
}

/// `scale` times the rows `rows` of x [R, d].
pub fn gather<'a>(x: &'a [f32], d: usize, rows: &[usize], scale: f32) -> Gathered<'a> {
    if scale == 1.0 && consecutive(rows) {
        let first = rows.first().map_or(0, |row| row * d);
        return Gathered::Lent(&x[first..first + rows.len() * d]);
    }
    let mut copy = Buffer::unwritten(rows.len() * d);
    for_rows(&mut copy, d, |first, block| {
        for (i, out) in block.chunks_exact_mut(d).enumerate() {
            let x = &x[rows[first + i] * d..][..d];
            out.iter_mut().zip(x).for_each(|(out, x)| *out = x * scale);
        }
    });
    Gathered::Copied(copy)
}

/// Lets `write` fill the rows `rows` of out [R, d] as one matrix.
pub fn scatter(out: &mut [f32], d: usize, rows: &[usize], write: impl FnOnce(&mut [f32])) {
    if consecutive(rows) {
        let first = rows.first().map_or(0, |row| row * d);
        return write(&mut out[first..first + rows.len() * d]);
    }
    let mut block = Buffer::unwritten(rows.len() * d);
    write(&mut block);
    for (row, values) in rows.iter().zip(block.chunks_exact(d.max(1))) {
        out[row * d..][..d].copy_from_slice(values);
    }
}

/// values = scale·x, or += it.
pub fn write_scaled(values: &mut [f32], x: &[f32], scale: f32, accumulate: bool) {
    for_rows(values, 1, |first, values| {
        let pairs = values.iter_mut().zip(&x[first..]);
        if accumulate {
            pairs.for_each(|(v, x)| *v = fma(scale, *x, *v));
        } else {
            pairs.for_each(|(v, x)| *v = scale * x);
        }
    });
}

/// values *= scale.
pub fn scale(values: &mut [f32], scale: f32) {
    if scale != 1.0 {
        for_rows(values, 1, |_, values| values.iter_mut().for_each(|v| *v *= scale));
    }
}
