use std::sync::Arc;

use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{launch, room, size};
use crate::tensor::{DType, Tensor};

pub(super) fn mask_keep(gpu: &Arc<Cuda>, tape: &Tape<'_>, y: &Var) -> Result<Var> {
    let keep = sums(gpu, "mask_keep_forward_f32", y.value())?;
    let gpu = gpu.clone();
    Ok(tape.record1("mask_keep", &[y], keep, move |ctx| {
        let Some(dkeep) = ctx.output(0) else { return Ok(()) };
        ctx.add(0, sums(&gpu, "mask_keep_backward_f32", &dkeep)?);
        Ok(())
    }))
}

/// Suffix or prefix sums of each row of [draws, C].
fn sums(gpu: &Arc<Cuda>, symbol: &str, from: &Tensor) -> Result<Tensor> {
    let out = room(gpu, DType::F32, from.dims())?;
    let args = abi::MaskKeep {
        in_: from.ptr(),
        out: out.ptr(),
        draws: size(from.dims()[0])?,
        candidates: size(from.dims()[1])?,
    };
    launch(gpu, symbol, &args)?;
    Ok(out)
}
