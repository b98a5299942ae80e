use std::sync::Arc;

use crate::Result;
use crate::autograd::{Mask, Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{GpuMask, check, keep_of, launch, optional, room, size, symbol};
use crate::ops::moe_permute::Sorted;
use crate::tensor::{DType, Tensor};

pub(super) fn moe_combine(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    y: &Var,
    weights: &Var,
    sorted: Sorted,
    mask: Option<&Mask>,
) -> Result<Var> {
    let (rows, width, dtype) = (y.shape().rows(), y.shape().last(), y.value().dtype());
    let (tokens, top_k) = (weights.dims()[0], weights.dims()[1]);
    check("moe_combine", &[("weights", weights.value(), Some(DType::F32))])?;
    let device_mask = GpuMask::new(gpu, mask, sorted.experts, tokens)?;
    let combine = Combine { y: y.value().clone(), weights: weights.value().clone(), sorted, mask: device_mask };
    let out = room(gpu, dtype, &[tokens, width])?;
    let args = abi::MoeCombineForward { combine: combine.abi()?, out: out.ptr() };
    launch(gpu, &symbol("moe_combine_forward", dtype), &args)?;
    let gpu = gpu.clone();
    Ok(tape.record1("moe_combine", &[y, weights, &keep_of(mask)], out, move |ctx| {
        let Some(dout) = ctx.output(0) else { return Ok(()) };
        // The kernel writes the rows of dropped pairs too.
        let dy = room(&gpu, dtype, &[tokens * top_k, width])?;
        let dweights = room(&gpu, DType::F32, &[tokens, top_k])?;
        let sums = combine.mask.row_sums(&gpu, tokens)?;
        let args = abi::MoeCombineBackward {
            combine: combine.abi()?,
            dout: dout.ptr(),
            dy: dy.ptr(),
            dweights: dweights.ptr(),
            row_sums: optional(&sums),
        };
        launch(&gpu, &symbol("moe_combine_backward", dtype), &args)?;
        ctx.add(0, dy.part(0, [rows, width]));
        ctx.add(1, dweights);
        if let Some(sums) = sums.filter(|_| ctx.needs(2)) {
            ctx.add(2, combine.mask.grad(&gpu, &sums, tokens, 1)?);
        }
        Ok(())
    }))
}

/// What both directions read.
struct Combine {
    y: Tensor,
    weights: Tensor,
    sorted: Sorted,
    mask: GpuMask,
}

impl Combine {
    fn abi(&self) -> Result<abi::MoeCombine> {
        Ok(abi::MoeCombine {
            y: self.y.ptr(),
            weights: self.weights.ptr(),
            chosen: self.sorted.chosen.ptr(),
            row_of: self.sorted.row_of.ptr(),
            filled: self.sorted.filled(),
            mask: self.mask.abi(),
            tokens: size(self.weights.dims()[0])?,
            top_k: size(self.weights.dims()[1])?,
            width: size(self.y.shape().last())?,
            unused: 0,
        })
    }
}
