//! How sharp draws are over the steps of a search.

use serde::{Deserialize, Serialize};

/// κ, which scales the logits against the noise, rises linearly; τ, the temperature of a draw, falls geometrically
/// (docs/method.md, "Router and masks").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Annealing {
    /// κ of the first and the last step.
    pub kappa: [f32; 2],
    /// τ of the first and the last step.
    pub tau: [f32; 2],
    /// From the first to the last step; later ones keep the last values.
    pub steps: u64,
}

impl Default for Annealing {
    fn default() -> Self {
        Annealing { kappa: [1.0, 10.0], tau: [1.0, 0.05], steps: 250 }
    }
}

impl Annealing {
    /// The part of the way that is behind at `step`, counted from 0: 0 at the first, 1 at the last.
    fn progress(&self, step: u64) -> f64 {
        let length = self.steps.saturating_sub(1).max(1);
        step.min(length) as f64 / length as f64
    }

    pub fn kappa(&self, step: u64) -> f32 {
        let [from, to] = self.kappa.map(f64::from);
        let progress = self.progress(step);
        ((1.0 - progress) * from + progress * to) as f32
    }

    pub fn tau(&self, step: u64) -> f32 {
        let [from, to] = self.tau.map(f64::from);
        let progress = self.progress(step);
        (from.powf(1.0 - progress) * to.powf(progress)) as f32
    }
}
