//! The recipe of a compression.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Method;
use crate::data::DataConfig;
use crate::model::ExpertMasking;
use crate::ops::distill_loss::DistillOptions;
use crate::search::{Annealing, Budget, RouterOptions, SearchOptions, Slack, Trained};
use crate::stages::training::Training;
use crate::{Error, Result, config_file};

/// A recipe file (TOML). Paths are relative to it.
///
/// ```toml
/// parent = "../parents/tiny"         # a model's folder
/// space = "../spaces/tiny.toml"
/// contract = "../contracts/half.toml"
///
/// [data]
/// kind = "tasks"
///
/// [search]
/// alpha = 3.0
///
/// [search.training]
/// steps = 200
/// sequences = 16
/// length = 256
/// learning_rate = 1e-3
///
/// [recover.training]
/// steps = 300
/// sequences = 16
/// length = 256
/// learning_rate = 1e-3
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub parent: PathBuf,
    pub space: PathBuf,
    pub contract: PathBuf,
    pub data: DataConfig,
    #[serde(default)]
    pub rank: RankRecipe,
    #[serde(default)]
    pub profile: ProfileRecipe,
    pub search: SearchRecipe,
    pub recover: RecoverRecipe,
    #[serde(default)]
    pub minitron: MinitronRecipe,
    #[serde(default)]
    pub evaluate: EvaluateRecipe,
    #[serde(default)]
    pub measure: MeasureRecipe,
}

/// The calibration pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RankRecipe {
    pub sequences: usize,
    /// Tokens per sequence.
    pub length: usize,
    pub seed: u64,
}

impl Default for RankRecipe {
    fn default() -> Self {
        RankRecipe { sequences: 128, length: 256, seed: 0 }
    }
}

/// The measurement of the cost table, and of whole models that it is held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileRecipe {
    /// How often every run is measured.
    pub repeats: usize,
    /// Layer configurations of one short model.
    pub layers_per_run: usize,
    /// Whole models that are started to find the memory reserve.
    pub starts: usize,
    /// Random architectures beside the parent that predictions are compared on.
    pub held_out: usize,
    /// Requests of each of them.
    pub held_out_repeats: usize,
    pub seed: u64,
    /// Of a deployment that is not at hand, for all of the above: the cost table measured there, as `profile ingest` reads it.
    /// Rows that it lacks are estimates, all of them where there is no table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<PathBuf>,
}

impl Default for ProfileRecipe {
    fn default() -> Self {
        ProfileRecipe {
            repeats: 5,
            layers_per_run: 10,
            starts: 4,
            held_out: 8,
            held_out_repeats: 9,
            seed: 0,
            table: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchRecipe {
    /// Independent draws of a step; divides its sequences.
    #[serde(default = "draws")]
    pub draws: usize,
    /// Weight of the penalty for missing the limits.
    #[serde(default = "alpha")]
    pub alpha: f64,
    /// The part of a limit that may stay unused.
    #[serde(default = "delta")]
    pub delta: f64,
    /// Which unused budget is penalised: `"each"` limit's, or the `"binding"` one's.
    #[serde(default)]
    pub slack: Slack,
    /// `"joint"`: router and weights; `"router"`: the router alone.
    #[serde(default)]
    pub train: Trained,
    /// `"output"`: a dropped expert's output is masked; `"score"`: its routing score.
    #[serde(default)]
    pub expert_masking: ExpertMasking,
    /// Divides both logits of the distillation.
    #[serde(default = "temperature")]
    pub temperature: f32,
    /// The leading probability of every gate that ends the search.
    #[serde(default = "converged_at")]
    pub converged_at: f64,
    /// κ of the first and the last step.
    #[serde(default = "kappa")]
    pub kappa: [f32; 2],
    /// τ of the first and the last step.
    #[serde(default = "tau")]
    pub tau: [f32; 2],
    #[serde(default)]
    pub router: RouterOptions,
    pub training: Training,
}

fn draws() -> usize {
    SearchOptions::default().draws
}
fn alpha() -> f64 {
    Budget::default().alpha
}
fn delta() -> f64 {
    Budget::default().delta
}
fn temperature() -> f32 {
    1.0
}
fn converged_at() -> f64 {
    SearchOptions::default().converged_at
}
fn kappa() -> [f32; 2] {
    Annealing::default().kappa
}
fn tau() -> [f32; 2] {
    Annealing::default().tau
}

impl SearchRecipe {
    pub fn options(&self) -> SearchOptions {
        SearchOptions {
            annealing: Annealing { kappa: self.kappa, tau: self.tau, steps: self.training.steps },
            budget: Budget { alpha: self.alpha, delta: self.delta, slack: self.slack },
            router: self.router,
            draws: self.draws,
            train: self.train,
            expert_masking: self.expert_masking,
            distill: DistillOptions { temperature: self.temperature, ..DistillOptions::default() },
            recompute: self.training.recompute,
            converged_at: self.converged_at,
            token_shares: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoverRecipe {
    #[serde(default = "temperature")]
    pub temperature: f32,
    pub training: Training,
}

impl RecoverRecipe {
    pub fn distill(&self) -> DistillOptions {
        DistillOptions { temperature: self.temperature, ..DistillOptions::default() }
    }
}

/// The baseline Minitron++ (docs/method.md, "Baseline"): what is recovered is the uniform architecture that a short distillation
/// prefers. Batches, learning rate and all else of that are [`RecoverRecipe`]'s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MinitronRecipe {
    /// A space of its own, instead of the search's: the paper's baseline shrinks Mamba heads where the search removes layers.
    pub space: Option<PathBuf>,
    /// The least cost over limit, of each limit, that a candidate must reach.
    pub floor: f64,
    /// Candidates that are distilled; where there are more, those with the least loss before any training.
    pub most: usize,
    /// Steps of each.
    pub steps: u64,
    /// The last of them, over which the mean loss is the score: of 100 steps, 76 to 100.
    pub scored_steps: u64,
}

impl Default for MinitronRecipe {
    fn default() -> Self {
        MinitronRecipe { space: None, floor: 0.95, most: 5, steps: 100, scored_steps: 25 }
    }
}

impl MinitronRecipe {
    /// A candidate's short distillation: the recovery over fewer steps, at most a tenth of them warm-up.
    pub fn screening(&self, recover: &RecoverRecipe) -> RecoverRecipe {
        let mut short = recover.clone();
        short.training.steps = self.steps;
        short.training.warmup_steps = recover.training.warmup_steps.min(self.steps / 10);
        short
    }

    fn check(&self, path: &Path) -> Result<()> {
        let fault = |key: &str, found: String, expected: &str| {
            Err(Error::input(path, format!("minitron.{key}"), found, expected))
        };
        if !(0.0..=1.0).contains(&self.floor) {
            return fault("floor", self.floor.to_string(), "from 0 to 1");
        }
        if !(1..=MOST_REPEATS).contains(&self.most) {
            return fault("most", self.most.to_string(), &format!("from 1 to {MOST_REPEATS}"));
        }
        if !(1..=MOST_SCREENING).contains(&self.steps) {
            return fault("steps", self.steps.to_string(), &format!("from 1 to {MOST_SCREENING}"));
        }
        if !(1..=self.steps).contains(&self.scored_steps) {
            return fault(
                "scored_steps",
                self.scored_steps.to_string(),
                &format!("from 1 to {}, all steps", self.steps),
            );
        }
        Ok(())
    }
}

/// Scores of parent and student.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluateRecipe {
    /// Held-out examples of each built-in task.
    pub examples: usize,
    pub seed: u64,
    /// JSONL records that are scored too; see `evaluate`.
    pub records: Option<PathBuf>,
    /// Sequences and their length that the loss between parent and student is taken on.
    pub sequences: usize,
    pub length: usize,
    /// Data that training does not see. Without it, a part of `data` is held out of all training of the run: the built-in
    /// tasks' held-out examples, or of text and shards what [`Part`](crate::data::Part) says.
    pub held_out: Option<DataConfig>,
}

impl Default for EvaluateRecipe {
    fn default() -> Self {
        EvaluateRecipe { examples: 200, seed: 0, records: None, sequences: 64, length: 256, held_out: None }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeasureRecipe {
    /// Requests of each model, interleaved; the medians count.
    pub repeats: usize,
    /// How often the target is tightened where the student is over a limit before its recovery.
    pub rounds: usize,
}

impl Default for MeasureRecipe {
    fn default() -> Self {
        MeasureRecipe { repeats: 21, rounds: 3 }
    }
}

/// More is a slip of the pen.
const MOST_SEQUENCES: usize = 1 << 24;
const MOST_TOKENS: usize = 1 << 20;
const MOST_REPEATS: usize = 10_000;
/// A screening keeps every step's loss.
const MOST_SCREENING: u64 = 1_000_000;

const KAPPA: [f64; 2] = [1e-2, 1e3];
const TAU: [f64; 2] = [1e-3, 1e2];
const TEMPERATURE: [f64; 2] = [1e-2, 1e2];
const TEMPERATURE_WHY: &str = "below, exponents overflow; above, all tokens are equally likely";

/// The f64 of the same decimal number, so that a bound written as one holds it, and it is told as it was written.
fn wide(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

impl Recipe {
    /// Reads and checks a recipe.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Input`] naming the file, the key and what is expected.
    pub fn from_file(path: &Path) -> Result<Recipe> {
        let mut recipe: Recipe = config_file::read(path, "a recipe")?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for file in [&mut recipe.parent, &mut recipe.space, &mut recipe.contract] {
            *file = folder.join(&*file);
        }
        recipe.profile.table = recipe.profile.table.map(|table| folder.join(table));
        recipe.minitron.space = recipe.minitron.space.map(|space| folder.join(space));
        recipe.data = recipe.data.relative_to(folder);
        recipe.evaluate.held_out = recipe.evaluate.held_out.map(|data| data.relative_to(folder));
        recipe.evaluate.records = recipe.evaluate.records.map(|records| folder.join(records));
        recipe.check(path)?;
        Ok(recipe)
    }

    /// The space file of a method.
    pub fn space_of(&self, method: Method) -> &Path {
        match method {
            Method::Minitron => self.minitron.space.as_ref().unwrap_or(&self.space),
            Method::Search => &self.space,
        }
    }

    /// Numbers that training can use in a range only: key, value, bounds, and what is beyond them.
    fn bounded(&self) -> Vec<(&'static str, f64, [f64; 2], &'static str)> {
        let SearchRecipe { alpha, kappa, tau, router, temperature, .. } = self.search;
        let [first_kappa, last_kappa] = kappa.map(wide);
        let [first_tau, last_tau] = tau.map(wide);
        vec![
            ("search.alpha", alpha, [0.0, 1e4], "beside a larger penalty, the distillation is lost in rounding"),
            ("search.kappa[0]", first_kappa, KAPPA, "draws are all noise below, and never change above"),
            ("search.kappa[1]", last_kappa, KAPPA, "draws are all noise below, and never change above"),
            ("search.tau[0]", first_tau, TAU, "gradients of a draw grow as 1 / τ below, and draws are even above"),
            ("search.tau[1]", last_tau, TAU, "gradients of a draw grow as 1 / τ below, and draws are even above"),
            ("search.router.rate", wide(router.rate), [0.0, 1e4], "logits overflow in a step above"),
            ("search.router.output_std", wide(router.output_std), [0.0, 1e2], "the first logits decide alone above"),
            ("search.temperature", wide(temperature), TEMPERATURE, TEMPERATURE_WHY),
            ("recover.temperature", wide(self.recover.temperature), TEMPERATURE, TEMPERATURE_WHY),
        ]
    }

    fn check(&self, path: &Path) -> Result<()> {
        let sizes = [
            ("rank.sequences", self.rank.sequences, 1, MOST_SEQUENCES),
            ("rank.length", self.rank.length, 1, MOST_TOKENS),
            ("profile.repeats", self.profile.repeats, 1, MOST_REPEATS),
            ("profile.layers_per_run", self.profile.layers_per_run, 1, MOST_REPEATS),
            ("profile.starts", self.profile.starts, 0, MOST_REPEATS),
            ("profile.held_out", self.profile.held_out, 0, MOST_REPEATS),
            ("profile.held_out_repeats", self.profile.held_out_repeats, 1, MOST_REPEATS),
            ("search.router.width", self.search.router.width, 1, MOST_REPEATS),
            ("evaluate.examples", self.evaluate.examples, 1, MOST_SEQUENCES),
            ("evaluate.sequences", self.evaluate.sequences, 1, MOST_SEQUENCES),
            ("evaluate.length", self.evaluate.length, 2, MOST_TOKENS),
            ("measure.repeats", self.measure.repeats, 1, MOST_REPEATS),
            ("measure.rounds", self.measure.rounds, 0, MOST_REPEATS),
        ];
        for (key, found, least, most) in sizes {
            if !(least..=most).contains(&found) {
                return Err(Error::input(path, key, found.to_string(), format!("from {least} to {most}")));
            }
        }
        self.search.training.check(path, "search.training")?;
        self.recover.training.check(path, "recover.training")?;
        self.minitron.check(path)?;
        let (draws, sequences) = (self.search.draws, self.search.training.sequences);
        if draws == 0 || !sequences.is_multiple_of(draws) {
            let expected = format!("a divisor of search.training.sequences = {sequences}");
            return Err(Error::input(path, "search.draws", draws.to_string(), expected));
        }
        for (key, found, [least, most], why) in self.bounded() {
            if !(least..=most).contains(&found) {
                return Err(Error::input(path, key, found.to_string(), format!("from {least} to {most}: {why}")));
            }
        }
        self.search.options().check().map_err(|error| error.within_table(path, "search"))
    }
}
