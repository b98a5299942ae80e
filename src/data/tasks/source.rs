//! Rows of task documents.

use super::{Split, Task, TasksConfig};
use crate::Result;
use crate::data::batch::IGNORE;
use crate::data::random::{Purpose, Random};
use crate::data::source::{Boundaries, Place, Row, Source};
use crate::data::tokenizer::{BOS, EOS};

/// Documents one after another until a row is full; the last one is cut. Each document's task is drawn by the weights.
///
/// Targets are valid on the answer and EOS only: prompts are noise that nothing can predict. A row depends on
/// (seed, step, row) alone.
pub struct TaskSource {
    config: TasksConfig,
    split: Split,
    /// Active tasks with the running sum of their weights.
    cumulative: Vec<(Task, f64)>,
}

impl TaskSource {
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) where a value is out of range or a task has no prompt in `split`.
    pub fn new(config: TasksConfig, split: Split) -> Result<Self> {
        config.check()?;
        let mut sum = 0.0;
        let mut cumulative = Vec::new();
        for task in config.active() {
            config.example(task, 0, split, 0)?;
            sum += config.generator(task).weight();
            cumulative.push((task, sum));
        }
        Ok(Self { config, split, cumulative })
    }

    fn draw_task(&self, random: &mut Random) -> Task {
        let last = self.cumulative.len() - 1;
        let point = random.unit() * self.cumulative[last].1;
        let chosen = self.cumulative.partition_point(|&(_, sum)| sum <= point);
        // Rounding may put the point on the last sum itself.
        self.cumulative[chosen.min(last)].0
    }
}

impl Source for TaskSource {
    fn fill(&self, place: Place, row: Row<'_>) -> Result<()> {
        let mut random = Random::new(place.seed, Purpose::Sequence, [place.step, place.row as u64]);
        let length = row.tokens.len();
        row.targets.fill(IGNORE);
        let mut at = 0;
        while at < length {
            let task = self.draw_task(&mut random);
            let example = self.config.example(task, place.seed, self.split, random.bits())?;
            if self.config.documents == Boundaries::Apart {
                row.starts.push(at);
            }
            let answer_from = at + 1 + example.prompt.len();
            let bytes = example.prompt.iter().chain(&example.answer).map(|&byte| u32::from(byte));
            for token in std::iter::once(BOS).chain(bytes).chain([EOS]).take(length - at) {
                row.tokens[at] = token;
                if at >= answer_from {
                    row.targets[at - 1] = token;
                }
                at += 1;
            }
        }
        Ok(())
    }
}
