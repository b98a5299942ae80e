use std::ops::Range;
use std::sync::Arc;

use super::AttentionDims;
use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Constant, Cuda};
use crate::ops::gpu::{check, launch, offsets, room, size, sizes, symbol, tiles};
use crate::tensor::{DType, Segments, Tensor};

pub(super) fn attention(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    [q, k, v]: [&Var; 3],
    dims: &AttentionDims,
    queries: &Segments,
    keys: &[Range<usize>],
) -> Result<Var> {
    let dtype = q.value().dtype();
    check("attention", &[("k", k.value(), Some(dtype)), ("v", v.value(), Some(dtype))])?;
    let tensor_core = dtype == DType::Bf16 && [64, 128].contains(&dims.head_dim);
    let (kind, tile) = if tensor_core { ("tensor_core", 64) } else { ("tiled", 32) };
    let flat: Vec<usize> = keys.iter().flat_map(|range| [range.start, range.end]).collect();
    let problem = Problem {
        inputs: [q, k, v].map(|v| v.value().clone()),
        dims: *dims,
        offsets: offsets(gpu, queries)?,
        keys: gpu.constant(&sizes(&flat)?)?,
        tiles: tiles(gpu, queries, tile)?,
        segments: queries.count(),
    };
    let (out, lse) = (room(gpu, dtype, q.dims())?, room(gpu, DType::F32, &[queries.rows(), dims.heads])?);
    let args = abi::AttentionForward { attention: problem.abi()?, out: out.ptr(), lse: lse.ptr() };
    launch(gpu, &symbol(&format!("attention_{kind}_forward"), dtype), &args)?;
    let (gpu, result) = (gpu.clone(), out.clone());
    Ok(tape.record1("attention", &[q, k, v], out, move |ctx| {
        let Some(dout) = ctx.output(0) else { return Ok(()) };
        let grads = [0, 1, 2].map(|i| room(&gpu, dtype, problem.inputs[i].dims()));
        let [dq, dk, dv] = grads;
        let (dq, dk, dv) = (dq?, dk?, dv?);
        let delta = room(&gpu, DType::F32, lse.dims())?;
        let args = abi::AttentionBackward {
            attention: problem.abi()?,
            out: result.ptr(),
            dout: dout.ptr(),
            lse: lse.ptr(),
            delta: delta.ptr(),
            dq: dq.ptr(),
            dk: dk.ptr(),
            dv: dv.ptr(),
        };
        for kernel in ["delta".into(), format!("{kind}_query_grad"), format!("{kind}_key_grad")] {
            launch(&gpu, &symbol(&format!("attention_{kernel}"), dtype), &args)?;
        }
        ctx.add(0, dq);
        ctx.add(1, dk);
        ctx.add(2, dv);
        Ok(())
    }))
}

/// What both directions read.
struct Problem {
    /// q, k, v.
    inputs: [Tensor; 3],
    dims: AttentionDims,
    offsets: Constant,
    keys: Constant,
    tiles: Constant,
    segments: usize,
}

impl Problem {
    fn abi(&self) -> Result<abi::Attention> {
        let AttentionDims { heads, kv_heads, head_dim } = self.dims;
        let [q, k, v] = &self.inputs;
        Ok(abi::Attention {
            q: q.ptr(),
            k: k.ptr(),
            v: v.ptr(),
            offsets: self.offsets.ptr(),
            keys: self.keys.ptr(),
            tiles: self.tiles.ptr(),
            rows: size(q.dims()[0])?,
            key_rows: size(k.dims()[0])?,
            heads: size(heads)?,
            kv_heads: size(kv_heads)?,
            head_dim: size(head_dim)?,
            segments: size(self.segments)?,
            scale: (head_dim as f32).powf(-0.5),
            unused: 0,
        })
    }
}
