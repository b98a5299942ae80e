use crate::tensor::Segments;

/// silu(Σ_k w[c, k]·x[t − K + 1 + k, c] + bias\[c\]) within each segment, `initial` [S, K−1, C] before it.
pub fn causal_conv1d(
    x: &[f64],
    weight: &[f64],
    bias: &[f64],
    initial: &[f64],
    (channels, kernel): (usize, usize),
    segments: &Segments,
) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for (segment, rows) in segments.iter().enumerate() {
        for row in rows.clone() {
            for c in 0..channels {
                let mut sum = bias.get(c).copied().unwrap_or(0.0);
                for k in 0..kernel {
                    let t = row as isize - rows.start as isize + k as isize - (kernel as isize - 1);
                    let before = (segment * (kernel - 1)) as isize + t + kernel as isize - 1;
                    let input = if t >= 0 {
                        x[(rows.start + t as usize) * channels + c]
                    } else {
                        initial.get(before as usize * channels + c).copied().unwrap_or(0.0)
                    };
                    sum += weight[c * kernel + k] * input;
                }
                y[row * channels + c] = sum / (1.0 + (-sum).exp());
            }
        }
    }
    y
}
