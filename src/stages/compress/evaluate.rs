//! Evaluation: what compression cost in quality, before and after recovery.

use serde::{Deserialize, Serialize};

use super::Compression;
use crate::autograd::Tape;
use crate::data::tasks::{Split, TaskSource};
use crate::data::{Batch, DataConfig, Source, Tokenizer};
use crate::model::Lm;
use crate::ops::distill_loss::DistillOptions;
use crate::stages::evaluate::{Evaluation, evaluate_records, evaluate_tasks};
use crate::train::{Student, distillation};
use crate::{Error, Result, files};

const EVALUATE: &str = "evaluate/evaluate.json";

/// Rows of one forward pass.
const ROWS: usize = 4096;

/// `evaluate/evaluate.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evaluated {
    /// KL from the parent, nats per token, on the fixed held-out set.
    pub extracted_loss: f64,
    pub student_loss: f64,
    /// Valid tokens of that set.
    pub tokens: u64,
    /// `None` where neither the data nor the recipe have answers to score.
    pub parent: Option<Evaluation>,
    pub extracted: Option<Evaluation>,
    pub student: Option<Evaluation>,
}

/// Scores the parent, the student as cut out and the recovered student.
pub fn run(c: &Compression) -> Result<()> {
    let mut progress = c.progress("evaluate", 5);
    let (extracted, student) = (c.load("student")?, c.load("recovered")?);
    let batches = held_out(c)?;
    let (extracted_loss, tokens) = mean_loss(&c.parent, &extracted, &batches)?;
    progress.tick(1);
    let (student_loss, _) = mean_loss(&c.parent, &student, &batches)?;
    progress.tick(2);
    let mut scores = Vec::new();
    for (i, lm) in [&c.parent, &extracted, &student].into_iter().enumerate() {
        scores.push(score(c, lm)?);
        progress.tick(3 + i as u64);
    }
    let [parent, extracted, student] = [0, 1, 2].map(|i| scores[i].take());
    c.run.folder("evaluate")?;
    let evaluated = Evaluated { extracted_loss, student_loss, tokens, parent, extracted, student };
    files::write_json(&c.path(EVALUATE), &evaluated)
}

/// The built-in tasks' and the recipe's records' scores.
pub fn score(c: &Compression, lm: &Lm) -> Result<Option<Evaluation>> {
    let recipe = &c.recipe.evaluate;
    if let Some(records) = &recipe.records {
        let tokenizer = Tokenizer::of_model(&c.recipe.parent, None)?;
        return evaluate_records(lm, &tokenizer, records).map(Some);
    }
    match &c.recipe.data {
        DataConfig::Tasks(tasks) => evaluate_tasks(lm, tasks, recipe.seed, recipe.examples).map(Some),
        _ => Ok(None),
    }
}

/// The fixed set that losses are compared on; see [`EvaluateRecipe`](super::EvaluateRecipe).
pub fn held_out(c: &Compression) -> Result<Vec<Batch>> {
    let recipe = &c.recipe.evaluate;
    let source: Box<dyn Source> = match (&recipe.held_out, &c.recipe.data) {
        (Some(data), _) => data.source(c.parent.config.vocab_size)?,
        (None, DataConfig::Tasks(tasks)) => Box::new(TaskSource::new(tasks.clone(), Split::HeldOut)?),
        (None, _) => c.source(),
    };
    // Another order than any training's, where the data are the same.
    let seed = recipe.seed ^ (1 << 63);
    let together = (ROWS / recipe.length).clamp(1, recipe.sequences);
    let batch = |pass: usize| {
        let sequences = together.min(recipe.sequences - pass * together);
        source.batch(seed, pass as u64, sequences, recipe.length)
    };
    (0..recipe.sequences.div_ceil(together)).map(batch).collect()
}

/// KL from `parent` to `student` in nats, mean over the valid tokens, and their number.
pub fn mean_loss(parent: &Lm, student: &Lm, batches: &[Batch]) -> Result<(f64, u64)> {
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in batches {
        let tape = Tape::inference();
        let student = Student { lm: student, masks: None, recompute: false };
        let loss = distillation(&tape, parent, student, batch, &DistillOptions::default())?;
        let count = batch.valid_tokens() as u64;
        sum += f64::from(loss.value().item()) * count as f64;
        tokens += count;
    }
    if tokens == 0 {
        return Err(Error::Usage("evaluate: found no token to predict in the held-out set, expected some".into()));
    }
    Ok((sum / tokens as f64, tokens))
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Evaluated> {
    files::read_json(&c.path(EVALUATE), "an evaluation")
}
