//! relu(x)²·m, the activation of every feed-forward network here, with the mask of its width (axes F and S).

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use crate::autograd::{Mask, Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// x [R, F] → relu(x)²·m. A mask of exactly 0 gives exactly 0, also over NaN or Inf, and still its own gradient.
pub fn relu2(tape: &Tape<'_>, x: &Var, mask: Option<&Mask>) -> Result<Var> {
    let &[rows, width] = x.dims() else {
        return Err(Error::contract("relu2", "x", x.dims(), "[R, F]"));
    };
    if let Some(gpu) = x.value().gpu() {
        return cuda::relu2(gpu, tape, x, mask);
    }
    let mask_rows = mask.map(|m| m.rows(width, rows)).transpose()?;
    let y = Tensor::build([rows, width], |y| cpu::forward(x.f32(), width, mask_rows.as_ref(), y));
    let keep = mask.map(|m| m.keep.clone()).unwrap_or_else(|| Var::constant(Tensor::zeros([0])));
    let (xv, keep_shape) = (x.value().clone(), keep.shape().clone());
    Ok(tape.record1("relu2", &[x, &keep], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if let Some(mask) = mask_rows.as_ref().filter(|_| ctx.needs(1)) {
            ctx.add(1, Tensor::from_slice(keep_shape, &cpu::mask_grad(xv.f32(), mask, dy.f32())));
        }
        if ctx.needs(0) {
            let dx = Tensor::build([rows, width], |dx| {
                cpu::input_grad(xv.f32(), width, mask_rows.as_ref(), dy.f32(), dx);
            });
            ctx.add(0, dx);
        }
        Ok(())
    }))
}
