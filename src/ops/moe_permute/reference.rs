/// Rows of x [R, L] in the order: expert by expert, tokens in order, `experts` [R, K] (u32::MAX: dropped).
pub fn moe_permute(x: &[f64], width: usize, experts: &[u32], top_k: usize, count: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for e in 0..count as u32 {
        for (pair, _) in experts.iter().enumerate().filter(|(_, of)| **of == e) {
            y.extend_from_slice(&x[pair / top_k * width..][..width]);
        }
    }
    y
}
