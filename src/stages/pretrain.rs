//! `pretrain`: a model from random weights, by next-token prediction.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::training::Training;
use crate::autograd::{Gradients, Params, Tape};
use crate::data::{Batch, DataConfig, TasksConfig};
use crate::device::{Place, memory};
use crate::model::checkpoint::{DiskDtype, SaveOptions};
use crate::model::{Config, Input, Lm, Output, Purpose};
use crate::ops::cross_entropy::cross_entropy;
use crate::run::{self, RunDir, digest_file};
use crate::train::{Job, Progress, StepState, train};
use crate::{Error, Result, config_file};

/// A recipe file (TOML). Paths are relative to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub model: ModelRecipe,
    pub data: DataConfig,
    #[serde(default)]
    pub routing: RoutingRecipe,
    pub train: Training,
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
#[serde(deny_unknown_fields, default)]
pub struct RoutingRecipe {
    /// How far a step moves the routing bias of an expert with too few or too many tokens (arXiv 2408.15664).
    pub balance_rate: f32,
}

impl Default for RoutingRecipe {
    fn default() -> Self {
        RoutingRecipe { balance_rate: 1e-3 }
    }
}

impl Recipe {
    /// Reads and checks a recipe.
    pub fn from_file(path: &Path) -> Result<Recipe> {
        let mut recipe: Recipe = config_file::read(path, "a pretrain recipe")?;
        let folder = path.parent().unwrap_or(Path::new("."));
        recipe.model.config = folder.join(&recipe.model.config);
        recipe.data = recipe.data.relative_to(folder);
        recipe.check(path)?;
        Ok(recipe)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let rate = self.routing.balance_rate;
        if !(0.0..f32::INFINITY).contains(&rate) {
            return Err(Error::input(path, "routing.balance_rate", rate.to_string(), "a finite number from 0"));
        }
        self.train.check(path, "train")
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
    let source =
        recipe.data.source(initial.config.vocab_size).map_err(|error| error.within_table(recipe_path, "data"))?;
    let inputs = inputs(recipe_path, &recipe)?;
    let run = RunDir::create_or_open(out, &crate::files::read_text(recipe_path)?, &inputs)?;
    let mut job = Pretrain::new(initial, &recipe);
    let mut progress = Progress::new("pretrain", recipe.train.steps, quiet);
    let summary = train(&mut job, source, &recipe.train.options("train"), &run, "pretrain", &mut progress)
        .map_err(|error| error.within(recipe_path))?;
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
    inputs.extend(super::precision_input());
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
    pub fn new(lm: Lm, recipe: &Recipe) -> Pretrain {
        Pretrain { lm, recompute: recipe.train.recompute, balance_rate: recipe.routing.balance_rate, loads: Vec::new() }
    }

    /// The model of a recipe, at its initial weights.
    pub fn initial(recipe: &Recipe) -> Result<Lm> {
        let path = &recipe.model.config;
        let config = Config::from_file(path)?;
        if let Some(mtp) = &config.mtp {
            let expected =
                "0: training has no loss for a multi-token prediction head, and a model is not saved without it";
            return Err(Error::input(path, "num_nextn_predict_layers", mtp.steps.to_string(), expected));
        }
        let parameters = config.parameters().total;
        memory::require(
            "training (model.config, train.sequences, train.length)",
            recipe.train.least_memory(parameters, config.hidden_size, config.layers.len()),
        )?;
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

    fn place(&mut self, place: &Place) -> Result<()> {
        self.lm = self.lm.placed(place, Purpose::Training)?;
        Ok(())
    }

    fn micro_batch(&mut self, batch: &Batch, share: f32, state: &StepState, grads: &mut Gradients) -> Result<f64> {
        let segments = batch.rows()?;
        let tape = Tape::new();
        let (recompute, products) = (self.recompute, state.products_of(batch));
        let input = Input { recompute, products, ..Input::new(&batch.tokens, &segments) };
        let output = self.lm.forward(&tape, &input)?;
        let loss = cross_entropy(&tape, &output.hidden, &self.lm.head(&tape), &batch.targets)?;
        tape.backward(&loss, share, grads)?;
        let value = f64::from(loss.value().read_item()?);
        let loads = Output::counts(&output.loads)?;
        self.loads.resize(loads.len(), Vec::new());
        for (sum, load) in self.loads.iter_mut().zip(&loads) {
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
            let mut bias = self.lm.params.get(id).value.to_host()?;
            for (bias, n) in bias.f32_mut().iter_mut().zip(load) {
                let error = mean - n as f32;
                *bias += if error == 0.0 { 0.0 } else { self.balance_rate * error.signum() };
            }
            self.lm.params.replace(id, bias)?;
        }
        Ok(())
    }
}
