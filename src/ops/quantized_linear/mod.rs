//! y = x·Wᵀ where every product's operands are 8-bit or 4-bit floats, sums and results f32.
//!
//! | product | FP8 | NVFP4 |
//! |---|---|---|
//! | y = x·Wᵀ | x e4m3 by rows, W e4m3 by squares | x by rows, W by squares |
//! | dx = dy·W | dy e5m2 by rows, the same W | dy by rows, stochastic, the same W |
//! | dW = dyᵀ·x | dy e5m2 and x e4m3 by columns | both by columns after a Hadamard transform, dy stochastic |
//!
//! Recipes of DeepSeek-V3 (arXiv 2412.19437) and NVFP4 pretraining (arXiv 2509.25149). Rounding counts as the identity in the
//! backward pass.

pub mod cases;
pub(in crate::ops) mod cpu;
pub(in crate::ops) mod cuda;
pub mod reference;

use super::quantize::{Dice, Format};
use crate::autograd::{Tape, Var};
use crate::numerics::Fp8;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// The numbers that products are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    Fp8,
    Nvfp4,
}

impl Precision {
    /// The format of activations and weights.
    pub(crate) fn values(self) -> Format {
        match self {
            Precision::Fp8 => Format::Fp8(Fp8::E4m3),
            Precision::Nvfp4 => Format::Nvfp4,
        }
    }

    /// The format of gradients and how they round.
    pub(crate) fn gradients(self, dice: Dice) -> (Format, Option<Dice>) {
        match self {
            Precision::Fp8 => (Format::Fp8(Fp8::E5m2), None),
            Precision::Nvfp4 => (Format::Nvfp4, Some(dice)),
        }
    }
}

/// Output columns `first .. first + width`: rows of the weight, quantised as a matrix of their own.
#[derive(Clone, Copy)]
struct Part {
    rows: usize,
    inner: usize,
    first: usize,
    width: usize,
    dice: Dice,
}

/// x [R, in], weight [out, in] → [R, out]. `dice` rounds the gradients of NVFP4, with words of the 2³⁵ indices from
/// `dice.first` on.
pub fn quantized_linear(tape: &Tape<'_>, x: &Var, weight: &Var, precision: Precision, dice: Dice) -> Result<Var> {
    let out = weight.dims().first().copied().unwrap_or(0);
    let mut parts = quantized_linear_split(tape, x, weight, &[out], precision, dice)?;
    Ok(parts.pop().unwrap_or_else(|| unreachable!("one width in, one part out")))
}

/// As [`quantized_linear`], with the output columns in several tensors: widths w₁ … wₙ, summing to `out`, give [R, w₁] …
/// [R, wₙ], each with the rows of the weight that make it quantised apart and 2³⁵ indices of
/// its own.
pub fn quantized_linear_split(
    tape: &Tape<'_>,
    x: &Var,
    weight: &Var,
    widths: &[usize],
    precision: Precision,
    dice: Dice,
) -> Result<Vec<Var>> {
    let &[out, inner] = weight.dims() else {
        return Err(Error::contract("quantized_linear", "weight", weight.dims(), "[out, in]"));
    };
    let (rows, found) = (x.shape().rows(), x.shape().last());
    if found != inner {
        return Err(Error::contract("quantized_linear", "x", x.dims(), format!("[R, {inner}]")));
    }
    if widths.iter().sum::<usize>() != out {
        return Err(Error::contract("quantized_linear", "widths", widths, format!("a sum of {out}")));
    }
    let mut first = 0;
    let part = |(i, width): (usize, &usize)| {
        let part = Part { rows, inner, first, width: *width, dice: dice.part(i) };
        first += width;
        part
    };
    let parts: Vec<Part> = widths.iter().enumerate().map(part).collect();
    if let Some(gpu) = x.value().gpu() {
        return cuda::quantized_linear(gpu, tape, x, weight, parts, precision);
    }
    let quantized = cpu::input(x.f32(), [rows, inner], precision)?;
    let weights: Vec<Vec<f32>> =
        parts.iter().map(|part| part.weight(weight.f32(), precision)).collect::<Result<_>>()?;
    let output = |(part, w): (&Part, &Vec<f32>)| Tensor::build([rows, part.width], |y| part.forward(&quantized, w, y));
    let outputs = parts.iter().zip(&weights).map(output).collect();
    let (xv, w_shape) = (x.value().clone(), weight.shape().clone());
    Ok(tape.record("quantized_linear", &[x, weight], outputs, move |ctx| {
        let grads: Vec<(usize, Tensor)> = (0..parts.len()).filter_map(|i| Some((i, ctx.output(i)?))).collect();
        if ctx.needs(0) {
            let mut dx = Tensor::zeros(xv.shape().clone());
            for (n, (i, dy)) in grads.iter().enumerate() {
                let (part, w) = (&parts[*i], &weights[*i]);
                part.input_grad(dy.f32(), w, dx.f32_mut(), n > 0, (precision, part.dice))?;
            }
            ctx.add(0, dx);
        }
        if !ctx.needs(1) {
            return Ok(());
        }
        let (x, padded) = cpu::turned(xv.f32(), [rows, inner], precision)?;
        let whole = grads.len() == parts.len();
        ctx.write(1, || Ok(Tensor::build(w_shape, |_| {})), &mut |dw, accumulate| {
            let dw = dw.f32_mut();
            if !whole && !accumulate {
                dw.fill(0.0); // a part that did not reach the loss leaves its rows untouched
            }
            for (i, dy) in &grads {
                let part = &parts[*i];
                part.weight_grad(dy.f32(), (&x, padded), dw, accumulate, (precision, part.dice))?;
            }
            Ok(())
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::check::Generator;

    /// ‖a − b‖ / ‖b‖.
    fn difference(a: &[f32], b: &[f64]) -> f64 {
        assert_eq!(a.len(), b.len());
        let distance: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
        (distance / b.iter().map(|b| b * b).sum::<f64>()).sqrt()
    }

    #[test]
    fn gradients_are_those_of_a_product_up_to_the_rounding_of_the_format() {
        let (rows, inner, out) = (70, 150, 40);
        let mut generator = Generator::new(2);
        let [x, w, dy] = [[rows, inner], [out, inner], [rows, out]].map(|dims| generator.normal("", &dims, 1.0).values);
        let product = |m, n, depth, a: &dyn Fn(usize, usize) -> f32, b: &dyn Fn(usize, usize) -> f32| -> Vec<f64> {
            let sum = |i, j| (0..depth).map(|k| f64::from(a(i, k)) * f64::from(b(j, k))).sum();
            (0..m * n).map(|at| sum(at / n, at % n)).collect()
        };
        let y = product(rows, out, inner, &|i, k| x[i * inner + k], &|j, k| w[j * inner + k]);
        let dx = product(rows, inner, out, &|i, k| dy[i * out + k], &|j, k| w[k * inner + j]);
        let dw = product(out, inner, rows, &|i, k| dy[k * out + i], &|j, k| x[k * inner + j]);
        for (precision, most) in [(Precision::Fp8, 0.07), (Precision::Nvfp4, 0.25)] {
            let tape = Tape::new();
            let (xv, wv) =
                (tape.leaf(Tensor::from_slice([rows, inner], &x)), tape.leaf(Tensor::from_slice([out, inner], &w)));
            let got = quantized_linear(&tape, &xv, &wv, precision, Dice::new(1, 0, 0)).unwrap();
            let value = got.value().clone();
            let grads = tape.backward_from(&[got], vec![Tensor::from_slice([rows, out], &dy)], &mut ()).unwrap();
            let tensors = [value, grads.take(&xv).unwrap(), grads.take(&wv).unwrap()];
            for (got, want) in tensors.iter().zip([&y, &dx, &dw]) {
                let off = difference(got.f32(), want);
                assert!(off < most && off > most / 10.0, "{precision:?}: {off}");
            }
        }
    }
}
