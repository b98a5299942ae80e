/// y[r, j] = table[ids\[r\], j]·m(r, j).
pub fn embedding(ids: &[u32], table: &[f64], d: usize, m: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut y = Vec::with_capacity(ids.len() * d);
    for (row, id) in ids.iter().enumerate() {
        y.extend((0..d).map(|j| table[*id as usize * d + j] * m(row, j)));
    }
    y
}
