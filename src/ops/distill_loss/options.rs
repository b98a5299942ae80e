use std::str::FromStr;

use crate::{Error, Result};

/// What the loss measures between the teacher's and the student's distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Divergence {
    /// KL(teacher ‖ student), `forward_kl`.
    #[default]
    ForwardKl,
}

impl FromStr for Divergence {
    type Err = Error;

    /// An objective that is not implemented is an error, never another objective.
    fn from_str(text: &str) -> Result<Divergence> {
        match text {
            "forward_kl" => Ok(Divergence::ForwardKl),
            other => Err(Error::Usage(format!("divergence {other:?}: found {other:?}, expected \"forward_kl\""))),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistillOptions {
    /// Divides both logits; finite and above 0.
    pub temperature: f32,
    pub divergence: Divergence,
    /// Tokens of the vocabulary whose logits exist at a time; at least 1.
    pub vocab_chunk: usize,
}

impl Default for DistillOptions {
    fn default() -> Self {
        DistillOptions { temperature: 1.0, divergence: Divergence::ForwardKl, vocab_chunk: 8192 }
    }
}

impl DistillOptions {
    /// Refuses values out of range.
    pub fn check(&self) -> Result<()> {
        let fault = |argument, found: &dyn std::fmt::Debug, expected: &str| {
            Err(Error::contract("distill_loss", argument, found, expected))
        };
        // Its reciprocal scales the logits, so that must be finite as well.
        if !(self.temperature.is_finite() && self.temperature > 0.0 && self.temperature.recip().is_finite()) {
            return fault("temperature", &self.temperature, "a finite number above 0");
        }
        if self.vocab_chunk == 0 {
            return fault("vocab_chunk", &self.vocab_chunk, "at least 1 token");
        }
        match self.divergence {
            Divergence::ForwardKl => Ok(()),
        }
    }
}
