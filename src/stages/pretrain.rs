//! `pretrain`: a model from random weights, by next-token prediction.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::recipe_file;
use crate::autograd::{Gradients, Params, Tape};
use crate::data::{Batch, DataConfig, TasksConfig};
use crate::device::memory;
use crate::model::checkpoint::{DiskDtype, SaveOptions};
use crate::model::{Config, Input, Lm};
use crate::ops::adamw::AdamWOptions;
use crate::ops::cross_entropy::cross_entropy;
use crate::run::{self, RunDir, digest_file};
use crate::tensor::Segments;
use crate::train::{Job, Options, Progress, Schedule, StepState, train};
use crate::{Error, Result};

/// A recipe file (TOML). Paths are relative to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub model: ModelRecipe,
    pub data: DataConfig,
    pub train: TrainRecipe,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecipe {
    /// A `nemotron_h` config.json.
    pub config: PathBuf,
    /// Seed of the initial weights.
    #[serde(default)]
    pub seed: u64,
    /// Precision of the weights that are written. Training is in f32.
    #[serde(default)]
    pub dtype: SavedDtype,
}

/// A precision to write weights in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SavedDtype {
    F32,
    #[default]
    Bf16,
}

impl SavedDtype {
    pub fn on_disk(self) -> DiskDtype {
        match self {
            SavedDtype::F32 => DiskDtype::F32,
            SavedDtype::Bf16 => DiskDtype::BF16,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainRecipe {
    pub steps: u64,
    /// Sequences per step.
    pub sequences: usize,
    /// Tokens per sequence.
    pub length: usize,
    /// Parts that a step's sequences are computed in, one after another.
    #[serde(default = "one")]
    pub micro_batches: usize,
    pub learning_rate: f32,
    /// Where the cosine ends.
    #[serde(default)]
    pub min_learning_rate: f32,
    #[serde(default)]
    pub warmup_steps: u64,
    #[serde(default = "default_decay")]
    pub weight_decay: f32,
    #[serde(default = "default_beta1")]
    pub beta1: f32,
    #[serde(default = "default_beta2")]
    pub beta2: f32,
    /// Largest global gradient norm.
    #[serde(default = "default_norm")]
    pub max_grad_norm: f32,
    /// How far a step moves the routing bias of an expert with too few or too many tokens (arXiv 2408.15664).
    #[serde(default = "default_balance")]
    pub balance_rate: f32,
    /// Recompute each block in backward instead of keeping its activations.
    #[serde(default)]
    pub recompute: bool,
    /// Seed of the data's order.
    #[serde(default)]
    pub seed: u64,
    #[serde(default = "default_checkpoint")]
    pub checkpoint_every: u64,
}

fn one() -> usize {
    1
}
fn default_decay() -> f32 {
    0.1
}
fn default_beta1() -> f32 {
    0.9
}
fn default_beta2() -> f32 {
    0.95
}
fn default_norm() -> f32 {
    1.0
}
fn default_balance() -> f32 {
    1e-3
}
fn default_checkpoint() -> u64 {
    100
}

impl TrainRecipe {
    /// Bytes that training needs at the least: weights, gradients and two moments in f32, a batch's tokens and targets,
    /// and the hidden states between the layers for one micro-batch. `None` where they pass 64 bits.
    fn least_memory(&self, config: &Config) -> Option<u64> {
        let tokens = self.sequences.checked_mul(self.length)? as u64;
        let width = (config.hidden_size as u64).checked_mul(config.layers.len() as u64)?.checked_mul(4)?;
        let hidden = (tokens / self.micro_batches.max(1) as u64).checked_mul(width)?;
        let state = config.parameters().total.checked_mul(16)?;
        state.checked_add(hidden)?.checked_add(tokens.checked_mul(8)?)
    }
}

impl Recipe {
    /// Reads and checks a recipe.
    pub fn from_file(path: &Path) -> Result<Recipe> {
        let mut recipe: Recipe = recipe_file::read(path, "a pretrain recipe")?;
        let folder = path.parent().unwrap_or(Path::new("."));
        recipe.model.config = folder.join(&recipe.model.config);
        recipe.data = recipe.data.relative_to(folder);
        recipe.check(path)?;
        Ok(recipe)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let t = &self.train;
        let fault = |key: &str, found: String, expected: &str| Err(Error::input(path, key, found, expected));
        if t.steps == 0 || t.sequences == 0 || t.length < 2 {
            let found = format!("{} steps of {} × {}", t.steps, t.sequences, t.length);
            return fault("train.steps, sequences, length", found, "at least 1, 1 and 2");
        }
        if t.micro_batches == 0 || !t.sequences.is_multiple_of(t.micro_batches) {
            return fault("train.micro_batches", t.micro_batches.to_string(), &format!("a divisor of {}", t.sequences));
        }
        if t.sequences.checked_mul(t.length).is_none() {
            let found = format!("{} × {}", t.sequences, t.length);
            return fault("train.sequences, length", found, "fewer than 2^64 tokens");
        }
        let (rate, norm) = (t.learning_rate, t.max_grad_norm);
        let below_one = "at least 0, below 1";
        let rates = [
            ("train.learning_rate", rate, rate > 0.0 && rate.is_finite(), "a finite number above 0"),
            (
                "train.min_learning_rate",
                t.min_learning_rate,
                (0.0..=rate).contains(&t.min_learning_rate),
                "from 0 to train.learning_rate",
            ),
            (
                "train.weight_decay",
                t.weight_decay,
                (0.0..f32::INFINITY).contains(&t.weight_decay),
                "a finite number from 0",
            ),
            ("train.beta1", t.beta1, (0.0..1.0).contains(&t.beta1), below_one),
            ("train.beta2", t.beta2, (0.0..1.0).contains(&t.beta2), below_one),
            ("train.max_grad_norm", norm, norm > 0.0, "above 0"),
            (
                "train.balance_rate",
                t.balance_rate,
                (0.0..f32::INFINITY).contains(&t.balance_rate),
                "a finite number from 0",
            ),
        ];
        for (key, found, fits, expected) in rates {
            if !fits {
                return fault(key, found.to_string(), expected);
            }
        }
        if t.checkpoint_every == 0 {
            return fault("train.checkpoint_every", "0".into(), "at least 1");
        }
        Ok(())
    }

    pub fn options(&self) -> Options {
        let t = &self.train;
        Options {
            steps: t.steps,
            sequences: t.sequences,
            length: t.length,
            micro_batches: t.micro_batches,
            schedule: Schedule {
                peak: t.learning_rate,
                floor: t.min_learning_rate,
                warmup: t.warmup_steps,
                steps: t.steps,
            },
            max_norm: t.max_grad_norm,
            optimizer: AdamWOptions { beta1: t.beta1, beta2: t.beta2, eps: 1e-8, weight_decay: t.weight_decay },
            seed: t.seed,
            checkpoint_every: t.checkpoint_every,
        }
    }
}

/// The tasks of a recipe whose data are the built-in tasks.
pub fn tasks_of(recipe: &Path) -> Result<TasksConfig> {
    match Recipe::from_file(recipe)?.data {
        DataConfig::Tasks(tasks) => Ok(tasks),
        _ => Err(Error::input(recipe, "data.kind", "other data", "\"tasks\"")),
    }
}

/// What `pretrain` made.
#[derive(Clone, Debug, Serialize)]
pub struct Trained {
    pub steps: u64,
    pub tokens: u64,
    /// Mean loss of the last steps, at most 25, nats per valid token.
    pub loss: f64,
    /// The model's folder.
    pub model: PathBuf,
}

/// Trains the model of a recipe in the run directory `out` and writes it to `out/model`.
pub fn pretrain(recipe_path: &Path, out: &Path, quiet: bool) -> Result<Trained> {
    let recipe = Recipe::from_file(recipe_path)?;
    let initial = Pretrain::initial(&recipe)?;
    let source = recipe.data.source(initial.config.vocab_size).map_err(|error| error.within(recipe_path))?;
    let inputs = inputs(recipe_path, &recipe)?;
    let run = RunDir::create_or_open(out, &crate::files::read_text(recipe_path)?, &inputs)?;
    let mut job = Pretrain::new(initial, &recipe.train);
    let mut progress = Progress::new("pretrain", recipe.train.steps, quiet);
    let summary = train(&mut job, source, &recipe.options(), &run, "pretrain", &mut progress)?;
    let model = out.join("model");
    crate::model::save(&model, &job.lm, |_| recipe.model.dtype.on_disk(), &SaveOptions::default())?;
    Ok(Trained { steps: summary.steps, tokens: summary.tokens, loss: summary.loss, model })
}

/// What the recipe reads, by the names it has there: they are the same wherever the command is given. A file that is
/// listed twice is one input.
fn inputs(recipe_path: &Path, recipe: &Recipe) -> Result<Vec<run::Input>> {
    let folder = recipe_path.parent().unwrap_or(Path::new("."));
    let mut inputs = vec![run::Input { name: "config".into(), digest: digest_file(&recipe.model.config)? }];
    for path in recipe.data.input_files()? {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        if inputs.iter().all(|input| input.name != name) {
            inputs.push(run::Input { name, digest: digest_file(&path)? });
        }
    }
    Ok(inputs)
}

/// Next-token training of one model.
pub struct Pretrain {
    pub lm: Lm,
    recompute: bool,
    balance_rate: f32,
    /// Per MoE layer: tokens routed to each expert in this step.
    loads: Vec<Vec<u64>>,
}

impl Pretrain {
    pub fn new(lm: Lm, recipe: &TrainRecipe) -> Pretrain {
        Pretrain { lm, recompute: recipe.recompute, balance_rate: recipe.balance_rate, loads: Vec::new() }
    }

    /// The model of a recipe, at its initial weights.
    pub fn initial(recipe: &Recipe) -> Result<Lm> {
        let config = Config::from_file(&recipe.model.config)?;
        memory::require("training", recipe.train.least_memory(&config))?;
        let params = crate::model::initialise(&config, recipe.model.seed)?;
        Lm::new(config, params)
    }
}

impl Job for Pretrain {
    fn params(&self) -> &Params {
        &self.lm.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.lm.params
    }

    fn micro_batch(&mut self, batch: &Batch, share: f32, _: &StepState, grads: &mut Gradients) -> Result<f64> {
        let segments = Segments::from_offsets(&batch.segments)
            .ok_or_else(|| Error::contract("pretrain", "segments", &batch.segments, "offsets that rise from 0"))?;
        let tape = Tape::new();
        let input = Input { tokens: &batch.tokens, segments: &segments, masks: None, recompute: self.recompute };
        let output = self.lm.forward(&tape, &input)?;
        let loss = cross_entropy(&tape, &output.hidden, &self.lm.head(&tape), &batch.targets)?;
        let value = f64::from(loss.value().item());
        tape.backward(&loss, share, grads)?;
        self.loads.resize(output.loads.len(), Vec::new());
        for (sum, load) in self.loads.iter_mut().zip(&output.loads) {
            sum.resize(load.len(), 0);
            sum.iter_mut().zip(load).for_each(|(sum, n)| *sum += u64::from(*n));
        }
        Ok(value)
    }

    /// Moves every expert's routing bias towards an even load: up where it got fewer tokens than the mean, down where more.
    fn after_step(&mut self, _: &StepState) -> Result<()> {
        let loads = std::mem::take(&mut self.loads);
        for (id, load) in self.lm.routing_biases().into_iter().zip(loads) {
            let mean = load.iter().sum::<u64>() as f32 / load.len() as f32;
            let bias = self.lm.params.get_mut(id).value.f32_mut();
            for (bias, n) in bias.iter_mut().zip(load) {
                let error = mean - n as f32;
                *bias += if error == 0.0 { 0.0 } else { self.balance_rate * error.signum() };
            }
        }
        Ok(())
    }
}
