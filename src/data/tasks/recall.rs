//! Look up the values of keys among pairs of key and value: `Ka3f7c1?fa=` → `73`.

use serde::{Deserialize, Serialize};

use super::generator::{Generator, LETTERS, check_range, check_span, prompt};
use super::{Example, Task};
use crate::Result;
use crate::data::random::Random;

/// The number of pairs, uniform between the two ends; keys are distinct letters, values digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Difficulty {
    pub weight: f64,
    /// Fewest pairs, 1 to `max_pairs`.
    pub min_pairs: usize,
    /// Most pairs, 1 to `keys`. More is harder.
    pub max_pairs: usize,
    /// Letters that keys are drawn from, 1 to 26.
    pub keys: usize,
    /// Digits that values are drawn from, 1 to 10. More leave less to a lucky guess.
    pub values: usize,
    /// Keys asked for, 1 to `min_pairs`; all must be answered. More is harder.
    pub queries: usize,
}

impl Default for Difficulty {
    fn default() -> Self {
        Self { weight: 1.25, min_pairs: 4, max_pairs: 13, keys: 26, values: 10, queries: 3 }
    }
}

impl Generator for Difficulty {
    fn weight(&self) -> f64 {
        self.weight
    }

    fn check(&self) -> Result<()> {
        check_range("recall.keys", self.keys, 1, LETTERS.len())?;
        check_span("recall", "pairs", (self.min_pairs, self.max_pairs), 1, self.keys)?;
        check_range("recall.values", self.values, 1, 10)?;
        check_range("recall.queries", self.queries, 1, self.min_pairs)
    }

    fn longest_document(&self) -> usize {
        2 * self.max_pairs + 2 * self.queries + 5
    }

    fn draw(&self, random: &mut Random) -> Example {
        let count = random.between(self.min_pairs, self.max_pairs);
        let mut keys = LETTERS[..self.keys].to_vec();
        random.shuffle(&mut keys);
        let mut pairs: Vec<[u8; 2]> =
            keys[..count].iter().map(|&key| [key, b'0' + random.below(self.values) as u8]).collect();
        let listed = pairs.concat();
        random.shuffle(&mut pairs);
        let (query, answer): (Vec<u8>, Vec<u8>) =
            pairs[..self.queries].iter().map(|&[key, value]| (key, value)).unzip();
        Example { prompt: prompt(Task::Recall.tag(), &[&listed, b"?", &query]), answer }
    }
}
