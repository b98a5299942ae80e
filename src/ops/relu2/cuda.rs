use std::sync::Arc;

use crate::Result;
use crate::autograd::{Mask, Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{GpuMask, keep_of, launch, optional, room, size, symbol};

pub(super) fn relu2(gpu: &Arc<Cuda>, tape: &Tape<'_>, x: &Var, mask: Option<&Mask>) -> Result<Var> {
    let (rows, width, dtype) = (x.shape().rows(), x.shape().last(), x.value().dtype());
    let device_mask = GpuMask::new(gpu, mask, width, rows)?;
    let y = room(gpu, dtype, x.dims())?;
    let args = abi::Relu2Forward {
        x: x.value().ptr(),
        y: y.ptr(),
        mask: device_mask.abi(),
        rows: size(rows)?,
        width: size(width)?,
    };
    launch(gpu, &symbol("relu2_forward", dtype), &args)?;
    let (gpu, xv) = (gpu.clone(), x.value().clone());
    Ok(tape.record1("relu2", &[x, &keep_of(mask)], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        let dx = room(&gpu, dtype, xv.dims())?;
        let sums = device_mask.row_sums(&gpu, rows)?;
        let args = abi::Relu2Backward {
            x: xv.ptr(),
            dy: dy.ptr(),
            dx: dx.ptr(),
            row_sums: optional(&sums),
            mask: device_mask.abi(),
            rows: size(rows)?,
            width: size(width)?,
        };
        launch(&gpu, &symbol("relu2_backward", dtype), &args)?;
        if let Some(sums) = sums.filter(|_| ctx.needs(1)) {
            ctx.add(1, device_mask.grad(&gpu, &sums, rows, 1)?);
        }
        ctx.add(0, dx);
        Ok(())
    }))
}
