use crate::ops::cross_entropy::reference::log_sum_exp;

/// hidden [R, d], weight [V, d] of one model.
pub struct Logits<'a> {
    pub hidden: &'a [f64],
    pub weight: &'a [f64],
    pub d: usize,
}

impl Logits<'_> {
    fn log_probs(&self, row: usize, temperature: f64) -> Vec<f64> {
        let hidden = &self.hidden[row * self.d..][..self.d];
        let dot = |w: &[f64]| w.iter().zip(hidden).map(|(w, h)| w * h).sum::<f64>() / temperature;
        let logits: Vec<f64> = self.weight.chunks(self.d).map(dot).collect();
        let total = log_sum_exp(&logits);
        logits.iter().map(|x| x - total).collect()
    }
}

/// The mean over valid rows of Σ p_t·(ln p_t − ln p_s).
pub fn distill_loss(student: Logits, teacher: Logits, valid: &[bool], temperature: f64) -> f64 {
    let mut total = 0.0;
    for row in (0..valid.len()).filter(|row| valid[*row]) {
        let pairs = teacher.log_probs(row, temperature).into_iter().zip(student.log_probs(row, temperature));
        total += pairs.map(|(t, s)| if t.exp() > 0.0 { t.exp() * (t - s) } else { 0.0 }).sum::<f64>();
    }
    total / valid.iter().filter(|v| **v).count().max(1) as f64
}
