//! One matrix product per expert over rows sorted by expert.

pub mod cases;
pub(in crate::ops) mod cpu;
mod cuda;
pub mod reference;

use std::sync::Arc;

use super::moe_permute::Dispatch;
use crate::autograd::{Tape, Var};
use crate::device::cuda::Cuda;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Where each expert's rows are, [E + 1].
#[derive(Clone, Copy, Debug)]
pub enum ExpertRows<'o> {
    Host(&'o Arc<[usize]>),
    /// On the GPU, where a kernel counted them.
    Gpu(&'o Tensor),
}

impl<'o> From<&'o Arc<[usize]>> for ExpertRows<'o> {
    fn from(offsets: &'o Arc<[usize]>) -> Self {
        ExpertRows::Host(offsets)
    }
}

impl<'o> From<&'o Dispatch> for ExpertRows<'o> {
    fn from(dispatch: &'o Dispatch) -> Self {
        dispatch.expert_rows()
    }
}

/// Where a grouped product computes, with its offsets there.
pub(in crate::ops) enum Place {
    Host(Arc<[usize]>),
    /// [E + 1] and on, u32.
    Gpu(Arc<Cuda>, Tensor),
}

/// Holds the inputs of `op` to the contract of [`grouped_gemm`].
pub(in crate::ops) fn place(op: &'static str, x: &Var, weight: &Var, offsets: ExpertRows<'_>) -> Result<Place> {
    let &[experts, _, inner] = weight.dims() else {
        return Err(Error::contract(op, "weight", weight.dims(), "[E, out, in]"));
    };
    let &[rows, found] = x.dims() else {
        return Err(Error::contract(op, "x", x.dims(), format!("[M, {inner}]")));
    };
    if found != inner {
        return Err(Error::contract(op, "x", x.dims(), format!("[M, {inner}]")));
    }
    let offsets = match (offsets, x.value().gpu()) {
        (ExpertRows::Host(offsets), _) => offsets,
        (ExpertRows::Gpu(offsets), Some(gpu)) => return Ok(Place::Gpu(gpu.clone(), offsets.clone())),
        (ExpertRows::Gpu(offsets), None) => {
            return Err(Error::contract(op, "offsets", offsets, "on the CPU, as x is"));
        }
    };
    let rising = offsets.windows(2).all(|w| w[0] <= w[1]);
    if offsets.len() != experts + 1 || offsets[0] != 0 || !rising || offsets[experts] > rows {
        let expected = format!("{} rising from 0 to ≤ {rows}", experts + 1);
        return Err(Error::contract(op, "offsets", offsets, expected));
    }
    match x.value().gpu() {
        Some(gpu) => {
            let offsets = Tensor::from_slice([offsets.len()], &super::gpu::sizes(offsets)?).to_gpu(gpu)?;
            Ok(Place::Gpu(gpu.clone(), offsets))
        }
        None => Ok(Place::Host(offsets.clone())),
    }
}

/// x [M, in], weight [E, out, in], rows offsets\[e\] .. offsets[e+1] of expert e → y [M, out] = x·W_eᵀ.
///
/// Rows behind the last offset belong to no expert: they are not read, their outputs and gradients are 0. The weight
/// gradient of an expert without rows is exactly 0 (left as it is when gradients accumulate).
pub fn grouped_gemm<'o>(tape: &Tape<'_>, x: &Var, weight: &Var, offsets: impl Into<ExpertRows<'o>>) -> Result<Var> {
    let offsets = match place("grouped_gemm", x, weight, offsets.into())? {
        Place::Gpu(gpu, offsets) => return cuda::grouped_gemm(&gpu, tape, x, weight, offsets),
        Place::Host(offsets) => offsets,
    };
    let (rows, out, inner) = (x.dims()[0], weight.dims()[1], weight.dims()[2]);
    let sizes = cpu::Sizes { inner, out };
    let y = Tensor::build([rows, out], |y| cpu::forward(x.f32(), weight.f32(), &offsets, sizes, y));
    let (xv, wv) = (x.value().clone(), weight.value().clone());
    Ok(tape.record1("grouped_gemm", &[x, weight], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if ctx.needs(0) {
            let dx = Tensor::build([rows, inner], |dx| cpu::input_grad(dy.f32(), wv.f32(), &offsets, sizes, dx));
            ctx.add(0, dx);
        }
        ctx.accumulate(1, wv.shape(), |dw, accumulate| {
            cpu::weight_grad(dy.f32(), xv.f32(), &offsets, sizes, dw, accumulate);
        });
        Ok(())
    }))
}
