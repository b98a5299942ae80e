/// keep[n, c] = Σ_{c' ≥ c} y[n, c']. A few numbers per gate: in f64, so that a whole row adds up to 1 in f32.
pub fn suffix_sums(y: &[f32], width: usize, keep: &mut [f32]) {
    for (keep, y) in keep.chunks_exact_mut(width.max(1)).zip(y.chunks_exact(width.max(1))) {
        let mut sum = 0.0f64;
        for (keep, y) in keep.iter_mut().zip(y).rev() {
            sum += f64::from(*y);
            *keep = sum as f32;
        }
    }
}

/// dy[n, c] = Σ_{i ≤ c} dkeep[n, i].
pub fn prefix_sums(dkeep: &[f32], width: usize, dy: &mut [f32]) {
    for (dy, dkeep) in dy.chunks_exact_mut(width.max(1)).zip(dkeep.chunks_exact(width.max(1))) {
        let mut sum = 0.0f64;
        for (dy, dkeep) in dy.iter_mut().zip(dkeep) {
            sum += f64::from(*dkeep);
            *dy = sum as f32;
        }
    }
}
