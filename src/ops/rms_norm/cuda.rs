use std::sync::Arc;

use crate::Result;
use crate::autograd::{Mask, Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{GpuMask, check, column_sum, keep_of, launch, optional, room, rows_per_block, size, symbol};
use crate::tensor::DType;

pub(super) fn rms_norm(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    x: &Var,
    weight: &Var,
    eps: f32,
    mask: Option<&Mask>,
) -> Result<Var> {
    let (rows, d, dtype) = (x.shape().rows(), x.shape().last(), x.value().dtype());
    check("rms_norm", &[("weight", weight.value(), Some(dtype))])?;
    let device_mask = GpuMask::new(gpu, mask, d, rows)?;
    let (y, scales) = (room(gpu, dtype, x.dims())?, room(gpu, DType::F32, &[rows])?);
    let per_block = rows_per_block(rows);
    let args = abi::RmsNormForward {
        x: x.value().ptr(),
        weight: weight.value().ptr(),
        y: y.ptr(),
        scales: scales.ptr(),
        mask: device_mask.abi(),
        rows: size(rows)?,
        width: size(d)?,
        rows_per_block: size(per_block)?,
        eps,
    };
    launch(gpu, &symbol("rms_norm_forward", dtype), &args)?;
    let (gpu, xv, wv) = (gpu.clone(), x.value().clone(), weight.value().clone());
    Ok(tape.record1("rms_norm", &[x, weight, &keep_of(mask)], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        let blocks = rows.div_ceil(per_block);
        let (dx, partials) = (room(&gpu, dtype, xv.dims())?, room(&gpu, DType::F32, &[blocks, d])?);
        let sums = device_mask.row_sums(&gpu, rows)?;
        let args = abi::RmsNormBackward {
            x: xv.ptr(),
            weight: wv.ptr(),
            dy: dy.ptr(),
            scales: scales.ptr(),
            dx: dx.ptr(),
            weight_partials: partials.ptr(),
            row_sums: optional(&sums),
            mask: device_mask.abi(),
            rows: size(rows)?,
            width: size(d)?,
            rows_per_block: size(per_block)?,
            unused: 0,
        };
        launch(&gpu, &symbol("rms_norm_backward", dtype), &args)?;
        ctx.add(0, dx);
        if ctx.needs(1) {
            ctx.add(1, column_sum(&gpu, &partials, blocks, d)?);
        }
        if let Some(sums) = sums.filter(|_| ctx.needs(2)) {
            ctx.add(2, device_mask.grad(&gpu, &sums, rows, 1)?);
        }
        Ok(())
    }))
}
