use std::sync::Arc;

use super::{Part, Precision};
use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{check, launch, own, room, size, symbol};
use crate::ops::quantize::Blocks;
use crate::ops::quantize::cuda::{GpuQuantized, hadamard, quantize};
use crate::tensor::{DType, Tensor};

/// The kernels' names of a precision.
pub(in crate::ops) fn name(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp8 => "fp8",
        Precision::Nvfp4 => "nvfp4",
    }
}

/// y = x·Wᵀ of each part, in the dtype of x.
pub(super) fn quantized_linear(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    x: &Var,
    weight: &Var,
    parts: Vec<Part>,
    precision: Precision,
) -> Result<Vec<Var>> {
    let dtype = x.value().dtype();
    check("quantized_linear", &[("weight", weight.value(), Some(dtype))])?;
    let product = Product { gpu: gpu.clone(), precision, dtype };
    let (rows, inner) = (x.shape().rows(), x.shape().last());
    let quantized = quantize(gpu, x.value(), [rows, inner], precision.values(), Blocks::Rows, None)?;
    let (mut outputs, mut weights) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
    for part in &parts {
        let w = weight.value().part(part.first * inner, [part.width, inner]);
        let w = quantize(gpu, &w, [part.width, inner], precision.values(), Blocks::Squares, None)?;
        let y = room(gpu, dtype, &[rows, part.width])?;
        product.launch("nt", (&quantized, &w), &y, [rows, part.width, inner], false)?;
        outputs.push(y);
        weights.push(w);
    }
    let (gpu, xv, w_dims) = (gpu.clone(), x.value().clone(), weight.dims().to_vec());
    Ok(tape.record("quantized_linear", &[x, weight], outputs, move |ctx| {
        let grads: Vec<(usize, Tensor)> = (0..parts.len()).filter_map(|i| Some((i, ctx.output(i)?))).collect();
        if ctx.needs(0) {
            let dx = room(&gpu, dtype, xv.dims())?;
            for (n, (i, dy)) in grads.iter().enumerate() {
                let part = &parts[*i];
                let (format, dice) = precision.gradients(part.dice);
                let dy = quantize(&gpu, dy, [rows, part.width], format, Blocks::Rows, dice)?;
                product.launch("nn", (&dy, &weights[*i]), &dx, [rows, inner, part.width], n > 0)?;
            }
            ctx.add(0, dx);
        }
        if !ctx.needs(1) {
            return Ok(());
        }
        let (x, padded) = product.turned(&xv, [rows, inner])?;
        let x = quantize(&gpu, &x, [padded, inner], precision.values(), Blocks::Columns, None)?;
        let whole = grads.len() == parts.len();
        let room = || match whole {
            true => room(&gpu, DType::F32, &w_dims),
            false => Tensor::zeros_on(&gpu, DType::F32, &w_dims[..]), // a part that did not reach the loss has no gradient
        };
        ctx.write(1, room, &mut |dw, accumulate| {
            own(dw, accumulate)?;
            if !whole && !accumulate {
                *dw = Tensor::zeros_on(&gpu, DType::F32, &w_dims[..])?;
            }
            for (i, dy) in &grads {
                let part = &parts[*i];
                let (format, dice) = precision.gradients(part.dice.columns());
                let (dy, padded) = product.turned(dy, [rows, part.width])?;
                let dy = quantize(&gpu, &dy, [padded, part.width], format, Blocks::Columns, dice)?;
                let dw = dw.part(part.first * inner, [part.width, inner]);
                product.launch("tn", (&dy, &x), &dw, [part.width, inner, padded], accumulate)?;
            }
            Ok(())
        })
    }))
}

struct Product {
    gpu: Arc<Cuda>,
    precision: Precision,
    dtype: DType,
}

impl Product {
    /// What weight gradients quantise along rows: x itself, or transformed, and its rows.
    fn turned(&self, x: &Tensor, [rows, width]: [usize; 2]) -> Result<(Tensor, usize)> {
        match self.precision {
            Precision::Fp8 => Ok((x.clone(), rows)),
            Precision::Nvfp4 => Ok((hadamard(&self.gpu, x, [rows, width])?, rows.next_multiple_of(16))),
        }
    }

    fn launch(
        &self,
        layout: &str,
        (a, b): (&GpuQuantized, &GpuQuantized),
        c: &Tensor,
        [m, n, k]: [usize; 3],
        accumulate: bool,
    ) -> Result<()> {
        let dtype = if layout == "tn" { DType::F32 } else { self.dtype };
        let args = abi::QuantizedLinear {
            a: a.operand(),
            b: b.operand(),
            c: c.ptr(),
            m: size(m)?,
            n: size(n)?,
            k: size(k)?,
            ldc: size(n)?,
            accumulate: u32::from(accumulate),
            unused: 0,
        };
        let kernel = format!("quantized_linear_{}_{layout}", name(self.precision));
        launch(&self.gpu, &symbol(&kernel, dtype), &args)
    }
}
