//! Put symbols in ascending order, repeats included: `S5207=` → `0257`.

use serde::{Deserialize, Serialize};

use super::generator::{Generator, SYMBOLS, check_range, check_span, prompt};
use super::{Example, Task};
use crate::Result;
use crate::data::random::Random;

/// The number of symbols, uniform between the two ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Difficulty {
    pub weight: f64,
    /// Fewest symbols, 1 to `max_length`.
    pub min_length: usize,
    /// Most symbols, 1 to 256. Longer is harder.
    pub max_length: usize,
    /// Symbols in use, 1 to 36: digits, then letters. More mean fewer repeats and a finer order.
    pub alphabet: usize,
}

impl Default for Difficulty {
    fn default() -> Self {
        Self { weight: 1.0, min_length: 10, max_length: 24, alphabet: 36 }
    }
}

impl Generator for Difficulty {
    fn weight(&self) -> f64 {
        self.weight
    }

    fn check(&self) -> Result<()> {
        check_span("sort", "length", (self.min_length, self.max_length), 1, 256)?;
        check_range("sort.alphabet", self.alphabet, 1, SYMBOLS.len())
    }

    fn longest_document(&self) -> usize {
        2 * self.max_length + 4
    }

    fn draw(&self, random: &mut Random) -> Example {
        let length = random.between(self.min_length, self.max_length);
        let symbols = random.symbols(&SYMBOLS[..self.alphabet], length);
        let prompt = prompt(Task::Sort.tag(), &[&symbols]);
        let mut answer = symbols;
        answer.sort_unstable();
        Example { prompt, answer }
    }
}
