use std::sync::Arc;

use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Constant, Cuda};
use crate::ops::gpu::{check, column_sum, launch, none, offsets, optional, room, size, symbol};
use crate::tensor::{DType, Segments, Tensor};

/// Rows that a warp walks: the inputs of K − 1 rows in front are read again by each, and behind its rows in the gradient.
pub const STRETCH: usize = 64;

pub(super) fn causal_conv1d(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    (x, weight, bias): (&Var, &Var, Option<&Var>),
    segments: &Segments,
    initial: Option<&Tensor>,
) -> Result<Var> {
    let (channels, kernel, dtype) = (weight.dims()[0], weight.dims()[1], x.value().dtype());
    check("causal_conv1d", &[("weight", weight.value(), Some(dtype))])?;
    let initial = initial.map(|initial| initial.to_gpu(gpu)).transpose()?;
    for (name, tensor) in [("bias", bias.map(Var::value)), ("initial", initial.as_ref())] {
        check("causal_conv1d", &tensor.map(|t| (name, t, Some(dtype))).into_iter().collect::<Vec<_>>())?;
    }
    let conv = Conv {
        x: x.value().clone(),
        weight: weight.value().clone(),
        bias: bias.map(|b| b.value().clone()),
        initial,
        offsets: offsets(gpu, segments)?,
        segments: segments.count(),
    };
    let y = room(gpu, dtype, x.dims())?;
    let args = abi::ConvForward { conv: conv.abi()?, y: y.ptr() };
    launch(gpu, &symbol("causal_conv1d_forward", dtype), &args)?;
    let (gpu, none) = (gpu.clone(), none());
    Ok(tape.record1("causal_conv1d", &[x, weight, bias.unwrap_or(&none)], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        let (stretches, width) = (conv.x.shape().rows().div_ceil(STRETCH), channels * (kernel + 1));
        let (dx, partials) = (room(&gpu, dtype, conv.x.dims())?, room(&gpu, DType::F32, &[stretches, width])?);
        let args = abi::ConvBackward { conv: conv.abi()?, dy: dy.ptr(), dx: dx.ptr(), partials: partials.ptr() };
        launch(&gpu, &symbol("causal_conv1d_backward", dtype), &args)?;
        ctx.add(0, dx);
        if ctx.needs(1) || ctx.needs(2) {
            let sums = column_sum(&gpu, &partials, stretches, width)?;
            ctx.add(1, sums.part(0, [channels, kernel]));
            ctx.add(2, sums.part(channels * kernel, [channels]));
        }
        Ok(())
    }))
}

/// What both directions read.
struct Conv {
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    initial: Option<Tensor>,
    offsets: Constant,
    segments: usize,
}

impl Conv {
    fn abi(&self) -> Result<abi::Conv> {
        Ok(abi::Conv {
            x: self.x.ptr(),
            weight: self.weight.ptr(),
            bias: optional(&self.bias),
            initial: optional(&self.initial),
            offsets: self.offsets.ptr(),
            rows: size(self.x.shape().rows())?,
            channels: size(self.weight.dims()[0])?,
            kernel: size(self.weight.dims()[1])?,
            segments: size(self.segments)?,
            stretch: size(STRETCH)?,
            unused: 0,
        })
    }
}

/// [S, K − 1, C], what the next call carries in.
pub(super) fn next_state(
    gpu: &Arc<Cuda>,
    x: &Tensor,
    segments: &Segments,
    kernel: usize,
    initial: Option<&Tensor>,
) -> Result<Tensor> {
    let channels = x.shape().last();
    let state = room(gpu, x.dtype(), &[segments.count(), kernel.saturating_sub(1), channels])?;
    let offsets = offsets(gpu, segments)?;
    let args = abi::ConvState {
        x: x.ptr(),
        initial: initial.map_or(std::ptr::null(), |initial| initial.ptr()),
        offsets: offsets.ptr(),
        state: state.ptr(),
        channels: size(channels)?,
        kernel: size(kernel)?,
        segments: size(segments.count())?,
        unused: 0,
    };
    launch(gpu, &symbol("causal_conv1d_state", x.dtype()), &args)?;
    Ok(state)
}
