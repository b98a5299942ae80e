use rayon::prelude::*;

use super::{AdamWOptions, Update};
use crate::numerics::fma;

/// Elements per task.
const BLOCK: usize = 1 << 15;

pub fn update(value: &mut [f32], grad: &[f32], first: &mut [f32], second: &mut [f32], u: &Update, o: &AdamWOptions) {
    assert!(value.len() == grad.len() && value.len() == first.len() && value.len() == second.len());
    // Bias corrections in f64: beta2^t for large t loses its digits in f32.
    let correction = |beta: f32| 1.0 - f64::from(beta).powf(u.update as f64);
    let step = (f64::from(u.learning_rate) / correction(o.beta1)) as f32;
    let inverse = (1.0 / correction(o.beta2)) as f32;
    let keep = if u.decay { 1.0 - u.learning_rate * o.weight_decay } else { 1.0 };
    value
        .par_chunks_mut(BLOCK)
        .zip(grad.par_chunks(BLOCK))
        .zip(first.par_chunks_mut(BLOCK).zip(second.par_chunks_mut(BLOCK)))
        .for_each(|((value, grad), (first, second))| {
            for (((value, grad), first), second) in value.iter_mut().zip(grad).zip(first).zip(second) {
                let g = grad * u.scale;
                *first = fma(o.beta1, *first, (1.0 - o.beta1) * g);
                *second = fma(o.beta2, *second, (1.0 - o.beta2) * g * g);
                *value = *value * keep - step * *first / ((*second * inverse).sqrt() + o.eps);
            }
        });
}

/// Σ g², per block in eight running f32 sums, over blocks in f64 in order.
pub fn squares(grad: &[f32]) -> f64 {
    let blocks: Vec<f64> = (grad.par_chunks(BLOCK))
        .map(|block| block.chunks(1024).map(|part| f64::from(crate::device::parallel::dot(part, part))).sum())
        .collect();
    blocks.iter().sum()
}
