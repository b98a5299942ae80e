/// out\[r\] = Σ_k w[r, k]·m(r, e)·y[row of (r, k)], rows of y sorted by expert; experts of u32::MAX are dropped.
pub fn moe_combine(
    y: &[f64],
    w: &[f64],
    width: usize,
    experts: &[u32],
    top_k: usize,
    m: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let mut order: Vec<usize> = (0..experts.len()).filter(|pair| experts[*pair] != u32::MAX).collect();
    order.sort_by_key(|pair| experts[*pair]); // stable: tokens in order within an expert
    let mut out = vec![0.0; experts.len() / top_k * width];
    for (row, pair) in order.into_iter().enumerate() {
        let token = pair / top_k;
        for j in 0..width {
            out[token * width + j] += w[pair] * m(token, experts[pair] as usize) * y[row * width + j];
        }
    }
    out
}
