//! y = x·Wᵀ.

pub mod cases;
mod cpu;
pub(in crate::ops) mod cuda;
pub mod reference;

use crate::autograd::{Tape, Var, WIDE_PRODUCT, round_stored};
use crate::tensor::{DType, Tensor};

use crate::{Error, Result};
use cpu::Part;

/// x [R, in], weight [out, in] (as checkpoints store it) → [R, out].
pub fn linear(tape: &Tape<'_>, x: &Var, weight: &Var) -> Result<Var> {
    let out = weight.dims().first().copied().unwrap_or(0);
    let mut parts = linear_split(tape, x, weight, &[out])?;
    Ok(parts.pop().unwrap_or_else(|| unreachable!("one width in, one part out")))
}

/// As [`linear`], in f32 whatever x and the weight are stored as: for scores and logits, whose differences matter.
pub fn linear_wide(tape: &Tape<'_>, x: &Var, weight: &Var) -> Result<Var> {
    let out = weight.dims().first().copied().unwrap_or(0);
    let mut parts = split(tape, x, weight, &[out], true)?;
    Ok(parts.pop().unwrap_or_else(|| unreachable!("one width in, one part out")))
}

/// As [`linear`], with the output columns in several tensors: widths w₁ … wₙ, summing to `out`, give [R, w₁] … [R, wₙ].
///
/// A split of one wide output would be a copy; rows of the weight are contiguous, so the parts are products of their own.
pub fn linear_split(tape: &Tape<'_>, x: &Var, weight: &Var, widths: &[usize]) -> Result<Vec<Var>> {
    split(tape, x, weight, widths, false)
}

fn split(tape: &Tape<'_>, x: &Var, weight: &Var, widths: &[usize], wide: bool) -> Result<Vec<Var>> {
    let &[out, inner] = weight.dims() else {
        return Err(Error::contract("linear", "weight", weight.dims(), "[out, in]"));
    };
    let (rows, found) = (x.shape().rows(), x.shape().last());
    if found != inner {
        return Err(Error::contract("linear", "x", x.dims(), format!("[R, {inner}]")));
    }
    if widths.iter().sum::<usize>() != out {
        return Err(Error::contract("linear", "widths", widths, format!("a sum of {out}")));
    }
    let parts: Vec<Part> = (widths.iter())
        .scan(0, |first, width| {
            Some(Part { rows, inner, first: std::mem::replace(first, *first + width), width: *width })
        })
        .collect();
    if let Some(gpu) = x.value().gpu() {
        let dtype = if wide { DType::F32 } else { x.value().dtype() };
        return cuda::linear_split(gpu, tape, x, weight, parts, dtype);
    }
    let outputs = (parts.iter())
        .map(|part| Tensor::build([rows, part.width], |y| part.forward(x.f32(), weight.f32(), y)))
        .collect();
    let (xv, wv) = (x.value().clone(), weight.value().clone());
    let op = if wide { WIDE_PRODUCT } else { "linear" };
    Ok(tape.record(op, &[x, weight], outputs, move |ctx| {
        let grads: Vec<(Part, Tensor)> =
            parts.iter().enumerate().filter_map(|(i, part)| Some((*part, ctx.output(i)?))).collect();
        if ctx.needs(0) {
            let dx = Tensor::build(xv.shape().clone(), |dx| {
                for (i, (part, dy)) in grads.iter().enumerate() {
                    part.input_grad(dy.f32(), wv.f32(), dx, i > 0);
                    round_stored(dx);
                }
            });
            ctx.add(0, dx);
        }
        let whole = grads.len() == parts.len();
        ctx.accumulate(1, wv.shape(), |dw, accumulate| {
            if !whole && !accumulate {
                dw.fill(0.0); // a part that did not reach the loss leaves its rows untouched
            }
            for (part, dy) in &grads {
                part.weight_grad(dy.f32(), xv.f32(), dw, accumulate);
            }
        });
        Ok(())
    }))
}
