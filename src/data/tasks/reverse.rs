//! Repeat a sequence of letters backwards: `Rqzae=` → `eazq`.

use serde::{Deserialize, Serialize};

use super::generator::{Generator, LETTERS, check_range, check_span, prompt};
use super::{Example, Task};
use crate::Result;
use crate::data::random::Random;

/// The length of the sequence, uniform between the two ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Difficulty {
    pub weight: f64,
    /// Fewest letters, 1 to `max_length`.
    pub min_length: usize,
    /// Most letters, 1 to 256. Longer is harder.
    pub max_length: usize,
    /// Letters in use, 1 to 26. Fewer make repeats, which confuse look-up by content.
    pub alphabet: usize,
}

impl Default for Difficulty {
    fn default() -> Self {
        Self { weight: 1.0, min_length: 8, max_length: 22, alphabet: 26 }
    }
}

impl Generator for Difficulty {
    fn weight(&self) -> f64 {
        self.weight
    }

    fn check(&self) -> Result<()> {
        check_span("reverse", "length", (self.min_length, self.max_length), 1, 256)?;
        check_range("reverse.alphabet", self.alphabet, 1, LETTERS.len())
    }

    fn longest_document(&self) -> usize {
        2 * self.max_length + 4
    }

    fn draw(&self, random: &mut Random) -> Example {
        let length = random.between(self.min_length, self.max_length);
        let symbols = random.symbols(&LETTERS[..self.alphabet], length);
        let prompt = prompt(Task::Reverse.tag(), &[&symbols]);
        let answer = symbols.iter().rev().copied().collect();
        Example { prompt, answer }
    }
}
