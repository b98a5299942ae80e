/// t / √(Σt²/n + eps)·w per group of columns, t = y·silu(z); `n(row, group)`.
pub fn gated_group_norm(
    y: &[f64],
    z: &[f64],
    w: &[f64],
    groups: usize,
    eps: f64,
    n: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let (width, columns) = (w.len(), w.len() / groups);
    let mut out = vec![0.0; y.len()];
    for row in 0..y.len() / width {
        for group in 0..groups {
            let at = row * width + group * columns;
            let t: Vec<f64> = (at..at + columns).map(|i| y[i] * z[i] / (1.0 + (-z[i]).exp())).collect();
            let n = n(row, group);
            let squares: f64 = t.iter().map(|t| t * t).sum();
            let scale = if n > 0.0 { 1.0 / (squares / n + eps).sqrt() } else { 0.0 };
            for j in 0..columns {
                out[at + j] = t[j] * scale * w[group * columns + j];
            }
        }
    }
    out
}
