/// y[r, o] = Σ_i x[r, i]·w[o, i].
pub fn linear(x: &[f64], w: &[f64], inner: usize) -> Vec<f64> {
    let rows = x.len().checked_div(inner).unwrap_or(0);
    let out = w.len() / inner.max(1);
    (0..rows * out)
        .map(|at| {
            let (r, o) = (at / out, at % out);
            (0..inner).map(|i| x[r * inner + i] * w[o * inner + i]).sum()
        })
        .collect()
}
