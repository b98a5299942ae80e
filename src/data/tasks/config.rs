//! Which tasks, at which difficulty, in which proportions.

use serde::{Deserialize, Serialize};

use super::generator::Generator;
use super::{Example, Split, Task};
use super::{brackets, copy, counting, induction, modular_addition, recall, reverse, sort};
use crate::data::random::{Purpose, Random};
use crate::data::source::Boundaries;
use crate::{Error, Result};

/// A task whose every prompt lies in the other split is found out after this many draws. Of n equally likely prompts all
/// are in one split with probability (7/8)^n, so only spaces of some dozens can be empty, and of those each prompt is met.
const MAX_DRAWS: usize = 4096;

/// The tasks' difficulties and weights. Each key has a default; a task of weight 0 is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TasksConfig {
    pub documents: Boundaries,
    pub copy: copy::Difficulty,
    pub reverse: reverse::Difficulty,
    pub sort: sort::Difficulty,
    pub modular_addition: modular_addition::Difficulty,
    pub recall: recall::Difficulty,
    pub brackets: brackets::Difficulty,
    pub counting: counting::Difficulty,
    pub induction: induction::Difficulty,
}

impl TasksConfig {
    pub(in crate::data) fn generator(&self, task: Task) -> &dyn Generator {
        match task {
            Task::Copy => &self.copy,
            Task::Reverse => &self.reverse,
            Task::Sort => &self.sort,
            Task::ModularAddition => &self.modular_addition,
            Task::Recall => &self.recall,
            Task::Brackets => &self.brackets,
            Task::Counting => &self.counting,
            Task::Induction => &self.induction,
        }
    }

    /// The tasks of weight above 0.
    pub fn active(&self) -> impl Iterator<Item = Task> + '_ {
        Task::ALL.into_iter().filter(|&task| self.generator(task).weight() > 0.0)
    }

    /// Tokens of the longest document that an active task can make.
    pub fn longest_document(&self) -> usize {
        self.active().map(|task| self.generator(task).longest_document()).max().unwrap_or(0)
    }

    /// # Errors
    /// [`Error::Usage`] naming the key, the value found and the range expected.
    pub fn check(&self) -> Result<()> {
        for task in Task::ALL {
            let weight = self.generator(task).weight();
            if !weight.is_finite() || weight < 0.0 {
                let name = task.name();
                return Err(Error::Usage(format!(
                    "{name}.weight: found {weight}, expected a finite number, 0 or above"
                )));
            }
        }
        for task in self.active() {
            self.generator(task).check()?;
        }
        if self.active().next().is_none() {
            return Err(Error::Usage("found only weights of 0, expected one above 0".into()));
        }
        Ok(())
    }

    /// Example `index` of a task's split; it depends on the arguments and the task's difficulty alone.
    ///
    /// # Errors
    /// [`Error::Usage`] where the difficulty is out of range, or leaves the split without prompts.
    pub fn example(&self, task: Task, seed: u64, split: Split, index: u64) -> Result<Example> {
        let generator = self.generator(task);
        generator.check()?;
        let mut random = Random::new(seed, Purpose::Example, [task as u64 * 2 + split as u64, index]);
        for _ in 0..MAX_DRAWS {
            let example = generator.draw(&mut random);
            if Split::of(&example.prompt) == split {
                return Ok(example);
            }
        }
        let (name, split) = (task.name(), split.name());
        Err(Error::Usage(format!(
            "{name}: found no {split} prompt in {MAX_DRAWS} draws, expected a difficulty with more distinct prompts"
        )))
    }
}
