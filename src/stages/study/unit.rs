//! One architecture of a study: how it is chosen, recovered and scored.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Study;
use super::limits::Share;
use super::outcome::{SearchOutcome, searched};
use crate::baseline;
use crate::cost::Resource;
use crate::model::ExpertMasking;
use crate::stages::compress::{Compression, RecoverRecipe, SearchRecipe, evaluate, recover, screen};
use crate::supernet::{Choice, extract};
use crate::{Error, Result, files};

/// How architectures are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The recipe's search.
    Search,
    /// The search from random logits with a warm-up, the paper's comparison.
    RouterInit,
    /// The search with the expert masks on the routing scores.
    ScoreMasking,
    /// Random logits through the repair.
    Random,
    /// One width per axis for all layers, each candidate recovered.
    Uniform,
    /// One width per axis for all layers, by the screening of Minitron++.
    Minitron,
}

impl Arm {
    pub const ALL: [Arm; 6] =
        [Arm::Search, Arm::RouterInit, Arm::ScoreMasking, Arm::Random, Arm::Uniform, Arm::Minitron];
    /// What a study compares unless it is told otherwise.
    pub const USUAL: [Arm; 4] = [Arm::Search, Arm::Random, Arm::Uniform, Arm::Minitron];

    pub fn name(self) -> &'static str {
        match self {
            Arm::Search => "search",
            Arm::RouterInit => "router_init",
            Arm::ScoreMasking => "score_masking",
            Arm::Random => "random",
            Arm::Uniform => "uniform",
            Arm::Minitron => "minitron",
        }
    }

    /// The recipe of the arm's search; `None` where it does not search.
    pub fn search(self, recipe: &SearchRecipe, seed: u64) -> Option<SearchRecipe> {
        let mut recipe = recipe.clone();
        recipe.training.seed = recipe.training.seed.wrapping_add(seed);
        match self {
            Arm::Search => {}
            Arm::RouterInit => {
                recipe.router.output_std = 1.0;
                recipe.router.warmup_steps = recipe.training.steps.div_ceil(10);
            }
            Arm::ScoreMasking => recipe.expert_masking = ExpertMasking::Score,
            Arm::Random | Arm::Uniform | Arm::Minitron => return None,
        }
        Some(recipe)
    }
}

impl FromStr for Arm {
    type Err = Error;

    fn from_str(text: &str) -> Result<Arm> {
        Arm::ALL.into_iter().find(|arm| arm.name() == text).ok_or_else(|| {
            Error::Usage(format!("found {text:?}, expected some of {}", Arm::ALL.map(Arm::name).join(", ")))
        })
    }
}

/// What is trained and scored once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which of the study's shares.
    pub share: usize,
    /// Added to the recipe's seeds of search and recovery.
    pub seed: u64,
    pub arm: Arm,
    /// Which of the arm's candidates; `None` where it has one.
    pub candidate: Option<usize>,
}

/// `result.json` of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitResult {
    pub share: String,
    pub seed: u64,
    pub arm: Arm,
    pub candidate: Option<usize>,
    /// Gate → size.
    pub architecture: Value,
    pub parameters: u64,
    pub active_parameters: u64,
    /// Predicted cost over limit, by resource.
    pub rho: BTreeMap<String, f64>,
    /// Predicted cost over target, by resource: what the architecture was chosen by.
    pub rho_of_target: BTreeMap<String, f64>,
    /// KL from the parent on the held-out set, nats per token, as cut out and after recovery.
    pub held_out_before: f64,
    pub held_out: f64,
    /// KL from the parent in the last steps of recovery, at most 25.
    pub recovery: f64,
    pub recovery_tokens: u64,
    /// The mean of the tasks' scores after recovery.
    pub task_mean: Option<f64>,
    /// `None` where the architecture was not searched for.
    pub search: Option<SearchOutcome>,
    /// `None` where it was not screened for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub screening: Option<ScreeningOutcome>,
    /// Work of the process that finished it.
    pub seconds: f64,
}

impl UnitResult {
    /// Of search or screening, and recovery.
    pub fn tokens(&self) -> u64 {
        let searched = self.search.as_ref().map_or(0, |search| search.tokens);
        self.recovery_tokens + searched + self.screening.as_ref().map_or(0, |screening| screening.tokens)
    }
}

/// How a screening went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScreeningOutcome {
    pub candidates: usize,
    /// Candidates × steps × tokens of a step, and the first losses where those said which are trained.
    pub tokens: u64,
    /// Of those that were trained, the best first.
    pub scores: Vec<f64>,
}

impl Unit {
    /// Its folder, in the run directory.
    pub fn folder(&self, share: &Share) -> String {
        let mut folder = format!("study/{}/{}/{}", share.label, self.seed, self.arm.name());
        if let Some(candidate) = self.candidate {
            folder += &format!("/{candidate}");
        }
        folder
    }

    pub fn result_path(&self, c: &Compression, share: &Share) -> PathBuf {
        c.path(&self.folder(share)).join("result.json")
    }

    /// What was stored, where it was finished before.
    pub fn read(&self, c: &Compression, share: &Share) -> Result<Option<UnitResult>> {
        let path = self.result_path(c, share);
        if !path.exists() {
            return Ok(None);
        }
        let result: UnitResult = files::read_json(&path, "a unit's result").map_err(made_again)?;
        c.space.choice_from_json(&path, &result.architecture).map_err(made_again)?;
        let found = (result.share.as_str(), result.seed, result.arm, result.candidate);
        let expected = (share.label.as_str(), self.seed, self.arm, self.candidate);
        if found != expected {
            let expected = format!("{expected:?}, by its folder");
            return Err(made_again(Error::input(&path, "unit", format!("{found:?}"), expected)));
        }
        Ok(Some(result))
    }

    /// Chooses, recovers and scores; trains in `search/` and `recover/` of its folder and leaves `result.json` last.
    pub fn run(&self, study: &Study<'_>) -> Result<UnitResult> {
        let start = Instant::now();
        let (c, share, bench) = (study.c, &study.shares[self.share], study.bench()?);
        let folder = self.folder(share);
        c.run.folder(&folder)?;
        let Chosen { choice, search, screening } = self.choose(study, &folder)?;
        let student = extract(&bench.sorted, &c.space, &choice)?;
        let parameters = student.config.parameters();
        let held_out_before = bench.held_out(c, &student)?;
        let recipe = recover_recipe(&c.recipe.recover, self.seed);
        let (student, recovered) = recover::recover(c, "recover", &recipe, student, &format!("{folder}/recover"))?;
        let result = UnitResult {
            share: share.label.clone(),
            seed: self.seed,
            arm: self.arm,
            candidate: self.candidate,
            architecture: c.space.choice_to_json(&choice)?,
            parameters: parameters.total,
            active_parameters: parameters.active,
            rho: by_name(&share.model.resources, |resource| resource.rho(&choice.0)),
            rho_of_target: by_name(&share.targets, |target| target.rho(&choice.0)),
            held_out_before,
            held_out: bench.held_out(c, &student)?,
            recovery: recovered.loss,
            recovery_tokens: recovered.tokens,
            task_mean: evaluate::score(c, &student)?.and_then(|evaluation| evaluation.mean_accuracy),
            search,
            screening,
            seconds: start.elapsed().as_secs_f64(),
        };
        files::write_json(&self.result_path(c, share), &result)?;
        for training in ["search", "recover"] {
            // They are many times the model's size, and nothing goes on from them.
            let checkpoints = c.path(&format!("{folder}/{training}/checkpoints"));
            if checkpoints.exists() {
                files::remove_dir(&checkpoints)?;
            }
        }
        Ok(result)
    }

    fn choose(&self, study: &Study<'_>, folder: &str) -> Result<Chosen> {
        let (c, share) = (study.c, &study.shares[self.share]);
        let candidate = self.candidate.unwrap_or(0);
        if let Some(recipe) = self.arm.search(&c.recipe.search, self.seed) {
            let (choice, outcome) = searched(c, study.bench()?, &recipe, &share.targets, &format!("{folder}/search"))?;
            return Ok(Chosen { choice, search: Some(outcome), screening: None });
        }
        let (choice, screening) = match self.arm {
            Arm::Random => {
                let seed = self.seed.wrapping_shl(32).wrapping_add(candidate as u64);
                (baseline::random(&c.space, &share.targets, c.recipe.search.delta, seed)?, None)
            }
            Arm::Minitron => {
                let (choice, outcome) = self.screened(study, &format!("{folder}/screen"))?;
                (choice, Some(outcome))
            }
            _ => (study.uniform[self.share].choices[candidate].clone(), None),
        };
        Ok(Chosen { choice, search: None, screening })
    }

    /// The share's uniform candidates, screened on the seed's batches.
    fn screened(&self, study: &Study<'_>, folder: &str) -> Result<(Choice, ScreeningOutcome)> {
        let (c, targets, candidates) = (study.c, &study.shares[self.share].targets, &study.uniform[self.share]);
        let recipe = recover_recipe(&c.recipe.recover, self.seed);
        let sorted = &study.bench()?.sorted;
        let screened =
            screen::screen(c, &recipe, &candidates.uniform(), targets, sorted, folder).map_err(made_again)?;
        let scores: Vec<f64> = screened.trained().filter_map(|candidate| candidate.score).collect();
        let Some(best) = screened.trained().next() else {
            return Err(Error::contract("study", "uniform candidates", "none", "at least one of a share that screens"));
        };
        let outcome = ScreeningOutcome { candidates: candidates.choices.len(), tokens: screened.tokens, scores };
        Ok((candidates.choices[best.number].clone(), outcome))
    }
}

/// An architecture, and how it was found.
struct Chosen {
    choice: Choice,
    search: Option<SearchOutcome>,
    screening: Option<ScreeningOutcome>,
}

/// Says of a damaged file of a study how to have it made again.
pub fn made_again(error: Error) -> Error {
    match error {
        Error::Input { file, at, found, expected } => {
            Error::Input { file, at, found, expected: format!("{expected}; delete the file, and it is made again") }
        }
        other => other,
    }
}

/// The recipe with the seed's data order: the same batches for all arms.
fn recover_recipe(recipe: &RecoverRecipe, seed: u64) -> RecoverRecipe {
    let mut recipe = recipe.clone();
    recipe.training.seed = recipe.training.seed.wrapping_add(seed);
    recipe
}

fn by_name(resources: &[Resource], rho: impl Fn(&Resource) -> f64) -> BTreeMap<String, f64> {
    resources.iter().map(|resource| (resource.name.clone(), rho(resource))).collect()
}
