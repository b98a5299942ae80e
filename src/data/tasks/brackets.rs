//! Close the brackets that are still open, innermost first: `B([]{=` → `})`.

use serde::{Deserialize, Serialize};

use super::generator::{Generator, check_range, check_span, prompt};
use super::{Example, Task};
use crate::Result;
use crate::data::random::Random;

const OPEN: &[u8; 4] = b"([{<";
const CLOSE: &[u8; 4] = b")]}>";

/// The number of brackets shown, uniform between the two ends. Each opens or closes with equal probability, but opens
/// where none is open and closes at `max_depth`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Difficulty {
    pub weight: f64,
    /// Fewest brackets shown, 1 to `max_length`; one fewer where the last would have left none open.
    pub min_length: usize,
    /// Most brackets shown, 1 to 256. Longer is harder.
    pub max_length: usize,
    /// Most brackets open at once, 1 to 128. Deeper is harder.
    pub max_depth: usize,
    /// Kinds of bracket, 1 to 4. With one kind, the answer is only a number.
    pub kinds: usize,
}

impl Default for Difficulty {
    fn default() -> Self {
        Self { weight: 1.0, min_length: 8, max_length: 28, max_depth: 10, kinds: 4 }
    }
}

impl Generator for Difficulty {
    fn weight(&self) -> f64 {
        self.weight
    }

    fn check(&self) -> Result<()> {
        check_span("brackets", "length", (self.min_length, self.max_length), 1, 256)?;
        check_range("brackets.max_depth", self.max_depth, 1, 128)?;
        check_range("brackets.kinds", self.kinds, 1, OPEN.len())
    }

    fn longest_document(&self) -> usize {
        self.max_length + self.max_depth.min(self.max_length) + 4
    }

    fn draw(&self, random: &mut Random) -> Example {
        let length = random.between(self.min_length, self.max_length);
        let mut shown = Vec::with_capacity(length);
        let mut open: Vec<usize> = Vec::new();
        for _ in 0..length {
            let opens = open.is_empty() || (open.len() < self.max_depth && random.below(2) == 0);
            if opens {
                open.push(random.below(self.kinds));
            }
            match (opens, open.last()) {
                (true, Some(&kind)) => shown.push(OPEN[kind]),
                (false, Some(&kind)) => {
                    shown.push(CLOSE[kind]);
                    // The very last bracket stays open where nothing else is: an answer is never empty.
                    if shown.len() == length && open.len() == 1 {
                        shown.pop();
                    } else {
                        open.pop();
                    }
                }
                (_, None) => {}
            }
        }
        let answer = open.iter().rev().map(|&kind| CLOSE[kind]).collect();
        Example { prompt: prompt(Task::Brackets.tag(), &[&shown]), answer }
    }
}
