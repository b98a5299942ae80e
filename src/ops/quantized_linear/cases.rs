use super::{Precision, quantized_linear, reference};
use crate::autograd::check::{Case, Generator, Input};
use crate::ops::quantize::Dice;

/// Rows, in, out.
const SIZES: [(usize, usize, usize); 4] = [(0, 5, 3), (1, 1, 1), (7, 150, 20), (18, 33, 130)];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, inner, out) in SIZES {
        for precision in [Precision::Fp8, Precision::Nvfp4] {
            let mut generator = Generator::new(rows as u64);
            // Rounding has steps, whose derivative is no gradient: gradients have a test of their own.
            let mut fixed = |name, dims: &[usize]| Input { differentiable: false, ..generator.normal(name, dims, 1.0) };
            cases.push(Case::new(
                format!("{rows} rows, {inner} → {out} in {precision:?}"),
                vec![fixed("x", &[rows, inner]), fixed("weight", &[out, inner])],
                move |tape, v| Ok(vec![quantized_linear(tape, &v[0], &v[1], precision, Dice::new(1, 2, 3))?]),
                move |v| vec![reference::quantized_linear(&v[0], &v[1], inner, precision)],
            ));
        }
    }
    cases
}
