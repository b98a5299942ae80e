//! Learning rate over steps.

use serde::{Deserialize, Serialize};

/// Linear warm-up to `peak`, then half a cosine down to `floor`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    pub peak: f32,
    pub floor: f32,
    pub warmup: u64,
    pub steps: u64,
}

impl Schedule {
    /// The rate of step `step`, counted from 0.
    pub fn at(&self, step: u64) -> f32 {
        if step < self.warmup {
            return self.peak * (step + 1) as f32 / self.warmup as f32;
        }
        let length = self.steps.saturating_sub(self.warmup).max(1);
        let progress = ((step - self.warmup) as f64 / length as f64).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        self.floor + (self.peak - self.floor) * cosine as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_to_the_peak_and_falls_to_the_floor() {
        let schedule = Schedule { peak: 1.0, floor: 0.1, warmup: 10, steps: 110 };
        assert!((schedule.at(0) - 0.1).abs() < 1e-6);
        assert!((schedule.at(9) - 1.0).abs() < 1e-6);
        assert!((schedule.at(10) - 1.0).abs() < 1e-6);
        assert!((schedule.at(60) - 0.55).abs() < 1e-6);
        assert!((schedule.at(110) - 0.1).abs() < 1e-6);
        assert!((schedule.at(500) - 0.1).abs() < 1e-6);
    }

    #[test]
    fn no_warmup_and_no_steps_are_not_divisions_by_zero() {
        let schedule = Schedule { peak: 1.0, floor: 0.1, warmup: 0, steps: 0 };
        assert!(schedule.at(0).is_finite() && schedule.at(1).is_finite());
    }
}
