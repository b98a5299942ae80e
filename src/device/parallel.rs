//! Parallel loops whose results are the same bits for any number of threads.

use rayon::prelude::*;
use std::ops::Range;

/// Elements below which a loop is not worth a second thread.
const GRAIN: usize = 1 << 14;

/// Rows per task: a function of the row length alone, never of the number of threads.
pub fn rows_per_task(row_len: usize) -> usize {
    (GRAIN / row_len.max(1)).max(1)
}

/// Calls `work(first_row, rows)` on consecutive blocks of rows of `out`, in parallel.
pub fn for_rows<T: Send>(out: &mut [T], row_len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if out.is_empty() {
        return;
    }
    let rows = rows_per_task(row_len);
    out.par_chunks_mut(rows * row_len).enumerate().for_each(|(i, block)| work(i * rows, block));
}

/// As [`for_rows`], over two outputs with the same number of rows.
pub fn for_rows2<T: Send, U: Send>(
    a: (&mut [T], usize),
    b: (&mut [U], usize),
    work: impl Fn(usize, &mut [T], &mut [U]) + Sync,
) {
    if a.0.is_empty() && b.0.is_empty() {
        return;
    }
    let rows = rows_per_task(a.1.max(b.1));
    a.0.par_chunks_mut(rows * a.1)
        .zip(b.0.par_chunks_mut(rows * b.1))
        .enumerate()
        .for_each(|(i, (x, y))| work(i * rows, x, y));
}

/// Sums `width` numbers over `rows` rows: `work(rows, acc)` adds a block's contribution to its own accumulator, and the
/// blocks' accumulators are added in order.
pub fn sum_rows(rows: usize, block: usize, width: usize, work: impl Fn(Range<usize>, &mut [f32]) + Sync) -> Vec<f32> {
    let blocks = rows.div_ceil(block.max(1));
    let partial: Vec<Vec<f32>> = (0..blocks)
        .into_par_iter()
        .map(|i| {
            let mut acc = vec![0.0; width];
            work(i * block..((i + 1) * block).min(rows), &mut acc);
            acc
        })
        .collect();
    let mut total = vec![0.0; width];
    for part in partial {
        for (t, p) in total.iter_mut().zip(part) {
            *t += p;
        }
    }
    total
}

/// ⟨a, b⟩ in 16 running sums, which vectorises and loses less to rounding than one.
#[inline]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let (ac, bc) = (a.chunks_exact(16), b.chunks_exact(16));
    let tail: f32 = ac.remainder().iter().zip(bc.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in ac.zip(bc) {
        for i in 0..16 {
            sums[i] = crate::numerics::fma(x[i], y[i], sums[i]);
        }
    }
    let mut width = 8;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0] + tail
}

/// y += a·x.
#[inline]
pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = crate::numerics::fma(a, *x, *y);
    }
}

/// A slice that tasks write to at places that do not overlap: columns of a matrix, scattered rows.
pub struct Disjoint<'v, T> {
    first: *mut T,
    len: usize,
    values: std::marker::PhantomData<&'v mut [T]>,
}

// SAFETY: `slice` makes its callers promise that no two threads touch one element.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'v, T> Disjoint<'v, T> {
    pub fn new(values: &'v mut [T]) -> Disjoint<'v, T> {
        Disjoint { first: values.as_mut_ptr(), len: values.len(), values: std::marker::PhantomData }
    }

    /// The elements of `range`, to write.
    ///
    /// # Safety
    /// While the slice lives, nobody else holds a slice that shares an element with it.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that slices do not overlap")]
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the slice that `new` borrowed mutably; not shared, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}
