/// h + m·x, `m(row, column)`.
pub fn residual_add(h: &[f64], x: &[f64], d: usize, m: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    h.iter().zip(x).enumerate().map(|(at, (h, x))| h + m(at / d, at % d) * x).collect()
}
