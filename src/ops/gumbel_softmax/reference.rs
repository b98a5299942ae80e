/// softmax((κ·z + g) / τ) per draw.
pub fn gumbel_softmax(logits: &[f64], noise: &[f64], kappa: f64, tau: f64) -> Vec<f64> {
    noise
        .chunks(logits.len())
        .flat_map(|noise| {
            let e: Vec<f64> = logits.iter().zip(noise).map(|(z, g)| ((kappa * z + g) / tau).exp()).collect();
            let sum: f64 = e.iter().sum();
            e.into_iter().map(move |e| e / sum)
        })
        .collect()
}
