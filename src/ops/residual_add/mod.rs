//! h + m·g·x: a block's output joins the residual stream, with the hidden-size mask m and the layer's keep gate g.

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use crate::autograd::{Mask, Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// h [R, d] + x [R, d], x times `hidden` (the mask of axis d) and times `keep` (a mask of one interval: the probability
/// that the layer is kept).
pub fn residual_add(tape: &Tape<'_>, h: &Var, x: &Var, hidden: Option<&Mask>, keep: Option<&Mask>) -> Result<Var> {
    let (rows, d) = (h.shape().rows(), h.shape().last());
    if x.shape() != h.shape() {
        return Err(Error::contract("residual_add", "x", x.dims(), format!("{:?}", h.dims())));
    }
    if let Some(gpu) = h.value().gpu() {
        return cuda::residual_add(gpu, tape, h, x, hidden, keep);
    }
    let hidden_rows = hidden.map(|m| m.rows(d, rows)).transpose()?;
    let keep_rows = keep.map(|m| m.rows(d, rows)).transpose()?;
    let out = Tensor::build([rows, d], |out| {
        cpu::forward(h.f32(), x.f32(), d, hidden_rows.as_ref(), keep_rows.as_ref(), out);
    });
    let none = Var::constant(Tensor::zeros([0]));
    let hidden_keep = hidden.map_or(&none, |m| &m.keep);
    let layer_keep = keep.map_or(&none, |m| &m.keep);
    let shapes = [hidden_keep.shape().clone(), layer_keep.shape().clone()];
    let xv = hidden.or(keep).map(|_| x.value().clone()); // without a mask the gradient needs no values
    Ok(tape.record1("residual_add", &[h, x, hidden_keep, layer_keep], out, move |ctx| {
        let Some(dout) = ctx.output(0) else { return Ok(()) };
        let Some(xv) = xv else {
            ctx.add(1, dout.clone());
            ctx.add(0, dout);
            return Ok(());
        };
        let (hidden, keep) = (hidden_rows.as_ref(), keep_rows.as_ref());
        let mut grads = cpu::mask_grads(xv.f32(), d, hidden, keep, dout.f32()).into_iter();
        for (i, shape) in shapes.into_iter().enumerate() {
            if let Some(grad) = grads.next().filter(|grad| ctx.needs(2 + i) && !grad.is_empty()) {
                ctx.add(2 + i, Tensor::from_slice(shape, &grad));
            }
        }
        if ctx.needs(1) {
            ctx.add(1, Tensor::build([rows, d], |dx| cpu::input_grad(dout.f32(), d, hidden, keep, dx)));
        }
        ctx.add(0, dout);
        Ok(())
    }))
}
