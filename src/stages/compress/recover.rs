//! The recovery stage: the extracted student learns the parent's token distribution.

use serde::{Deserialize, Serialize};

use super::{Compression, RecoverRecipe, card};
use crate::model::Lm;
use crate::stages::recover::Recover;
use crate::train::train;
use crate::{Result, files};

const RECOVER: &str = "recover/recover.json";

/// `recover/recover.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovered {
    pub steps: u64,
    pub tokens: u64,
    /// KL from parent to student, mean over the last steps, at most 25, in nats per token.
    pub loss: f64,
}

/// Trains in `recover/` and writes `recovered/`.
pub fn run(c: &Compression) -> Result<()> {
    let (student, recovered) = recover(c, "recover", &c.recipe.recover, c.load("student")?, "recover")?;
    c.save("recovered", &student)?;
    files::write_json(&c.path(RECOVER), &recovered)?;
    card::write(c, "recovered", None)
}

/// Recovers a student in `folder` of the run directory; `what` names the work to whoever waits for it.
pub fn recover(
    c: &Compression,
    what: &str,
    recipe: &RecoverRecipe,
    student: Lm,
    folder: &str,
) -> Result<(Lm, Recovered)> {
    let (options, recompute) = (recipe.distill(), recipe.training.recompute);
    let mut job = Recover::new(student, &c.parent, options, recompute);
    let mut progress = c.progress(what, recipe.training.steps);
    let summary =
        train(&mut job, c.source(), &recipe.training.options("recover.training"), &c.run, folder, &mut progress)
            .map_err(|error| error.within(&c.recipe_path))?;
    let recovered = Recovered { steps: summary.steps, tokens: summary.tokens, loss: summary.loss };
    Ok((job.student, recovered))
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Recovered> {
    files::read_json(&c.path(RECOVER), "a recovery's end")
}
