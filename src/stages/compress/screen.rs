//! Screening, in place of a search: which of the uniform architectures within the limits is worth recovering (Minitron++;
//! docs/method.md, "Baseline").
//!
//! Every candidate is distilled for a few steps on the same batches; the mean loss of the last of them is its score. Where
//! there are many, the loss on the first batch before any training says which are distilled.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::evaluate::mean_loss;
use super::profile::Profile;
use super::{Compression, RecoverRecipe, profile, recover};
use crate::baseline::{self, Reach, Uniform};
use crate::cost::Resource;
use crate::device::ComputedOn;
use crate::model::Lm;
use crate::run::Metrics;
use crate::supernet::{Choice, extract};
use crate::{Error, Result, files};

const SCREEN: &str = "screen/screen.json";

/// `screen/screen.json`: what extraction reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Screened {
    /// Uniform architectures within the targets.
    pub within: usize,
    /// Those of them that cannot grow.
    pub maximal: usize,
    /// Which targets the candidates come close to.
    pub reach: Reach,
    /// Of all candidates' training and, where it said which are trained, of their first losses.
    pub tokens: u64,
    /// Those that were trained, the least score first; then the others, the least first loss first.
    pub candidates: Vec<Candidate>,
}

/// A uniform architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its place in the list of all, and the name of its folder.
    pub number: usize,
    /// Gate → size.
    pub architecture: Value,
    /// Cost over target, by resource.
    pub rho: BTreeMap<String, f64>,
    /// KL from the parent on the first batch before any training, nats per token.
    pub first_loss: f64,
    /// Mean KL over the last steps; `None` where it was not trained.
    pub score: Option<f64>,
    /// KL of every step.
    pub losses: Vec<f64>,
}

impl Screened {
    /// Those that were trained, the best first.
    pub fn trained(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|candidate| candidate.score.is_some())
    }
}

/// Screens in `screen/` and writes `screen/screen.json`.
pub fn run(c: &Compression) -> Result<()> {
    let (uniform, targets) = candidates(c, &profile::read(c)?)?;
    let screened = screen(c, &c.recipe.recover, &uniform, &targets, &c.sorted()?, "screen")?;
    files::write_json(&c.path(SCREEN), &screened)
}

/// The candidates within the targets, or, where no uniform architecture meets those, within the limits themselves; and which.
fn candidates(c: &Compression, profile: &Profile) -> Result<(Uniform, Vec<Resource>)> {
    let limits = &profile.model.resources;
    for targets in [profile.targets(), limits.clone()] {
        let uniform = baseline::uniform(&c.space, &targets, c.recipe.minitron.floor)
            .map_err(|error| error.within(c.recipe.space_of(c.method)))?;
        if !uniform.choices.is_empty() {
            return Ok((uniform, targets));
        }
    }
    let error = profile.as_written(baseline::nearest(&c.space, limits)?);
    Err(match error {
        Error::Unreachable { resource, unit, limit, smallest, at_least, kept, architecture } => {
            let resource = format!("{resource}: no uniform architecture meets the limits");
            Error::Unreachable { resource, unit, limit, smallest, at_least, kept, architecture }
        }
        other => other,
    })
}

/// Screens the candidates in `folder` of the run directory. `recover` is the recovery that the best one is for: all train on
/// the batches of its first steps. `sorted` is the sorted parent.
pub fn screen(
    c: &Compression,
    recover: &RecoverRecipe,
    uniform: &Uniform,
    targets: &[Resource],
    sorted: &Lm,
    folder: &str,
) -> Result<Screened> {
    let options = &c.recipe.minitron;
    let recipe = options.screening(recover);
    let batch = (recipe.training.sequences * recipe.training.length) as u64;
    hold_to_device(c, &recipe, folder)?;
    let mut order: Vec<usize> = (0..uniform.choices.len()).collect();
    let (mut first, mut tokens) = (None, 0);
    if order.len() > options.most {
        let losses = first_losses(c, &recipe, uniform, sorted, folder)?;
        order.sort_by(|a, b| losses[*a].total_cmp(&losses[*b]));
        tokens += batch * losses.len() as u64;
        first = Some(losses);
    }
    let mut candidates = Vec::new();
    for (place, number) in order.into_iter().enumerate() {
        let choice = &uniform.choices[number];
        let mut losses = Vec::new();
        if place < options.most {
            let student = extract(sorted, &c.space, choice)?;
            losses = distil(c, &recipe, student, &format!("{folder}/{number}"))?;
            tokens += batch * losses.len() as u64;
        }
        let known = first.as_ref().map(|losses| losses[number]);
        candidates.push(Candidate {
            number,
            architecture: c.space.choice_to_json(choice)?,
            rho: targets.iter().map(|target| (target.name.clone(), target.rho(&choice.0))).collect(),
            first_loss: known.or(losses.first().copied()).unwrap_or(f64::NAN),
            score: score(&losses, options.scored_steps),
            losses,
        });
    }
    // Those that were not trained stay behind, in their order.
    candidates.sort_by(|a, b| a.score.unwrap_or(f64::INFINITY).total_cmp(&b.score.unwrap_or(f64::INFINITY)));
    Ok(Screened { within: uniform.within, maximal: uniform.maximal, reach: uniform.reach, tokens, candidates })
}

/// Refuses to compare losses of one device or precision with those of another.
fn hold_to_device(c: &Compression, recipe: &RecoverRecipe, folder: &str) -> Result<()> {
    let path = c.run.folder(folder)?.join("computed_on.json");
    let now = recipe.training.options("recover.training").computed_on();
    if !path.exists() {
        return files::write_json(&path, &now);
    }
    let begun: ComputedOn = files::read_json(&path, "a device and a precision")?;
    now.check_begun(&begun, &path, &c.path(folder))
}

/// The mean of the last `scored` losses; `None` of none.
fn score(losses: &[f64], scored: u64) -> Option<f64> {
    let scored = losses.len().min(usize::try_from(scored).unwrap_or(usize::MAX));
    let last = &losses[losses.len() - scored..];
    (scored > 0).then(|| last.iter().sum::<f64>() / scored as f64)
}

/// Every candidate's loss on the first batch that it would train on, from `folder` where they are there.
fn first_losses(
    c: &Compression,
    recipe: &RecoverRecipe,
    uniform: &Uniform,
    sorted: &Lm,
    folder: &str,
) -> Result<Vec<f64>> {
    let path = c.run.folder(folder)?.join("first_losses.json");
    if !path.exists() {
        let training = &recipe.training;
        let batch = c.source().batch(training.seed, 0, training.sequences, training.length)?;
        if batch.valid_tokens() == 0 {
            let found = format!("no token to predict in the first {} sequences", training.sequences);
            let text = format!("recover.training.length: found {found}, expected some: give a larger one");
            return Err(Error::Usage(text).within(&c.recipe_path));
        }
        let batches = batch.split(training.micro_batches);
        let mut progress = c.progress("uniform architectures", uniform.choices.len() as u64);
        let mut losses = Vec::new();
        for choice in &uniform.choices {
            let student = extract(sorted, &c.space, choice)?;
            losses.push(mean_loss(&c.parent, &student, &batches, &recipe.distill())?.0);
            progress.tick(losses.len() as u64);
        }
        files::write_json(&path, &losses)?;
    }
    read_losses(&path, uniform.choices.len())
}

/// Distils one candidate in `folder`, unless that was done: the losses of all steps. Only they and the metrics stay.
fn distil(c: &Compression, recipe: &RecoverRecipe, student: Lm, folder: &str) -> Result<Vec<f64>> {
    let path = c.run.folder(folder)?.join("losses.json");
    let steps = usize::try_from(recipe.training.steps).unwrap_or(usize::MAX);
    if !path.exists() {
        recover::recover(c, "screen", recipe, student, folder)?;
        let metrics = Metrics::open(&c.path(folder).join("metrics.jsonl"), |_| true)?;
        files::write_json(&path, &metrics.last("loss", steps)?)?;
    }
    let losses = read_losses(&path, steps)?;
    // They are many times the model's size, and nothing goes on from them.
    let checkpoints = c.path(folder).join("checkpoints");
    if checkpoints.exists() {
        files::remove_dir(&checkpoints)?;
    }
    Ok(losses)
}

fn read_losses(path: &std::path::Path, count: usize) -> Result<Vec<f64>> {
    let losses: Vec<f64> = files::read_json(path, "losses")?;
    if losses.len() != count {
        return Err(Error::input(path, "losses", losses.len().to_string(), count.to_string()));
    }
    Ok(losses)
}

/// What extraction chooses from: the trained candidates, the best first.
pub fn ranked(c: &Compression) -> Result<Vec<Choice>> {
    let path = c.path(SCREEN);
    read(c)?.trained().map(|candidate| c.space.choice_from_json(&path, &candidate.architecture)).collect()
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Screened> {
    files::read_json(&c.path(SCREEN), "a screening's end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_steps_are_the_score() {
        // Steps 1 to 100 of losses 100 to 1: the mean over steps 76 to 100 is that of 25 to 1.
        let losses: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(score(&losses, 25), Some(13.0));
        assert_eq!(score(&losses, 1), Some(1.0));
        assert_eq!(score(&losses, 100), Some(50.5));
        assert_eq!(score(&[], 25), None);
    }
}
