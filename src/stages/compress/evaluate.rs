//! Evaluation: what compression cost in quality, before and after recovery.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Compression, EvaluateRecipe, Recipe};
use crate::autograd::Tape;
use crate::data::{Batch, DataConfig, Source, passes};
use crate::model::Lm;
use crate::ops::distill_loss::DistillOptions;
use crate::stages::evaluate::{Evaluation, evaluate_records, evaluate_tasks};
use crate::train::{Student, distillation};
use crate::{Error, Result, files};

const EVALUATE: &str = "evaluate/evaluate.json";

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
    let (batches, options) = (held_out(c)?, DistillOptions::default());
    let placed = c.parent.at_current_place()?;
    let parent_lm = placed.as_ref().unwrap_or(&c.parent);
    let parent = score(c, parent_lm)?;
    progress.tick(1);
    // One after the other: on a GPU there is room for two models.
    let mut done = 1;
    let mut of = |folder| -> Result<_> {
        let lm = c.load(folder)?;
        let lm = lm.at_current_place()?.unwrap_or(lm);
        let loss = mean_loss(parent_lm, &lm, &batches, &options)?;
        progress.tick(done + 1);
        let scored = score(c, &lm)?;
        done += 2;
        progress.tick(done);
        Ok((loss, scored))
    };
    let ((extracted_loss, tokens), extracted) = of("student")?;
    let ((student_loss, _), student) = of("recovered")?;
    c.run.folder("evaluate")?;
    let evaluated = Evaluated { extracted_loss, student_loss, tokens, parent, extracted, student };
    files::write_json(&c.path(EVALUATE), &evaluated)
}

/// The built-in tasks' and the recipe's records' scores.
pub fn score(c: &Compression, lm: &Lm) -> Result<Option<Evaluation>> {
    let recipe = &c.recipe.evaluate;
    if let Some(records) = &c.records {
        return evaluate_records(lm, records).map(Some);
    }
    match &c.recipe.data {
        DataConfig::Tasks(tasks) => evaluate_tasks(lm, tasks, recipe.seed, recipe.examples).map(Some),
        _ => Ok(None),
    }
}

/// The fixed set that losses are compared on; see [`EvaluateRecipe`].
pub fn held_out(c: &Compression) -> Result<Vec<Batch>> {
    batches(&c.recipe.evaluate, &c.held_out).collect()
}

/// Refuses a held-out set in which no token can be predicted.
pub fn check_held_out(recipe: &Recipe, recipe_path: &Path, source: &dyn Source) -> Result<()> {
    for batch in batches(&recipe.evaluate, source) {
        if batch?.valid_tokens() > 0 {
            return Ok(());
        }
    }
    let found = format!("{}: no token to predict in the held-out set", recipe.evaluate.length);
    Err(Error::input(recipe_path, "evaluate.length", found, "longer sequences"))
}

/// Sequences of the held-out set: what the recipe asks for, as far as the source has them without repeating itself.
fn sequences_of(recipe: &EvaluateRecipe, source: &dyn Source) -> usize {
    let most = source.tokens().map_or(usize::MAX, |tokens| tokens / recipe.length);
    recipe.sequences.min(most).max(1)
}

/// Batches of whole sequences.
fn batches<'s>(recipe: &EvaluateRecipe, source: &'s dyn Source) -> impl Iterator<Item = Result<Batch>> + use<'s> {
    // Another order than any training's, where the data are the same.
    passes(source, recipe.seed ^ (1 << 63), sequences_of(recipe, source), recipe.length)
}

/// KL from `parent` to `student` in nats, mean over the valid tokens, and their number; computed where jobs compute now.
pub fn mean_loss(parent: &Lm, student: &Lm, batches: &[Batch], options: &DistillOptions) -> Result<(f64, u64)> {
    let places = [parent.at_current_place()?, student.at_current_place()?];
    let [parent, student] = [places[0].as_ref().unwrap_or(parent), places[1].as_ref().unwrap_or(student)];
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in batches {
        let tape = Tape::inference();
        let student = Student { lm: student, masks: None, recompute: false, products: None };
        let loss = distillation(&tape, parent, student, batch, options)?.loss;
        let count = batch.valid_tokens() as u64;
        sum += f64::from(loss.value().read_item()?) * count as f64;
        tokens += count;
    }
    Ok((sum / tokens as f64, tokens))
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Evaluated> {
    files::read_json(&c.path(EVALUATE), "an evaluation")
}
