use std::sync::Arc;

use crate::Result;
use crate::autograd::{Draws, Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Cuda, DeviceBuffer};
use crate::ops::gpu::{DrawTable, launch, room, size, symbol};
use crate::tensor::{DType, Tensor};

/// A dispatch that kernels made and read: no number of it is known on the host.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Sorted {
    /// [E + 2]: expert e's rows are offsets\[e\] .. offsets[e+1]; those from offsets\[E\] on are dropped pairs'.
    pub offsets: Tensor,
    /// [R·K].
    pub pair_of: Tensor,
    /// [R·K].
    pub row_of: Tensor,
    /// [R·K], the expert of each pair.
    pub chosen: Tensor,
    /// [R·K], the draw of each row, where the tokens have several.
    pub draw_of: Option<Tensor>,
    pub experts: usize,
}

impl Sorted {
    /// From the experts of each token, [R, K] of u32 on the GPU, among `experts`.
    pub fn new(
        gpu: &Arc<Cuda>,
        chosen: &Tensor,
        top_k: usize,
        experts: usize,
        draws: Option<&Draws>,
    ) -> Result<Sorted> {
        let pairs = chosen.numel();
        let numbers = |len: usize| room(gpu, DType::U32, &[len]);
        let draws = draws.map(|draws| DrawTable::new(gpu, draws)).transpose()?.filter(|draws| !draws.ptr().is_null());
        let sorted = Sorted {
            // Without pairs there is nothing to sort; the scan alone would still run.
            offsets: if pairs == 0 { Tensor::zeros_on(gpu, DType::U32, [experts + 2])? } else { numbers(experts + 2)? },
            pair_of: numbers(pairs)?,
            row_of: numbers(pairs)?,
            chosen: chosen.clone(),
            draw_of: draws.is_some().then(|| numbers(pairs)).transpose()?,
            experts,
        };
        let counts: DeviceBuffer<u32> = gpu.buffer((experts + 1) * pairs.div_ceil(2048))?;
        let args = abi::MoeDispatch {
            chosen: chosen.ptr(),
            counts: counts.ptr(),
            offsets: sorted.offsets.ptr(),
            pair_of: sorted.pair_of.ptr(),
            row_of: sorted.row_of.ptr(),
            draw: draws.as_ref().map_or(std::ptr::null(), DrawTable::ptr),
            draw_of: sorted.draw_of.as_ref().map_or(std::ptr::null_mut(), Tensor::ptr),
            pairs: size(pairs)?,
            top_k: size(top_k)?,
            experts: size(experts)?,
            length: draws.as_ref().map_or(1, |draws| draws.length),
        };
        for kernel in if pairs == 0 { &[][..] } else { &["count", "scan", "place"] } {
            launch(gpu, &format!("moe_permute_{kernel}_u32"), &args)?;
        }
        Ok(sorted)
    }

    /// The address of the number of rows that experts have.
    pub fn filled(&self) -> *const u32 {
        self.offsets.ptr::<u32>().wrapping_add(self.experts)
    }
}

/// `rows` of the sorted ones are the output: all but dropped pairs', where the host knows how many those are.
pub(super) fn moe_permute(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    x: &Var,
    sorted: Sorted,
    (top_k, rows): (usize, usize),
) -> Result<Var> {
    let (tokens, width, dtype) = (x.shape().rows(), x.shape().last(), x.value().dtype());
    let y = room(gpu, dtype, &[tokens * top_k, width])?;
    let args = abi::MoePermuteForward {
        x: x.value().ptr(),
        pair_of: sorted.pair_of.ptr(),
        filled: sorted.filled(),
        y: y.ptr(),
        pairs: size(tokens * top_k)?,
        top_k: size(top_k)?,
        width: size(width)?,
        unused: 0,
    };
    launch(gpu, &symbol("moe_permute_forward", dtype), &args)?;
    let (gpu, shape) = (gpu.clone(), x.shape().clone());
    Ok(tape.record1("moe_permute", &[x], y.part(0, [rows, width]), move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        let dx = room(&gpu, dtype, shape.dims())?;
        let args = abi::MoePermuteBackward {
            dy: dy.ptr(),
            row_of: sorted.row_of.ptr(),
            filled: sorted.filled(),
            dx: dx.ptr(),
            tokens: size(tokens)?,
            top_k: size(top_k)?,
            width: size(width)?,
            unused: 0,
        };
        launch(&gpu, &symbol("moe_permute_backward", dtype), &args)?;
        ctx.add(0, dx);
        Ok(())
    }))
}
