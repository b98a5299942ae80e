//! Count one letter in a sequence: `Nb:abbca=` → `2`.

use serde::{Deserialize, Serialize};

use super::generator::{Generator, LETTERS, check_range, check_span, prompt};
use super::{Example, Task};
use crate::Result;
use crate::data::random::Random;

/// The length of the sequence, uniform between the two ends. The count is uniform from 0 to the length, so that no guess
/// is often right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Difficulty {
    pub weight: f64,
    /// Fewest letters, 1 to `max_length`.
    pub min_length: usize,
    /// Most letters, 1 to 256. Longer is harder.
    pub max_length: usize,
    /// Letters in use, 1 to 26.
    pub alphabet: usize,
}

impl Default for Difficulty {
    fn default() -> Self {
        Self { weight: 1.45, min_length: 8, max_length: 32, alphabet: 4 }
    }
}

impl Generator for Difficulty {
    fn weight(&self) -> f64 {
        self.weight
    }

    fn check(&self) -> Result<()> {
        check_span("counting", "length", (self.min_length, self.max_length), 1, 256)?;
        check_range("counting.alphabet", self.alphabet, 1, LETTERS.len())
    }

    fn longest_document(&self) -> usize {
        self.max_length + self.max_length.to_string().len() + 6
    }

    fn draw(&self, random: &mut Random) -> Example {
        let length = random.between(self.min_length, self.max_length);
        let mut others = LETTERS[..self.alphabet].to_vec();
        let asked = others.swap_remove(random.below(self.alphabet));
        let count = if others.is_empty() { length } else { random.between(0, length) };
        let mut letters = vec![asked; count];
        if !others.is_empty() {
            letters.extend(random.symbols(&others, length - count));
        }
        random.shuffle(&mut letters);
        let prompt = prompt(Task::Counting.tag(), &[&[asked], b":", &letters]);
        Example { prompt, answer: count.to_string().into_bytes() }
    }
}
