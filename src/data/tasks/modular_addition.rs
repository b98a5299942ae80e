//! Add numbers modulo a fixed modulus: `M58+71=` → `32` (mod 97). Numbers are decimal, padded with zeros to one width.

use serde::{Deserialize, Serialize};

use super::generator::{Generator, check_range, prompt};
use super::{Example, Task};
use crate::Result;
use crate::data::random::Random;

/// There are `modulus`^`terms` prompts: with few of them a model learns a table, with many it must learn the sum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Difficulty {
    pub weight: f64,
    /// 1 to 1000. Larger is harder; the prompt does not state it.
    pub modulus: usize,
    /// Numbers added, 2 to 8. More is harder.
    pub terms: usize,
}

impl Default for Difficulty {
    fn default() -> Self {
        Self { weight: 1.1, modulus: 101, terms: 2 }
    }
}

impl Difficulty {
    /// Digits of the largest residue.
    fn width(&self) -> usize {
        (self.modulus - 1).to_string().len()
    }
}

impl Generator for Difficulty {
    fn weight(&self) -> f64 {
        self.weight
    }

    fn check(&self) -> Result<()> {
        check_range("modular_addition.modulus", self.modulus, 1, 1000)?;
        check_range("modular_addition.terms", self.terms, 2, 8)
    }

    fn longest_document(&self) -> usize {
        // BOS, tag, separator and EOS, then the plus signs, then the numbers and their sum.
        4 + (self.terms - 1) + (self.terms + 1) * self.width()
    }

    fn draw(&self, random: &mut Random) -> Example {
        let width = self.width();
        let terms: Vec<usize> = (0..self.terms).map(|_| random.below(self.modulus)).collect();
        let sum = terms.iter().sum::<usize>() % self.modulus;
        let terms: Vec<String> = terms.iter().map(|term| format!("{term:0width$}")).collect();
        let prompt = prompt(Task::ModularAddition.tag(), &[terms.join("+").as_bytes()]);
        Example { prompt, answer: format!("{sum:0width$}").into_bytes() }
    }
}
