//! From the probabilities of an axis's candidates to the probabilities that keep its components.

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use crate::autograd::{Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// y [draws, C], candidates in rising order → keep[n, c] = Σ_{c' ≥ c} y[n, c'], what a [`Mask`](crate::autograd::Mask) takes.
///
/// A component of interval c is kept by candidate c and every larger one. Backward: ∂L/∂y_c = Σ_{i ≤ c} ∂L/∂keep_i.
pub fn mask_keep(tape: &Tape<'_>, y: &Var) -> Result<Var> {
    let &[draws, candidates] = y.dims() else {
        return Err(Error::contract("mask_keep", "y", y.dims(), "[draws, C]"));
    };
    if let Some(gpu) = y.value().gpu() {
        return cuda::mask_keep(gpu, tape, y);
    }
    let keep = Tensor::build([draws, candidates], |keep| cpu::suffix_sums(y.f32(), candidates, keep));
    Ok(tape.record1("mask_keep", &[y], keep, move |ctx| {
        let Some(dkeep) = ctx.output(0) else { return Ok(()) };
        ctx.add(0, Tensor::build([draws, candidates], |dy| cpu::prefix_sums(dkeep.f32(), candidates, dy)));
        Ok(())
    }))
}
