/// keep[n, c]: the sum of the candidates from c on.
pub fn mask_keep(y: &[f64], width: usize) -> Vec<f64> {
    (0..y.len()).map(|at| y[at..at - at % width + width].iter().sum()).collect()
}
