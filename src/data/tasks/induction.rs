//! Continue a repeated pattern: `Pabcdab=` → `cdabcd`.

use serde::{Deserialize, Serialize};

use super::generator::{Generator, LETTERS, check_range, check_span, prompt};
use super::{Example, Task};
use crate::Result;
use crate::data::random::Random;

/// The pattern's period, uniform between the two ends. It is shown once whole and once in part (at least two letters of
/// it), so the continuation is found by looking for what followed the last letters before (induction).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Difficulty {
    pub weight: f64,
    /// Shortest period, 1 to `max_period`.
    pub min_period: usize,
    /// Longest period, 1 to 128. Longer is harder.
    pub max_period: usize,
    /// Letters in use, 1 to 26. With few, the same letters occur at several places of one pattern.
    pub alphabet: usize,
    /// Letters asked for, 1 to 128. More is harder.
    pub continuation: usize,
}

impl Default for Difficulty {
    fn default() -> Self {
        Self { weight: 1.0, min_period: 8, max_period: 24, alphabet: 6, continuation: 12 }
    }
}

impl Generator for Difficulty {
    fn weight(&self) -> f64 {
        self.weight
    }

    fn check(&self) -> Result<()> {
        check_span("induction", "period", (self.min_period, self.max_period), 1, 128)?;
        check_range("induction.alphabet", self.alphabet, 1, LETTERS.len())?;
        check_range("induction.continuation", self.continuation, 1, 128)
    }

    fn longest_document(&self) -> usize {
        2 * self.max_period + self.continuation + 4
    }

    fn draw(&self, random: &mut Random) -> Example {
        let period = random.between(self.min_period, self.max_period);
        let mut letters = random.symbols(&LETTERS[..self.alphabet], period);
        let repeated = random.between(period.min(2), period);
        letters.extend_from_within(..repeated);
        let prompt = prompt(Task::Induction.tag(), &[&letters]);
        // By chance, what is shown may have a shorter period than was drawn: then that one is the pattern.
        let period = smallest_period(&letters);
        let answer = (letters.len()..letters.len() + self.continuation).map(|at| letters[at % period]).collect();
        Example { prompt, answer }
    }
}

/// The least p ≥ 1 with `letters[i] == letters[i + p]` wherever both exist.
fn smallest_period(letters: &[u8]) -> usize {
    (1..letters.len()).find(|&p| letters[p..] == letters[..letters.len() - p]).unwrap_or(letters.len())
}
