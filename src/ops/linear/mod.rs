//! y = x·Wᵀ.

pub mod cases;
mod cpu;
pub mod reference;

use crate::autograd::{Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// x [R, in], weight [out, in] (as checkpoints store it) → [R, out].
pub fn linear(tape: &Tape<'_>, x: &Var, weight: &Var) -> Result<Var> {
    let (rows, inner) = (x.shape().rows(), x.shape().last());
    let &[out, expected] = weight.dims() else {
        return Err(Error::contract("linear", "weight", weight.dims(), "[out, in]"));
    };
    if inner != expected {
        return Err(Error::contract("linear", "x", x.dims(), format!("[R, {expected}]")));
    }
    let y = Tensor::build([rows, out], |y| cpu::forward(x.f32(), weight.f32(), y, rows, inner, out));
    let (xv, wv) = (x.value().clone(), weight.value().clone());
    Ok(tape.record1("linear", &[x, weight], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if ctx.needs(0) {
            let dx = Tensor::build(xv.shape().clone(), |dx| cpu::input_grad(dy.f32(), wv.f32(), dx, rows, inner, out));
            ctx.add(0, dx);
        }
        ctx.accumulate(1, wv.shape(), |dw, accumulate| {
            cpu::weight_grad(dy.f32(), xv.f32(), dw, (rows, inner, out), accumulate);
        });
        Ok(())
    }))
}
