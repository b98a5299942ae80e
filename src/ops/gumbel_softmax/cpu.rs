/// Softmax per draw, the largest entry subtracted first.
pub fn forward(logits: &[f32], noise: &[f32], kappa: f32, tau: f32, y: &mut [f32]) {
    let candidates = logits.len();
    for (y, noise) in y.chunks_exact_mut(candidates).zip(noise.chunks_exact(candidates)) {
        for ((y, z), g) in y.iter_mut().zip(logits).zip(noise) {
            *y = (kappa * z + g) / tau;
        }
        let largest = y.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        y.iter_mut().for_each(|y| *y = (*y - largest).exp());
        let sum: f32 = y.iter().sum();
        y.iter_mut().for_each(|y| *y /= sum);
    }
}

/// dz_c = κ/τ·Σ over draws of y_c·(dy_c − Σ_j y_j·dy_j).
pub fn backward(y: &[f32], dy: &[f32], candidates: usize, scale: f32) -> Vec<f32> {
    let mut dz = vec![0.0; candidates];
    for (y, dy) in y.chunks_exact(candidates).zip(dy.chunks_exact(candidates)) {
        let along: f32 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
        for ((dz, y), dy) in dz.iter_mut().zip(y).zip(dy) {
            *dz += scale * y * (dy - along);
        }
    }
    dz
}
