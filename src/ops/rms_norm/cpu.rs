use rayon::prelude::*;

use crate::autograd::MaskRows;
use crate::device::parallel::{dot, for_rows2};
use crate::numerics::fma;

/// Rows whose weight and mask gradients are summed by one task.
const BLOCK: usize = 64;

/// `scales` `[R]` gets 1 / √(Σx²/n + eps).
pub fn forward(x: &[f32], w: &[f32], eps: f32, mask: Option<&MaskRows>, y: &mut [f32], scales: &mut [f32]) {
    let d = w.len();
    for_rows2((y, d), (scales, 1), |first, y, scales| {
        for (i, (y, scale)) in y.chunks_exact_mut(d).zip(scales).enumerate() {
            let row = first + i;
            let x = &x[row * d..][..d];
            let n = mask.map_or(d as f32, |m| m.total(row));
            *scale = if n > 0.0 { 1.0 / (dot(x, x) / n + eps).sqrt() } else { 0.0 };
            for j in 0..d {
                y[j] = x[j] * *scale * w[j];
            }
        }
    });
}

pub struct Saved<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub scales: &'a [f32],
    pub mask: Option<&'a MaskRows>,
}

/// Writes dx; returns the gradients of the weight `[d]` and of the mask's keep probabilities [draws, C] (empty without one).
pub fn backward(saved: &Saved, dy: &[f32], dx: &mut [f32]) -> (Vec<f32>, Vec<f32>) {
    let d = saved.weight.len();
    let keep_len = saved.mask.map_or(0, MaskRows::grad_len);
    if d == 0 {
        return (Vec::new(), vec![0.0; keep_len]);
    }
    let partial: Vec<(Vec<f32>, Vec<f32>)> = (dx.par_chunks_mut(BLOCK * d).enumerate())
        .map(|(block, dx)| {
            let (mut dw, mut dkeep) = (vec![0.0; d], vec![0.0; keep_len]);
            for (i, dx) in dx.chunks_exact_mut(d).enumerate() {
                let row = block * BLOCK + i;
                backward_row(saved, row, &dy[row * d..][..d], dx, &mut dw, &mut dkeep);
            }
            (dw, dkeep)
        })
        .collect();
    let (mut dw, mut dkeep) = (vec![0.0; d], vec![0.0; keep_len]);
    for (w, keep) in partial {
        dw.iter_mut().zip(w).for_each(|(sum, x)| *sum += x);
        dkeep.iter_mut().zip(keep).for_each(|(sum, x)| *sum += x);
    }
    (dw, dkeep)
}

fn backward_row(saved: &Saved, row: usize, dy: &[f32], dx: &mut [f32], dw: &mut [f32], dkeep: &mut [f32]) {
    let (d, w, scale) = (dx.len(), saved.weight, saved.scales[row]);
    let x = &saved.x[row * d..][..d];
    let n = saved.mask.map_or(d as f32, |m| m.total(row));
    if n <= 0.0 {
        dx.fill(0.0);
        return;
    }
    for j in 0..d {
        dx[j] = dy[j] * w[j];
    }
    let along = dot(dx, x); // Σ dy·w·x
    let cubed = scale * scale * scale * along;
    for j in 0..d {
        dw[j] = fma(dy[j], x[j] * scale, dw[j]);
        dx[j] = fma(dx[j], scale, -x[j] * (cubed / n));
    }
    if let Some(mask) = saved.mask {
        // ∂scale/∂n = ½·scale³·Σx²/n²
        mask.add_total(dkeep, row, 0.5 * cubed * dot(x, x) / (n * n));
    }
}
