//! How long the rest of a study takes.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use indicatif::HumanDuration;

use super::unit::Arm;
use crate::stages::compress::Recipe;
use crate::stages::training::Training;

/// Estimates from the units that are done.
pub struct Clock<'r> {
    recipe: &'r Recipe,
    quiet: bool,
    /// Per arm: seconds and units.
    done: BTreeMap<Arm, (f64, f64)>,
}

impl<'r> Clock<'r> {
    pub fn new(recipe: &'r Recipe, quiet: bool) -> Clock<'r> {
        Clock { recipe, quiet, done: BTreeMap::new() }
    }

    pub fn done(&mut self, arm: Arm, seconds: f64) {
        let (sum, units) = self.done.entry(arm).or_default();
        *sum += seconds;
        *units += 1.0;
    }

    /// A line on standard error before unit `at` of `all` (from 1); `left` are the arms of it and of all after it.
    pub fn show(&self, at: usize, all: usize, what: &str, left: impl Iterator<Item = Arm>) {
        if self.quiet {
            return;
        }
        let left = left.map(|arm| self.seconds(arm)).sum::<Option<f64>>();
        let left = left.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        let left = left.map_or_else(String::new, |left| format!("  {} left", HumanDuration(left)));
        // Where standard error is closed nobody reads it, and the work goes on.
        let _ = writeln!(std::io::stderr(), "study {at}/{all}: {what}{left}");
    }

    /// The mean of the arm's units; for an arm without one, by the tokens it trains on at most. `None` before the first unit.
    fn seconds(&self, arm: Arm) -> Option<f64> {
        if let Some((sum, units)) = self.done.get(&arm) {
            return Some(sum / units);
        }
        let seconds: f64 = self.done.values().map(|(sum, _)| sum).sum();
        let tokens: f64 = self.done.iter().map(|(arm, (_, units))| units * self.tokens(*arm)).sum();
        (tokens > 0.0).then(|| seconds / tokens * self.tokens(arm))
    }

    fn tokens(&self, arm: Arm) -> f64 {
        let of = |t: &Training| t.steps as f64 * t.sequences as f64 * t.length as f64;
        let chooses = match arm {
            Arm::Random | Arm::Uniform => 0.0,
            Arm::Minitron => {
                let minitron = &self.recipe.minitron;
                minitron.most as f64 * of(&minitron.screening(&self.recipe.recover).training)
            }
            Arm::Search | Arm::RouterInit | Arm::ScoreMasking => of(&self.recipe.search.training),
        };
        of(&self.recipe.recover.training) + chooses
    }
}
