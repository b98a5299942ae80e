use std::sync::Arc;

use super::{quantized_grouped_gemm, reference};
use crate::autograd::check::{Case, Generator, Input};
use crate::ops::quantize::Dice;
use crate::ops::quantized_linear::Precision;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for precision in [Precision::Fp8, Precision::Nvfp4] {
        cases.push(case("uneven groups, some empty", &[16, 0, 57, 44, 0, 8], 24, 40, precision));
        cases.push(case("no tokens", &[0, 0, 0], 5, 7, precision));
        cases.push(case("one token", &[0, 1], 1, 1, precision));
        cases.push(case("several blocks of scales", &[5, 140], 150, 131, precision));
    }
    cases
}

fn case(name: &str, groups: &[usize], inner: usize, out: usize, precision: Precision) -> Case {
    let mut generator = Generator::new(groups.len() as u64);
    let offsets: Arc<[usize]> = (0..=groups.len()).map(|e| groups[..e].iter().sum()).collect();
    let rows = offsets[groups.len()];
    // Rounding has steps, whose derivative is no gradient: gradients have a test of their own.
    let mut fixed = |name, dims: &[usize]| Input { differentiable: false, ..generator.normal(name, dims, 1.0) };
    let inputs = vec![fixed("x", &[rows, inner]), fixed("weight", &[groups.len(), out, inner])];
    let ours = offsets.clone();
    Case::new(
        format!("{name} in {precision:?}"),
        inputs,
        move |tape, v| Ok(vec![quantized_grouped_gemm(tape, &v[0], &v[1], &ours, precision, Dice::new(1, 2, 3))?]),
        move |v| vec![reference::quantized_grouped_gemm(&v[0], &v[1], &offsets, [inner, out], precision)],
    )
}
