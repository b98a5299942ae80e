use std::sync::Arc;

use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Constant, Cuda};
use crate::ops::gpu::{check, launch, room, size};
use crate::tensor::{DType, Tensor};

pub(super) fn gumbel_softmax(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    logits: &Var,
    noise: &Tensor,
    (kappa, tau): (f32, f32),
) -> Result<Var> {
    let noise = noise.to_gpu(gpu)?;
    check("gumbel_softmax", &[("logits", logits.value(), Some(DType::F32)), ("noise", &noise, Some(DType::F32))])?;
    let (draws, candidates) = (noise.dims()[0], noise.dims()[1]);
    let state = state(gpu, abi::StepState { kappa, tau, ..Default::default() })?;
    let y = room(gpu, DType::F32, noise.dims())?;
    let args = abi::GumbelForward {
        state: state.ptr(),
        logits: logits.value().ptr(),
        noise: noise.ptr(),
        y: y.ptr(),
        draws: size(draws)?,
        candidates: size(candidates)?,
    };
    launch(gpu, "gumbel_softmax_forward_f32", &args)?;
    let (gpu, saved) = (gpu.clone(), y.clone());
    Ok(tape.record1("gumbel_softmax", &[logits], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        let dlogits = room(&gpu, DType::F32, &[candidates])?;
        let args = abi::GumbelBackward {
            state: state.ptr(),
            y: saved.ptr(),
            dy: dy.ptr(),
            dlogits: dlogits.ptr(),
            draws: size(draws)?,
            candidates: size(candidates)?,
            accumulate: 0,
            unused: 0,
        };
        launch(&gpu, "gumbel_softmax_backward_f32", &args)?;
        ctx.add(0, dlogits);
        Ok(())
    }))
}

/// A step's numbers on the device: the same step's are the same copy.
pub(in crate::ops) fn state(gpu: &Cuda, state: abi::StepState) -> Result<Constant> {
    // SAFETY: plain data without padding (cuda/abi.h).
    let bytes: &[u8] = unsafe { std::slice::from_raw_parts((&raw const state).cast(), size_of::<abi::StepState>()) };
    Ok(gpu.constant(bytes)?)
}
