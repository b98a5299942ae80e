/// x [R, d] / √(Σx²/n + eps) · w; `n(row)` is the denominator.
pub fn rms_norm(x: &[f64], w: &[f64], eps: f64, n: impl Fn(usize) -> f64) -> Vec<f64> {
    let d = w.len();
    let mut y = Vec::with_capacity(x.len());
    for (row, x) in x.chunks(d.max(1)).enumerate() {
        let n = n(row);
        let squares: f64 = x.iter().map(|x| x * x).sum();
        let scale = if n > 0.0 { 1.0 / (squares / n + eps).sqrt() } else { 0.0 };
        y.extend(x.iter().zip(w).map(|(x, w)| x * scale * w));
    }
    y
}
