use std::sync::Arc;

use super::{Scan, ScanOptions};
use crate::Result;
use crate::autograd::{Backward, Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Constant, Cuda};
use crate::ops::gpu::{
    GpuMask, check, column_sum, keep_of, launch, none, offsets, optional, room, size, symbol, tiles,
};
use crate::tensor::{DType, Segments, Tensor};

/// Without gradients, segments of up to so many rows go row by row: a chunk's work is that of all its rows.
const RECURRENT_ROWS: usize = 8;

/// A rung of the scan's ladder (cuda/ssd_scan.cu).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rung {
    Recurrent,
    Chunked,
    TensorCore,
}

impl Rung {
    fn pick(dtype: DType, segments: &Segments, records: bool) -> Rung {
        let short = segments.iter().all(|rows| rows.len() <= RECURRENT_ROWS);
        match dtype {
            _ if short && !records => Rung::Recurrent,
            DType::Bf16 => Rung::TensorCore,
            _ => Rung::Chunked,
        }
    }

    /// The kernel of either direction.
    fn forward(self) -> &'static str {
        match self {
            Rung::Recurrent => "ssd_scan_recurrent_forward",
            Rung::Chunked => "ssd_scan_chunked_forward",
            Rung::TensorCore => "ssd_scan_pipelined_forward",
        }
    }

    fn backward(self) -> &'static str {
        match self {
            Rung::TensorCore => "ssd_scan_tensor_core_backward",
            _ => "ssd_scan_chunked_backward",
        }
    }

    /// Rows that it takes together.
    fn chunk(self) -> usize {
        if self == Rung::TensorCore { 64 } else { 32 }
    }

    /// How it stores the states before chunks.
    fn starts(self) -> DType {
        if self == Rung::TensorCore { DType::Bf16 } else { DType::F32 }
    }
}

pub(super) fn ssd_scan(gpu: &Arc<Cuda>, tape: &Tape<'_>, inputs: [&Var; 5], o: &ScanOptions<'_>) -> Result<Scan> {
    let [xbc, dt, a_log, d, dt_bias] = inputs;
    let (rows, dtype) = (xbc.dims()[0], xbc.value().dtype());
    let f32 = Some(DType::F32);
    check("ssd_scan", &[("dt", dt.value(), Some(dtype)), ("a_log", a_log.value(), f32), ("d", d.value(), f32)])?;
    check("ssd_scan", &[("dt_bias", dt_bias.value(), f32)])?;
    if let Some(initial) = o.initial {
        check("ssd_scan", &[("initial", initial.value(), f32)])?;
    }
    let record = tape.is_recording();
    let rung = Rung::pick(dtype, o.segments, record);
    let problem = Problem {
        rung,
        inputs: inputs.map(|v| v.value().clone()),
        initial: o.initial.map(|v| v.value().clone()),
        offsets: offsets(gpu, o.segments)?,
        chunks: tiles(gpu, o.segments, rung.chunk())?,
        mask: GpuMask::new(gpu, o.mask, o.heads, rows)?,
        sizes: [o.heads, o.head_dim, o.groups, o.state, o.segments.count()],
        dt_limit: o.dt_limit,
    };
    let y = room(gpu, dtype, &[rows, o.heads * o.head_dim])?;
    let unmasked = (o.mask.is_some() && record).then(|| room(gpu, dtype, y.dims())).transpose()?;
    let state_dims = [o.segments.count(), o.heads, o.head_dim, o.state];
    let last = o.final_state.then(|| room(gpu, DType::F32, &state_dims)).transpose()?;
    let chunks: usize = o.segments.iter().map(|rows| rows.len().div_ceil(rung.chunk())).sum();
    let starts = record.then(|| room(gpu, rung.starts(), &[chunks, o.heads, o.head_dim, o.state])).transpose()?;
    let args = abi::ScanForward {
        scan: problem.abi()?,
        y: y.ptr(),
        unmasked: optional(&unmasked),
        final_state: optional(&last),
        starts: optional(&starts),
    };
    launch(gpu, &symbol(rung.forward(), dtype), &args)?;
    let (none, keep) = (none(), keep_of(o.mask));
    let recorded = [xbc, dt, a_log, d, dt_bias, o.initial.unwrap_or(&none), &keep];
    let outputs: Vec<Tensor> = [Some(y), last].into_iter().flatten().collect();
    let (gpu, has_final) = (gpu.clone(), o.final_state);
    let saved = Saved { starts, unmasked };
    let mut vars = tape.record("ssd_scan", &recorded, outputs, move |ctx| {
        let dfinal = if has_final { ctx.output(1) } else { None };
        let dy = match ctx.output(0) {
            Some(dy) => dy,
            None => Tensor::zeros_on(&gpu, dtype, [rows, problem.sizes[0] * problem.sizes[1]])?,
        };
        problem.backward(&gpu, ctx, &dy, dfinal, &saved)
    });
    let final_state = if o.final_state { vars.pop() } else { None };
    let y = vars.pop().unwrap_or_else(|| unreachable!("y is always an output"));
    Ok(Scan { y, final_state })
}

/// What the forward pass leaves for the backward one.
struct Saved {
    /// The state before each chunk.
    starts: Option<Tensor>,
    /// The output before the mask.
    unmasked: Option<Tensor>,
}

/// What both directions read.
struct Problem {
    rung: Rung,
    /// xbc, dt, a_log, d, dt_bias.
    inputs: [Tensor; 5],
    initial: Option<Tensor>,
    offsets: Constant,
    chunks: Constant,
    mask: GpuMask,
    /// H, P, G, N, segments.
    sizes: [usize; 5],
    dt_limit: (f32, f32),
}

impl Problem {
    fn abi(&self) -> Result<abi::Scan> {
        let [xbc, dt, a_log, d, dt_bias] = &self.inputs;
        let [heads, head_dim, groups, state, segments] = self.sizes;
        Ok(abi::Scan {
            xbc: xbc.ptr(),
            dt: dt.ptr(),
            a_log: a_log.ptr(),
            d: d.ptr(),
            dt_bias: dt_bias.ptr(),
            initial: optional(&self.initial),
            offsets: self.offsets.ptr(),
            chunks: self.chunks.ptr(),
            mask: self.mask.abi(),
            rows: size(xbc.dims()[0])?,
            heads: size(heads)?,
            head_dim: size(head_dim)?,
            groups: size(groups)?,
            state: size(state)?,
            segments: size(segments)?,
            dt_low: self.dt_limit.0,
            dt_high: self.dt_limit.1,
        })
    }

    /// `dy` is of the masked output.
    fn backward(
        &self,
        gpu: &Arc<Cuda>,
        ctx: &mut Backward<'_>,
        dy: &Tensor,
        dfinal: Option<Tensor>,
        saved: &Saved,
    ) -> Result<()> {
        let [xbc, dt, ..] = &self.inputs;
        let [heads, head_dim, _, state, segments] = self.sizes;
        let (rows, dtype) = (xbc.dims()[0], xbc.dtype());
        let (dxbc, ddt) = (room(gpu, dtype, xbc.dims())?, room(gpu, dtype, dt.dims())?);
        let share = || room(gpu, DType::F32, &[rows, heads, state]);
        let (db, dc, partials) = (share()?, share()?, room(gpu, DType::F32, &[segments, 3 * heads])?);
        let state_dims = [segments, heads, head_dim, state];
        let dinitial = ctx.needs(5).then(|| room(gpu, DType::F32, &state_dims)).transpose()?;
        let args = abi::ScanBackward {
            scan: self.abi()?,
            dy: dy.ptr(),
            dfinal: optional(&dfinal),
            starts: optional(&saved.starts),
            dxbc: dxbc.ptr(),
            ddt: ddt.ptr(),
            dinitial: optional(&dinitial),
            db: db.ptr(),
            dc: dc.ptr(),
            partials: partials.ptr(),
        };
        launch(gpu, &symbol(self.rung.backward(), dtype), &args)?;
        launch(gpu, &symbol("ssd_scan_group_sum", dtype), &args)?;
        ctx.add(0, dxbc);
        ctx.add(1, ddt);
        if (2..5).any(|i| ctx.needs(i)) {
            let sums = column_sum(gpu, &partials, segments, 3 * heads)?;
            (0..3).for_each(|i| ctx.add(2 + i, sums.part(i * heads, [heads])));
        }
        if let Some(dinitial) = dinitial {
            ctx.add(5, dinitial);
        }
        let sums = self.mask.row_sums(gpu, rows)?;
        if let (Some(sums), Some(unmasked)) = (sums.filter(|_| ctx.needs(6)), &saved.unmasked) {
            let args = abi::ScanMaskGrad {
                unmasked: unmasked.ptr(),
                dy: dy.ptr(),
                row_sums: sums.ptr(),
                mask: self.mask.abi(),
                rows: size(rows)?,
                heads: size(heads)?,
                head_dim: size(head_dim)?,
                unused: 0,
            };
            launch(gpu, &symbol("ssd_scan_mask_grad", dtype), &args)?;
            ctx.add(6, self.mask.grad(gpu, &sums, rows, 1)?);
        }
        Ok(())
    }
}
