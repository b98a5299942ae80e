//! The next token from logits.

use crate::numerics::Philox;
use crate::{Error, Result};

/// Greedy at temperature 0, else a draw from the smallest set of tokens whose probability reaches `top_p`.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    temperature: f32,
    top_p: f32,
    seed: u64,
}

impl Sampler {
    pub fn new(temperature: f32, top_p: f32, seed: u64) -> Result<Sampler> {
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(Error::Usage(format!("temperature {temperature}: expected a finite number, 0 or more")));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(Error::Usage(format!("top-p {top_p}: expected a number above 0, at most 1")));
        }
        Ok(Sampler { temperature, top_p, seed })
    }

    /// The token after `position` tokens of sequence `sequence`: the draw depends on these and the seed alone.
    pub fn next(&self, logits: &[f32], sequence: usize, position: usize) -> u32 {
        if self.temperature == 0.0 {
            return argmax(logits);
        }
        let top = logits[argmax(logits) as usize];
        let mut candidates: Vec<(u32, f64)> = (logits.iter().enumerate())
            .map(|(id, z)| (id as u32, f64::from((z - top) / self.temperature).exp()))
            .filter(|(_, p)| *p > 0.0)
            .collect();
        candidates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let total: f64 = candidates.iter().map(|(_, p)| p).sum();
        let mut kept = 0.0;
        let count = 1 + candidates
            .iter()
            .take_while(|(_, p)| {
                kept += p;
                kept < f64::from(self.top_p) * total
            })
            .count();
        candidates.truncate(count);
        let total: f64 = candidates.iter().map(|(_, p)| p).sum();
        let mut left = Philox::new(self.seed, sequence as u64).uniform(position as u64) * total;
        for (id, p) in &candidates {
            left -= p;
            if left <= 0.0 {
                return *id;
            }
        }
        candidates.last().map_or_else(|| argmax(logits), |(id, _)| *id)
    }
}

/// The largest logit's index; the lowest among equals; NaN never wins.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, z) in logits.iter().enumerate() {
        if *z > logits[best] || logits[best].is_nan() {
            best = id;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_never_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[f32::NAN, -1.0, 2.0]), 2);
    }

    #[test]
    fn samples_follow_the_distribution_and_top_p_cuts_the_tail() {
        let logits = [0.0f32, 2f32.ln(), 4f32.ln(), -50.0]; // probabilities 1/7, 2/7, 4/7, 0
        let count = |top_p| {
            let sampler = Sampler::new(1.0, top_p, 3).unwrap();
            let mut counts = [0; 4];
            (0..7000).for_each(|i| counts[sampler.next(&logits, 0, i) as usize] += 1);
            counts
        };
        let all = count(1.0);
        assert!(
            (all[0] - 1000i32).abs() < 150 && (all[1] - 2000).abs() < 200 && (all[2] - 4000).abs() < 250,
            "{all:?}"
        );
        let cut = count(0.6);
        assert_eq!((cut[0], cut[3]), (0, 0));
        assert!(cut[1] > 1000 && cut[2] > 3000, "{cut:?}");
    }

    #[test]
    fn impossible_options_are_refused() {
        assert!(Sampler::new(-1.0, 1.0, 0).is_err());
        assert!(Sampler::new(f32::NAN, 1.0, 0).is_err());
        assert!(Sampler::new(1.0, 0.0, 0).is_err());
        assert!(Sampler::new(1.0, 1.5, 0).is_err());
    }
}
