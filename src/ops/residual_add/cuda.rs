use std::sync::Arc;

use crate::Result;
use crate::autograd::{Mask, Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{GpuMask, check, keep_of, launch, optional, room, size, symbol};

pub(super) fn residual_add(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    h: &Var,
    x: &Var,
    hidden: Option<&Mask>,
    keep: Option<&Mask>,
) -> Result<Var> {
    let (rows, d, dtype) = (h.shape().rows(), h.shape().last(), h.value().dtype());
    check("residual_add", &[("x", x.value(), Some(dtype))])?;
    let (hidden_mask, gate) = (GpuMask::new(gpu, hidden, d, rows)?, GpuMask::new(gpu, keep, d, rows)?);
    let out = room(gpu, dtype, h.dims())?;
    let args = abi::ResidualAddForward {
        h: h.value().ptr(),
        x: x.value().ptr(),
        out: out.ptr(),
        hidden: hidden_mask.abi(),
        gate: gate.abi(),
        rows: size(rows)?,
        width: size(d)?,
    };
    launch(gpu, &symbol("residual_add_forward", dtype), &args)?;
    let gpu = gpu.clone();
    // Without a mask the gradient needs no values.
    let xv = hidden.or(keep).map(|_| x.value().clone());
    Ok(tape.record1("residual_add", &[h, x, &keep_of(hidden), &keep_of(keep)], out, move |ctx| {
        let Some(dout) = ctx.output(0) else { return Ok(()) };
        let Some(xv) = xv else {
            ctx.add(1, dout.clone());
            ctx.add(0, dout);
            return Ok(());
        };
        let dx = room(&gpu, dtype, xv.dims())?;
        let (hidden_sums, gate_sums) = (hidden_mask.row_sums(&gpu, rows)?, gate.row_sums(&gpu, rows)?);
        let args = abi::ResidualAddBackward {
            x: xv.ptr(),
            dout: dout.ptr(),
            dx: dx.ptr(),
            hidden_sums: optional(&hidden_sums),
            gate_sums: optional(&gate_sums),
            hidden: hidden_mask.abi(),
            gate: gate.abi(),
            rows: size(rows)?,
            width: size(d)?,
        };
        launch(&gpu, &symbol("residual_add_backward", dtype), &args)?;
        for (input, mask, sums) in [(2, &hidden_mask, hidden_sums), (3, &gate, gate_sums)] {
            if let Some(sums) = sums.filter(|_| ctx.needs(input)) {
                ctx.add(input, mask.grad(&gpu, &sums, rows, 1)?);
            }
        }
        ctx.add(1, dx);
        ctx.add(0, dout);
        Ok(())
    }))
}
