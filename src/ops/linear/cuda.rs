use std::sync::Arc;

use super::Part;
use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{check, launch, own, room, size};
use crate::tensor::{DType, Tensor};

/// y = x·Wᵀ of each part, in `out`'s dtype: that of x, or f32.
pub(super) fn linear_split(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    x: &Var,
    weight: &Var,
    parts: Vec<Part>,
    out: DType,
) -> Result<Vec<Var>> {
    let dtype = x.value().dtype();
    check("linear", &[("weight", weight.value(), Some(dtype))])?;
    let mut outputs = Vec::with_capacity(parts.len());
    for part in &parts {
        let y = room(gpu, out, &[part.rows, part.width])?;
        forward(gpu, x.value(), &rows_of(weight.value(), part), &y)?;
        outputs.push(y);
    }
    let (gpu, xv, wv) = (gpu.clone(), x.value().clone(), weight.value().clone());
    let vars = tape.record("linear", &[x, weight], outputs, move |ctx| {
        let grads: Vec<(Part, Tensor)> =
            parts.iter().enumerate().filter_map(|(i, part)| Some((*part, ctx.output(i)?))).collect();
        if ctx.needs(0) {
            let dx = room(&gpu, dtype, xv.dims())?;
            for (i, (part, dy)) in grads.iter().enumerate() {
                input_grad(&gpu, dy, &rows_of(&wv, part), &dx, i > 0)?;
            }
            ctx.add(0, dx);
        }
        let whole = grads.len() == parts.len();
        let room = || match whole {
            true => room(&gpu, DType::F32, wv.dims()),
            false => Tensor::zeros_on(&gpu, DType::F32, wv.dims()), // a part that did not reach the loss has no gradient
        };
        ctx.write(1, room, &mut |dw, accumulate| {
            own(dw, accumulate)?;
            if !whole && !accumulate {
                *dw = Tensor::zeros_on(&gpu, DType::F32, wv.dims())?;
            }
            for (part, dy) in &grads {
                let dw = dw.part(part.first * part.inner, [part.width, part.inner]);
                weight_grad(&gpu, dy, &xv, &dw, accumulate)?;
            }
            Ok(())
        })
    });
    // What reads an f32 result gives its gradient back in the products' own dtype.
    Ok(vars.into_iter().map(|var| var.with_grad_dtype(dtype)).collect())
}

/// The rows of the weight that make a part.
fn rows_of(weight: &Tensor, part: &Part) -> Tensor {
    weight.part(part.first * part.inner, [part.width, part.inner])
}

/// y [M, N] = x [M, K]·wᵀ, w [N, K]; y is of their dtype, or f32.
pub(in crate::ops) fn forward(gpu: &Cuda, x: &Tensor, w: &Tensor, y: &Tensor) -> Result<()> {
    let (m, n, k) = (x.shape().rows(), w.dims()[0], w.dims()[1]);
    let symbol = match (x.dtype(), y.dtype()) {
        (DType::Bf16, DType::F32) => "linear_pipelined_nt_wide_bf16",
        (DType::Bf16, _) if m <= 8 => "linear_skinny_nt_bf16",
        (DType::Bf16, _) => "linear_pipelined_nt_bf16",
        _ if m <= 8 => "linear_skinny_nt_f32",
        _ => "linear_tiled_nt_f32",
    };
    product(gpu, symbol, [(x, k), (w, k), (y, n)], [m, n, k], false)
}

/// dx [M, K] = dy [M, N]·w [N, K], or dx +=.
pub(in crate::ops) fn input_grad(gpu: &Cuda, dy: &Tensor, w: &Tensor, dx: &Tensor, accumulate: bool) -> Result<()> {
    let (m, n, k) = (dy.shape().rows(), w.dims()[0], w.dims()[1]);
    let symbol = if dy.dtype() == DType::Bf16 { "linear_pipelined_nn_bf16" } else { "linear_tiled_nn_f32" };
    product(gpu, symbol, [(dy, n), (w, k), (dx, k)], [m, k, n], accumulate)
}

/// dw [N, K], f32, = dyᵀ·x with dy [M, N], x [M, K], or dw +=.
pub(in crate::ops) fn weight_grad(gpu: &Cuda, dy: &Tensor, x: &Tensor, dw: &Tensor, accumulate: bool) -> Result<()> {
    let (m, n, k) = (dy.shape().rows(), dw.dims()[0], dw.dims()[1]);
    let symbol = if dy.dtype() == DType::Bf16 { "linear_pipelined_tn_bf16" } else { "linear_tiled_tn_f32" };
    product(gpu, symbol, [(dy, n), (x, k), (dw, k)], [n, k, m], accumulate)
}

/// C [M, N] = A·B over a depth of K by the kernel `symbol`, or C +=. The operands are A, B, C, each with the elements from one
/// of its rows to the next; which way A and B lie is the kernel's.
fn product(
    gpu: &Cuda,
    symbol: &str,
    [(a, lda), (b, ldb), (c, ldc)]: [(&Tensor, usize); 3],
    [m, n, k]: [usize; 3],
    accumulate: bool,
) -> Result<()> {
    let args = abi::Linear {
        a: a.ptr(),
        b: b.ptr(),
        c: c.ptr(),
        m: size(m)?,
        n: size(n)?,
        k: size(k)?,
        lda: size(lda)?,
        ldb: size(ldb)?,
        ldc: size(ldc)?,
        accumulate: u32::from(accumulate),
        unused: 0,
    };
    launch(gpu, symbol, &args)
}
