//! The loop itself.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::state::{self, Numbers};
use super::{Job, Progress, Schedule, StepState, World};
use crate::autograd::{Gradients, Params};
use crate::data::{Batch, Loader, LoaderConfig, Source};
use crate::device::{self, ComputedOn, Place, Precision};
use crate::model::Products;
use crate::ops::adamw::{self, AdamWOptions, Moments};
use crate::run::{Checkpoints, Metrics, RunDir};
use crate::{Error, Result};

/// Batches that wait ready.
const PREFETCH: usize = 4;
/// Checkpoints that are kept.
const KEEP: usize = 2;

#[derive(Clone, Debug)]
pub struct Options {
    /// What these are to a user, for messages: the recipe's table.
    pub table: &'static str,
    pub steps: u64,
    /// B, sequences of a step.
    pub sequences: usize,
    /// T, tokens of a sequence.
    pub length: usize,
    /// Equal parts of a step's sequences, computed one after another. Divides `sequences`.
    pub micro_batches: usize,
    pub schedule: Schedule,
    /// Largest global gradient norm; larger ones are scaled down to it.
    pub max_norm: f32,
    pub optimizer: AdamWOptions,
    /// Of the data's order.
    pub seed: u64,
    pub checkpoint_every: u64,
    /// What the recipe asks for; see [`device::asked_precision`].
    pub precision: Option<Precision>,
    /// The part of the layers that is not quantised, where it is not the precision's usual one.
    pub wide_layers: Option<f64>,
}

impl Options {
    /// What the job is trained in: what was asked for in this process, or by the recipe.
    fn precision(&self) -> Option<Precision> {
        device::asked_precision().or(self.precision)
    }

    /// What the job would compute on now.
    pub fn computed_on(&self) -> ComputedOn {
        ComputedOn::of(device::current().as_ref(), self.precision())
    }

    fn products(&self) -> Option<Products> {
        let products = self.precision().and_then(Products::of)?;
        Some(Products { wide_layers: self.wide_layers.unwrap_or(products.wide_layers), ..products })
    }
}

/// How training ended.
#[derive(Clone, Debug)]
pub struct Summary {
    pub steps: u64,
    pub tokens: u64,
    /// Mean loss of the run's last steps, at most 25; NaN where `metrics.jsonl` has none.
    pub loss: f64,
    /// Whether the job reached its end by itself, see [`Job::finished`].
    pub finished: bool,
}

/// Trains `job` in the folder `name` of the run (`metrics.jsonl`, `checkpoints/`), from its last whole checkpoint if there is
/// one. A run that was killed and resumed gives the bits of one that was not: data and noise depend on the step alone, and a
/// checkpoint holds everything else. It is refused where it was begun on another device or in another precision.
pub fn train(
    job: &mut dyn Job,
    source: Box<dyn Source>,
    options: &Options,
    run: &RunDir,
    name: &str,
    progress: &mut Progress,
) -> Result<Summary> {
    let folder = run.folder(name)?;
    let checkpoints = Checkpoints::new(&folder.join("checkpoints"), KEEP);
    let computed_on = options.computed_on();
    let found = checkpoints.latest()?.found;
    if let Some(found) = &found {
        state::check_begun(&found.path, &computed_on, options.steps)?;
    }
    if let Some(place) = device::current() {
        job.place(&Place { precision: options.precision().unwrap_or(place.precision), ..place })?;
    }
    let mut moments = Moments::new(job.params())?;
    let mut at = Numbers { step: 0, updates: 0, tokens: 0, finished: false };
    if let Some(found) = found {
        at = state::load(&found.path, job.params_mut(), &mut moments)?;
    }
    let mut metrics = Metrics::open(&folder.join("metrics.jsonl"), |step| step < at.step)?;
    let Options { seed, sequences, length, .. } = *options;
    let mut loader = Loader::new(source, LoaderConfig { seed, sequences, length, prefetch: PREFETCH }, at.step)?;
    let mut grads = Gradients::new(job.params());
    progress.start_at(at.step, at.tokens);
    while at.step < options.steps && !at.finished {
        let batch = loader.next()?;
        let mut line = step(job, &batch, options, at.step, &mut grads, &mut moments)?;
        at.step += 1;
        at.updates = moments.updates;
        at.finished = job.finished();
        at.tokens += batch.tokens.len() as u64;
        line.insert("tokens".into(), at.tokens.into());
        let loss = line["loss"].as_f64().unwrap_or(f64::NAN);
        metrics.write(&line)?;
        progress.update(at.step, at.tokens, &format!("loss {loss:.4}"));
        let last = at.finished || at.step == options.steps;
        if last || at.step.is_multiple_of(options.checkpoint_every) {
            metrics.sync()?;
            check_finite(job.params(), at.step - 1)?;
            checkpoints.save(at.step, |dir: &Path| state::save(dir, job.params(), &moments, &at, &computed_on))?;
        }
    }
    job.params_mut().retrieve()?;
    let last = metrics.last("loss", 25)?;
    Ok(Summary {
        steps: at.step,
        tokens: at.tokens,
        loss: last.iter().sum::<f64>() / last.len() as f64,
        finished: at.finished,
    })
}

/// Weights that an update blew up must not replace the checkpoints before them.
fn check_finite(params: &Params, step: u64) -> Result<()> {
    for (_, param) in params.iter() {
        let values = param.value.to_host()?;
        if let Some(value) = values.f32().iter().find(|value| !value.is_finite()) {
            return Err(Error::Diverged { what: "a weight", value: *value, step });
        }
    }
    Ok(())
}

/// One step: gradients of all micro-batches, clipping, update. Returns its line of metrics.
fn step(
    job: &mut dyn Job,
    batch: &Batch,
    options: &Options,
    step: u64,
    grads: &mut Gradients,
    moments: &mut Moments,
) -> Result<Map<String, Value>> {
    let (learning_rate, seed, sequences) = (options.schedule.at(step), options.seed, batch.sequences);
    let mut state = StepState { step, learning_rate, seed, sequences, first_sequence: 0, products: options.products() };
    let valid = batch.valid_tokens();
    if valid == 0 {
        let found = format!("no token to predict in step {step}'s {} sequences of {}", batch.sequences, batch.length);
        return Err(Error::Usage(format!("{}.length: found {found}, expected some: give a larger one", options.table)));
    }
    grads.clear();
    let mut loss = 0.0;
    for part in batch.split(options.micro_batches) {
        let share = part.valid_tokens() as f64 / valid as f64;
        if share > 0.0 {
            loss += share * job.micro_batch(&part, share as f32, &state, grads)?;
        }
        state.first_sequence += part.sequences;
    }
    let norm = World.sum(adamw::squared_norm(grads.iter())?).sqrt() as f32;
    for (what, value) in [("the loss", loss as f32), ("the gradient norm", norm)] {
        if !value.is_finite() {
            return Err(Error::Diverged { what, value, step });
        }
    }
    adamw::step(job.params_mut(), grads, moments, state.learning_rate, (norm, options.max_norm), &options.optimizer)?;
    job.after_step(&state)?;
    let mut line = Map::new();
    line.insert("step".into(), step.into());
    line.insert("loss".into(), json!(loss));
    line.insert("learning_rate".into(), json!(state.learning_rate));
    line.insert("gradient_norm".into(), json!(norm));
    job.metrics(&mut line);
    Ok(line)
}
