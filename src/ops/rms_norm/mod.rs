//! Root-mean-square normalisation over the residual stream (Zhang & Sennrich, 2019), with a mask-aware denominator.

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use crate::autograd::{Mask, Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// x [R, d], weight `[d]` → x / √(Σx²/n + eps) · weight, per row.
///
/// n is d, or Σ m of the row's hidden-size mask: x is masked already, and a hardened mask must equal the narrower model.
/// A row that is masked entirely gives zeros.
pub fn rms_norm(tape: &Tape<'_>, x: &Var, weight: &Var, eps: f32, mask: Option<&Mask>) -> Result<Var> {
    let (rows, d) = (x.shape().rows(), x.shape().last());
    if weight.dims() != [d] {
        return Err(Error::contract("rms_norm", "weight", weight.dims(), format!("[{d}]")));
    }
    if let Some(gpu) = x.value().gpu() {
        return cuda::rms_norm(gpu, tape, x, weight, eps, mask);
    }
    let mask_rows = mask.map(|m| m.rows(d, rows)).transpose()?;
    let mut scales = Tensor::zeros([rows]);
    let y = Tensor::build([rows, d], |y| {
        cpu::forward(x.f32(), weight.f32(), eps, mask_rows.as_ref(), y, scales.f32_mut());
    });
    let keep = mask.map(|m| m.keep.clone()).unwrap_or_else(|| Var::constant(Tensor::zeros([0])));
    let (xv, wv, keep_shape) = (x.value().clone(), weight.value().clone(), keep.shape().clone());
    Ok(tape.record1("rms_norm", &[x, weight, &keep], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        let inputs = cpu::Saved { x: xv.f32(), weight: wv.f32(), scales: scales.f32(), mask: mask_rows.as_ref() };
        let mut dx = Tensor::build([rows, d], |_| {});
        let (dw, dkeep) = cpu::backward(&inputs, dy.f32(), dx.f32_mut());
        ctx.add(0, dx);
        ctx.add(1, Tensor::from_slice([d], &dw));
        if ctx.needs(2) {
            ctx.add(2, Tensor::from_slice(keep_shape, &dkeep));
        }
        Ok(())
    }))
}
