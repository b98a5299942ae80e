use std::sync::Arc;

use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Cuda, DeviceBuffer};
use crate::ops::gpu::{check, launch, own, room, size, symbol};
use crate::tensor::{DType, Tensor};

/// `offsets` [E + 1] and on, u32.
pub(super) fn grouped_gemm(gpu: &Arc<Cuda>, tape: &Tape<'_>, x: &Var, weight: &Var, offsets: Tensor) -> Result<Var> {
    let (experts, out, inner) = (weight.dims()[0], weight.dims()[1], weight.dims()[2]);
    let (rows, dtype) = (x.dims()[0], x.value().dtype());
    check("grouped_gemm", &[("weight", weight.value(), Some(dtype)), ("offsets", &offsets, Some(DType::U32))])?;
    let (kind, edge) = if dtype == DType::Bf16 { ("pipelined", 128) } else { ("tiled", 64) };
    let tiles: DeviceBuffer<u32> = gpu.buffer(experts + 2)?;
    let args = abi::GroupedTiles {
        offsets: offsets.ptr(),
        tiles: tiles.ptr(),
        experts: size(experts)?,
        rows: size(rows)?,
        edge,
        unused: 0,
    };
    launch(gpu, "grouped_gemm_tiles_u32", &args)?;
    let product = abi::GroupedGemm {
        a: x.value().ptr(),
        b: weight.value().ptr(),
        c: std::ptr::null_mut(),
        offsets: offsets.ptr(),
        tiles: tiles.ptr(),
        rows: size(rows)?,
        n: size(out)?,
        k: size(inner)?,
        experts: size(experts)?,
    };
    let y = room(gpu, dtype, &[rows, out])?;
    launch(gpu, &symbol(&format!("grouped_gemm_{kind}_nt"), dtype), &abi::GroupedGemm { c: y.ptr(), ..product })?;
    let (gpu, xv, wv) = (gpu.clone(), x.value().clone(), weight.value().clone());
    Ok(tape.record1("grouped_gemm", &[x, weight], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if ctx.needs(0) {
            let dx = room(&gpu, dtype, xv.dims())?;
            let product = abi::GroupedGemm {
                a: dy.ptr(),
                b: wv.ptr(),
                c: dx.ptr(),
                offsets: offsets.ptr(),
                tiles: tiles.ptr(),
                rows: size(rows)?,
                n: size(inner)?,
                k: size(out)?,
                experts: size(experts)?,
            };
            launch(&gpu, &symbol(&format!("grouped_gemm_{kind}_nn"), dtype), &product)?;
            ctx.add(0, dx);
        }
        ctx.write(1, || room(&gpu, DType::F32, wv.dims()), &mut |dw, accumulate| {
            own(dw, accumulate)?;
            let args = abi::GroupedWeights {
                dy: dy.ptr(),
                x: xv.ptr(),
                dw: dw.ptr(),
                offsets: offsets.ptr(),
                m: size(out)?,
                n: size(inner)?,
                experts: size(experts)?,
                accumulate: u32::from(accumulate),
            };
            launch(&gpu, &symbol(&format!("grouped_gemm_{kind}_tn"), dtype), &args)
        })
    }))
}
