//! Relaxed draws of one candidate per gate (Jang et al., arXiv 1611.01144; Maddison et al., arXiv 1611.00712).

pub mod cases;
mod cpu;
pub(in crate::ops) mod cuda;
pub mod reference;

use crate::autograd::{Tape, Var};
use crate::numerics::Philox;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// logits `[C]`, noise [draws, C] → softmax((κ·z + g) / τ) over the candidates of each draw, [draws, C].
///
/// κ scales what was learned against the noise, τ sets how close a draw is to one candidate; both must be above 0.
pub fn gumbel_softmax(tape: &Tape<'_>, logits: &Var, noise: &Tensor, kappa: f32, tau: f32) -> Result<Var> {
    let &[candidates] = logits.dims() else {
        return Err(Error::contract("gumbel_softmax", "logits", logits.dims(), "[C]"));
    };
    let &[draws, found] = noise.dims() else {
        return Err(Error::contract("gumbel_softmax", "noise", noise.dims(), format!("[draws, {candidates}]")));
    };
    if found != candidates || candidates == 0 {
        return Err(Error::contract("gumbel_softmax", "noise", noise.dims(), format!("[draws, {candidates}], C ≥ 1")));
    }
    if !(kappa > 0.0 && tau > 0.0 && kappa.is_finite() && tau.is_finite()) {
        return Err(Error::contract("gumbel_softmax", "kappa, tau", [kappa, tau], "finite, above 0"));
    }
    if let Some(gpu) = logits.value().gpu() {
        return cuda::gumbel_softmax(gpu, tape, logits, noise, (kappa, tau));
    }
    let y = Tensor::build([draws, candidates], |y| cpu::forward(logits.f32(), noise.f32(), kappa, tau, y));
    let saved = y.clone();
    Ok(tape.record1("gumbel_softmax", &[logits], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        ctx.add(0, Tensor::from_slice([candidates], &cpu::backward(saved.f32(), dy.f32(), candidates, kappa / tau)));
        Ok(())
    }))
}

/// Standard Gumbel noise [draws, C] of a gate at a step: the same bits on every device, in any order.
pub fn gumbel_noise(seed: u64, step: u64, gate: usize, draws: usize, candidates: usize) -> Tensor {
    let noise = Philox::new(seed, step);
    Tensor::build([draws, candidates], |values| {
        for (i, value) in values.iter_mut().enumerate() {
            // Gates share the step's stream at distances that no gate's own numbers reach.
            let index = ((gate as u64) << 32) + i as u64;
            *value = -(-noise.uniform(index).ln()).ln() as f32;
        }
    })
}
