use rayon::prelude::*;

use crate::device::parallel::Disjoint;
use crate::numerics::{fma, silu, silu_grad};
use crate::tensor::{Segments, Tensor};

/// Rows per task, within one segment.
const ROWS: usize = 64;

pub struct Conv {
    /// [K, C]: tap by tap, so that loops run over channels.
    taps: Vec<f32>,
    /// `[C]`; zeros without a bias.
    bias: Vec<f32>,
    channels: usize,
    kernel: usize,
    segments: Segments,
    /// [S, K−1, C].
    initial: Option<Tensor>,
}

impl Conv {
    pub fn new(
        weight: &[f32],
        bias: &[f32],
        channels: usize,
        kernel: usize,
        segments: Segments,
        initial: Option<Tensor>,
    ) -> Conv {
        let mut taps = vec![0.0; kernel * channels];
        for (c, weight) in weight.chunks_exact(kernel).enumerate() {
            for (k, w) in weight.iter().enumerate() {
                taps[k * channels + c] = *w;
            }
        }
        let bias = if bias.is_empty() { vec![0.0; channels] } else { bias.to_vec() };
        Conv { taps, bias, channels, kernel, segments, initial }
    }

    fn tap(&self, k: usize) -> &[f32] {
        &self.taps[k * self.channels..][..self.channels]
    }

    /// The input that tap k of row `row` reads; `None` where it is zero.
    fn input<'x>(&'x self, x: &'x [f32], segment: usize, row: usize, k: usize) -> Option<&'x [f32]> {
        let start = self.segments.range(segment).start;
        let c = self.channels;
        // Counted from the first row of `initial`.
        let t = row - start + k;
        match t.checked_sub(self.kernel - 1) {
            Some(t) => Some(&x[(start + t) * c..][..c]),
            None => self.initial.as_ref().map(|i| &i.f32()[(segment * (self.kernel - 1) + t) * c..][..c]),
        }
    }

    /// Before the activation.
    fn convolve(&self, x: &[f32], segment: usize, row: usize, out: &mut [f32]) {
        out.copy_from_slice(&self.bias);
        for k in 0..self.kernel {
            if let Some(input) = self.input(x, segment, row, k) {
                for ((out, w), x) in out.iter_mut().zip(self.tap(k)).zip(input) {
                    *out = fma(*w, *x, *out);
                }
            }
        }
    }

    pub fn forward(&self, x: &[f32], y: &mut [f32]) {
        let c = self.channels;
        let y = Disjoint::new(y);
        self.segments.chunks(ROWS).into_par_iter().for_each(|(segment, rows)| {
            // SAFETY: chunks are distinct rows.
            let y = unsafe { y.slice(rows.start * c..rows.end * c) };
            for (row, y) in rows.zip(y.chunks_exact_mut(c.max(1))) {
                self.convolve(x, segment, row, y);
                y.iter_mut().for_each(|y| *y = silu(*y));
            }
        });
    }

    /// Writes dx; returns the gradients of the weight [C, K] and the bias `[C]`. The pre-activation is computed again: it
    /// costs less than keeping it.
    pub fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32]) -> (Vec<f32>, Vec<f32>) {
        let (c, kernel) = (self.channels, self.kernel);
        let mut dpre = Tensor::build([dy.len()], |_| {});
        let out = Disjoint::new(dpre.f32_mut());
        let partial: Vec<Vec<f32>> = (self.segments.chunks(ROWS).into_par_iter())
            .map(|(segment, rows)| {
                // SAFETY: chunks are distinct rows.
                let dpre = unsafe { out.slice(rows.start * c..rows.end * c) };
                let mut sums = vec![0.0; (kernel + 1) * c];
                for (row, dpre) in rows.zip(dpre.chunks_exact_mut(c.max(1))) {
                    self.convolve(x, segment, row, dpre);
                    for (d, dy) in dpre.iter_mut().zip(&dy[row * c..]) {
                        *d = dy * silu_grad(*d);
                    }
                    let (weight, bias) = sums.split_at_mut(kernel * c);
                    for (k, sum) in weight.chunks_exact_mut(c.max(1)).enumerate() {
                        if let Some(input) = self.input(x, segment, row, k) {
                            for ((sum, d), x) in sum.iter_mut().zip(&*dpre).zip(input) {
                                *sum = fma(*d, *x, *sum);
                            }
                        }
                    }
                    bias.iter_mut().zip(&*dpre).for_each(|(sum, d)| *sum += d);
                }
                sums
            })
            .collect();
        self.input_grad(dpre.f32(), dx);
        let mut sums = vec![0.0; (kernel + 1) * c];
        for part in partial {
            sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
        }
        let bias = sums.split_off(kernel * c);
        let weight = (0..c * kernel).map(|at| sums[at % kernel * c + at / kernel]).collect();
        (weight, bias)
    }

    /// Row t's input reaches rows t … t+K−1 of its segment, through taps K−1 … 0.
    fn input_grad(&self, dpre: &[f32], dx: &mut [f32]) {
        let c = self.channels;
        let out = Disjoint::new(dx);
        self.segments.chunks(ROWS).into_par_iter().for_each(|(segment, rows)| {
            let end = self.segments.range(segment).end;
            // SAFETY: chunks are distinct rows.
            let dx = unsafe { out.slice(rows.start * c..rows.end * c) };
            for (row, dx) in rows.zip(dx.chunks_exact_mut(c.max(1))) {
                dx.fill(0.0);
                for later in row..(row + self.kernel).min(end) {
                    let tap = self.tap(self.kernel - 1 - (later - row));
                    for ((dx, w), d) in dx.iter_mut().zip(tap).zip(&dpre[later * c..]) {
                        *dx = fma(*w, *d, *dx);
                    }
                }
            }
        });
    }
}
