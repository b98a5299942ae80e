use super::NOT_COUNTED;

/// The mean of −ln softmax(hidden·headᵀ)\[target\] over the counted rows.
pub fn cross_entropy(hidden: &[f64], head: &[f64], targets: &[u32], d: usize) -> f64 {
    let counted: Vec<usize> = (0..targets.len()).filter(|row| targets[*row] != NOT_COUNTED).collect();
    let nats = |row: &usize| {
        let hidden = &hidden[row * d..][..d];
        let logits: Vec<f64> = head.chunks(d).map(|w| w.iter().zip(hidden).map(|(w, h)| w * h).sum()).collect();
        log_sum_exp(&logits) - logits[targets[*row] as usize]
    };
    if counted.is_empty() { 0.0 } else { counted.iter().map(nats).sum::<f64>() / counted.len() as f64 }
}

pub fn log_sum_exp(logits: &[f64]) -> f64 {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + logits.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
}
