use std::sync::Arc;

use crate::Result;
use crate::autograd::{Mask, Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{GpuMask, check, column_sum, keep_of, launch, optional, room, rows_per_block, size, symbol};
use crate::tensor::DType;

/// Groups of columns, and the mask over heads with its columns per head.
pub(super) struct Norm<'m> {
    pub groups: usize,
    pub eps: f32,
    pub mask: Option<(&'m Mask, usize)>,
}

pub(super) fn gated_group_norm(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    [y, z, weight]: [&Var; 3],
    norm: Norm<'_>,
) -> Result<Var> {
    let (rows, width, dtype) = (y.shape().rows(), y.shape().last(), y.value().dtype());
    check("gated_group_norm", &[("z", z.value(), Some(dtype)), ("weight", weight.value(), Some(dtype))])?;
    let Norm { groups, eps, mask } = norm;
    let columns = width / groups;
    // Without a mask a group is one head: the kernel does not look.
    let head_dim = mask.map_or(columns, |(_, head_dim)| head_dim);
    let mask = mask.map(|(mask, _)| mask);
    let device_mask = GpuMask::new(gpu, mask, width / head_dim.max(1), rows)?;
    let per_block = rows_per_block(rows);
    let out = room(gpu, dtype, &[rows, width])?;
    let args = abi::GatedGroupNormForward {
        y: y.value().ptr(),
        z: z.value().ptr(),
        weight: weight.value().ptr(),
        out: out.ptr(),
        mask: device_mask.abi(),
        rows: size(rows)?,
        groups: size(groups)?,
        columns: size(columns)?,
        head_dim: size(head_dim)?,
        rows_per_block: size(per_block)?,
        eps,
    };
    launch(gpu, &symbol("gated_group_norm_forward", dtype), &args)?;
    let (gpu, saved) = (gpu.clone(), [y, z, weight].map(|v| v.value().clone()));
    Ok(tape.record1("gated_group_norm", &[y, z, weight, &keep_of(mask)], out, move |ctx| {
        let Some(dout) = ctx.output(0) else { return Ok(()) };
        let [y, z, weight] = &saved;
        let blocks = rows.div_ceil(per_block);
        let (dy, dz) = (room(&gpu, dtype, y.dims())?, room(&gpu, dtype, y.dims())?);
        let partials = room(&gpu, DType::F32, &[blocks, width])?;
        let sums = device_mask.row_sums(&gpu, rows * groups)?;
        let args = abi::GatedGroupNormBackward {
            y: y.ptr(),
            z: z.ptr(),
            weight: weight.ptr(),
            dout: dout.ptr(),
            dy: dy.ptr(),
            dz: dz.ptr(),
            weight_partials: partials.ptr(),
            row_sums: optional(&sums),
            mask: device_mask.abi(),
            rows: size(rows)?,
            groups: size(groups)?,
            columns: size(columns)?,
            head_dim: size(head_dim)?,
            rows_per_block: size(per_block)?,
            eps,
        };
        launch(&gpu, &symbol("gated_group_norm_backward", dtype), &args)?;
        ctx.add(0, dy);
        ctx.add(1, dz);
        if ctx.needs(2) {
            ctx.add(2, column_sum(&gpu, &partials, blocks, width)?);
        }
        if let Some(sums) = sums.filter(|_| ctx.needs(3)) {
            ctx.add(3, device_mask.grad(&gpu, &sums, rows * groups, groups)?);
        }
        Ok(())
    }))
}
