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
mod cpu;
pub mod reference;

use super::quantize::Dice;
use crate::autograd::{Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// The numbers that products are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    Fp8,
    Nvfp4,
}

/// x [R, in], weight [out, in] → [R, out]. `dice` rounds the gradients of NVFP4: dy by rows takes its first R·⌈out / 4⌉
/// indices, dy by columns as many as the rows after padding to sixteen need. On the CPU; kernels of the same products are
/// in cuda/quantized_linear.cu.
pub fn quantized_linear(tape: &Tape<'_>, x: &Var, weight: &Var, precision: Precision, dice: Dice) -> Result<Var> {
    let &[out, inner] = weight.dims() else {
        return Err(Error::contract("quantized_linear", "weight", weight.dims(), "[out, in]"));
    };
    let (rows, found) = (x.shape().rows(), x.shape().last());
    if found != inner {
        return Err(Error::contract("quantized_linear", "x", x.dims(), format!("[R, {inner}]")));
    }
    for (name, input) in [("x", x), ("weight", weight)] {
        if input.value().gpu().is_some() {
            return Err(Error::contract("quantized_linear", name, input.value(), "a tensor on the CPU"));
        }
    }
    let product = cpu::Product { rows, inner, out, precision };
    let w = product.weight(weight.value().f32())?;
    let y = product.forward(x.value().f32(), &w)?;
    let (xv, w_shape) = (x.value().clone(), weight.shape().clone());
    Ok(tape.record1("quantized_linear", &[x, weight], Tensor::from_slice([rows, out], &y), move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if ctx.needs(0) {
            ctx.add(0, Tensor::from_slice(xv.shape().clone(), &product.input_grad(dy.f32(), &w, dice)?));
        }
        if ctx.needs(1) {
            ctx.add(1, Tensor::from_slice(w_shape, &product.weight_grad(dy.f32(), xv.f32(), dice)?));
        }
        Ok(())
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
