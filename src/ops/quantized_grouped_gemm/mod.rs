//! [`grouped_gemm`](super::grouped_gemm::grouped_gemm) whose operands are 8-bit or 4-bit floats: the products, formats and
//! roundings of [`quantized_linear`](super::quantized_linear).
//!
//! No block of scales belongs to two experts: each expert's matrix, and in weight gradients each expert's rows, begin a block of
//! their own. NVFP4's tensor scale is one for all experts, and for all rows: those behind the last expert's have to be zeros, as
//! `moe_permute` and `moe_combine` leave them.

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use super::grouped_gemm::{ExpertRows, Place, place};
use super::quantize::Dice;
use super::quantized_linear::Precision;
use crate::Result;
use crate::autograd::{Tape, Var};

/// x [M, in], weight [E, out, in], rows offsets\[e\] .. offsets[e+1] of expert e → y [M, out] = x·W_eᵀ; as `grouped_gemm` in
/// all but the operands. `dice` as in `quantized_linear`.
pub fn quantized_grouped_gemm<'o>(
    tape: &Tape<'_>,
    x: &Var,
    weight: &Var,
    offsets: impl Into<ExpertRows<'o>>,
    precision: Precision,
    dice: Dice,
) -> Result<Var> {
    let offsets = match place("quantized_grouped_gemm", x, weight, offsets.into())? {
        Place::Gpu(gpu, offsets) => {
            return cuda::quantized_grouped_gemm(&gpu, tape, x, weight, offsets, (precision, dice));
        }
        Place::Host(offsets) => offsets,
    };
    let (out, inner) = (weight.dims()[1], weight.dims()[2]);
    let experts = cpu::Experts { offsets, rows: x.dims()[0], inner, out, precision };
    let w = experts.weights(weight.f32())?;
    let y = experts.forward(x.f32(), &w)?;
    let (xv, w_shape) = (x.value().clone(), weight.shape().clone());
    Ok(tape.record1("quantized_grouped_gemm", &[x, weight], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if ctx.needs(0) {
            ctx.add(0, experts.input_grad(dy.f32(), &w, dice)?);
        }
        if !ctx.needs(1) {
            return Ok(());
        }
        let (dy, x, stretches) = experts.turned(dy.f32(), xv.f32(), dice.columns())?;
        ctx.accumulate(1, &w_shape, |dw, accumulate| experts.weight_grad((&dy, &x), &stretches, dw, accumulate));
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::autograd::check::Generator;
    use crate::ops::quantized_linear::quantized_linear;
    use crate::tensor::Tensor;

    /// y and both gradients.
    fn run(
        [rows, inner, out]: [usize; 3],
        (x, w, dy): (&[f32], &[f32], &[f32]),
        product: impl Fn(&Tape<'_>, &Var, &Var) -> Var,
        weight: &[usize],
    ) -> [Vec<f32>; 3] {
        let tape = Tape::new();
        let (xv, wv) = (tape.leaf(Tensor::from_slice([rows, inner], x)), tape.leaf(Tensor::from_slice(weight, w)));
        let y = product(&tape, &xv, &wv);
        let value = y.f32().to_vec();
        let grads = tape.backward_from(&[y], vec![Tensor::from_slice([rows, out], dy)], &mut ()).unwrap();
        [value, grads.take(&xv).unwrap().f32().to_vec(), grads.take(&wv).unwrap().f32().to_vec()]
    }

    #[test]
    fn an_expert_in_fp8_is_a_linear_map_in_fp8_and_the_others_do_not_matter() {
        let (inner, out, groups) = (70, 40, [33, 0, 150]);
        let rows: usize = groups.iter().sum();
        let offsets: Arc<[usize]> = Arc::new([0, 33, 33, 183]);
        let mut generator = Generator::new(3);
        let x = generator.normal("x", &[rows, inner], 1.0).values;
        let w = generator.normal("w", &[3, out, inner], 0.3).values;
        let dy = generator.normal("dy", &[rows, out], 1.0).values;
        let (precision, dice) = (Precision::Fp8, Dice::new(1, 2, 3));
        let [y, dx, dw] = run(
            [rows, inner, out],
            (&x, &w, &dy),
            |tape, x, w| quantized_grouped_gemm(tape, x, w, &offsets, precision, dice).unwrap(),
            &[3, out, inner],
        );
        for e in 0..3 {
            let (first, end) = (offsets[e], offsets[e + 1]);
            let rows_of = |v: &[f32], width: usize| v[first * width..end * width].to_vec();
            let w = &w[e * out * inner..][..out * inner];
            let alone = run(
                [end - first, inner, out],
                (&rows_of(&x, inner), w, &rows_of(&dy, out)),
                |tape, x, w| quantized_linear(tape, x, w, precision, dice).unwrap(),
                &[out, inner],
            );
            let got = [rows_of(&y, out), rows_of(&dx, inner), dw[e * out * inner..][..out * inner].to_vec()];
            for (got, want) in got.iter().zip(&alone) {
                assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs())), "expert {e}");
            }
        }
    }
}
