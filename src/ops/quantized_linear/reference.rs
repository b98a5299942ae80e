use super::Precision;
use crate::ops::linear::reference::linear;
use crate::ops::quantize::{Blocks, Quantized, reference::quantize};

/// y = x·Wᵀ, with x [R, inner] by rows and W [out, inner] by squares.
pub fn quantized_linear(x: &[f64], w: &[f64], inner: usize, precision: Precision) -> Vec<f64> {
    let format = precision.values();
    linear(&quantize(x, inner, format, Blocks::Rows), &quantize(w, inner, format, Blocks::Squares), inner)
}

/// C [M, N] = Σ_k A·B over what quantised operands decode to; `a_along` and `b_along` say whether their rows run along k.
pub fn product(a: &Quantized, b: &Quantized, a_along: bool, b_along: bool) -> Vec<f64> {
    // [edge, k] of either operand.
    let decoded = |q: &Quantized, along: bool| -> (Vec<f64>, usize, usize) {
        let (edges, depth) = if along { (q.rows, q.width) } else { (q.width, q.rows) };
        let at = |i: usize| if along { q.exact(i / depth, i % depth) } else { q.exact(i % depth, i / depth) };
        ((0..edges * depth).map(at).collect(), edges, depth)
    };
    let ((a, m, depth), (b, n, _)) = (decoded(a, a_along), decoded(b, b_along));
    let sum = |i: usize, j: usize| a[i * depth..][..depth].iter().zip(&b[j * depth..]).map(|(a, b)| a * b).sum();
    (0..m * n).map(|c| sum(c / n, c % n)).collect()
}
