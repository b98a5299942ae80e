//! The experts' outputs, weighted, back in the tokens' order, with **output masking** of experts (axis E).

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use super::moe_permute::Dispatch;
use crate::autograd::{Mask, Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// y [M, L] (sorted by expert), weights [R, K] → out\[r\] = Σ_k weights[r, k]·m_e·y[row of (r, k)].
///
/// `mask` is over the experts, its rows the tokens. An expert with a mask of exactly 0 adds exactly nothing, whatever its
/// output, and its mask still gets its gradient. Dropped pairs add nothing.
pub fn moe_combine(tape: &Tape<'_>, y: &Var, weights: &Var, dispatch: &Dispatch, mask: Option<&Mask>) -> Result<Var> {
    let (rows, width) = (y.shape().rows(), y.shape().last());
    let (tokens, k) = (dispatch.tokens(), dispatch.top_k);
    if rows != dispatch.rows() {
        return Err(Error::contract("moe_combine", "y", y.dims(), format!("[{}, L]", dispatch.rows())));
    }
    if weights.dims() != [tokens, k] {
        return Err(Error::contract("moe_combine", "weights", weights.dims(), format!("[{tokens}, {k}]")));
    }
    if let Some(gpu) = y.value().gpu() {
        return cuda::moe_combine(gpu, tape, y, weights, dispatch.sorted(gpu)?, mask);
    }
    let mask_rows = mask.map(|m| m.rows(dispatch.experts(), tokens)).transpose()?;
    let out = Tensor::build([tokens, width], |out| {
        cpu::forward(y.f32(), weights.f32(), width, dispatch, mask_rows.as_ref(), out);
    });
    let keep = mask.map_or_else(|| Var::constant(Tensor::zeros([0])), |m| m.keep.clone());
    let (yv, wv, dispatch, keep_shape) =
        (y.value().clone(), weights.value().clone(), dispatch.clone(), keep.shape().clone());
    Ok(tape.record1("moe_combine", &[y, weights, &keep], out, move |ctx| {
        let Some(dout) = ctx.output(0) else { return Ok(()) };
        let mut dots = vec![0.0; rows];
        let dy = Tensor::build([rows, width], |dy| {
            let saved = cpu::Saved { y: yv.f32(), weights: wv.f32(), width };
            cpu::backward(&saved, &dispatch, mask_rows.as_ref(), dout.f32(), dy, &mut dots);
        });
        ctx.add(0, dy);
        let (dweights, dkeep) = cpu::scalar_grads(&dots, wv.f32(), &dispatch, mask_rows.as_ref());
        ctx.add(1, Tensor::from_slice([tokens, k], &dweights));
        if ctx.needs(2) {
            ctx.add(2, Tensor::from_slice(keep_shape, &dkeep));
        }
        Ok(())
    }))
}
