//! What a report says, as numbers. `report.json` is a [`Report`], and `report.html` draws the same one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::floats;
use crate::engine::profile::Workload;

/// A compression from its parent to the measured student.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of the run: the recipe's file name without its ending.
    pub name: String,
    pub machine: Machine,
    pub deployment: Deployment,
    /// Whether the measured student is within every limit.
    pub met: bool,
    /// One for each limit of the contract.
    pub limits: Vec<LimitResult>,
    pub parent: ModelResult,
    pub student: ModelResult,
    pub quality: Quality,
    /// How the architecture was searched for; `None` where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchResult>,
    /// How a uniform architecture was chosen: the baseline Minitron++.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screening: Option<ScreeningResult>,
    pub repair: RepairResult,
    pub recovery: RecoveryResult,
    pub cost_model: CostModelResult,
    pub reproduce: Reproduce,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    /// That this process may use.
    pub cores: usize,
    pub memory_bytes: Option<u64>,
    /// Operating system and architecture.
    pub system: String,
}

/// Where and how the models were served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    pub device: String,
    pub engine: String,
    pub precision: String,
    pub threads: usize,
    pub workload: Workload,
}

/// A limit, what was predicted, and what was measured. All numbers are in `unit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// "latency", "memory", "throughput".
    pub resource: String,
    /// "ms", "MiB", "tokens/s".
    pub unit: String,
    /// True where more is better: the limit is a least value.
    pub at_least: bool,
    /// What the measured student is held to. For a share of the parent's cost: of the parent as measured beside it.
    #[serde(with = "floats")]
    pub limit: f64,
    /// The share of the parent's cost that the contract asks for, where it asks for one.
    #[serde(with = "floats")]
    pub share_of_parent: Option<f64>,
    #[serde(with = "floats")]
    pub parent_predicted: f64,
    #[serde(with = "floats")]
    pub parent_measured: f64,
    #[serde(with = "floats")]
    pub student_predicted: f64,
    #[serde(with = "floats")]
    pub student_measured: f64,
    /// Between the quartiles of the student's repeats; 0 for memory.
    #[serde(with = "floats")]
    pub student_iqr: f64,
    pub met: bool,
}

/// One of the two models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelResult {
    pub folder: String,
    pub parameters: u64,
    pub active_parameters: u64,
    pub hidden_size: usize,
    /// One per layer of the parent.
    pub layers: Vec<LayerResult>,
    #[serde(with = "floats")]
    pub prefill_ms: f64,
    #[serde(with = "floats")]
    pub decode_step_ms: f64,
    #[serde(with = "floats")]
    pub request_ms: f64,
    #[serde(with = "floats")]
    pub tokens_per_second: f64,
    #[serde(with = "floats")]
    pub peak_mib: f64,
    /// Of the whole process, so of all models that it holds.
    #[serde(with = "floats")]
    pub resident_mib: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerResult {
    /// "mamba", "moe", "attention", "mlp", "removed".
    pub kind: String,
    /// Sizes by their letters: H for Mamba and attention, E, F, S for MoE, S for an MLP.
    pub sizes: BTreeMap<String, usize>,
    pub parameters: u64,
    /// Predicted, of a whole request.
    #[serde(with = "floats")]
    pub request_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Per part (a task, a kind of record): empty where the data have no answers to score.
    pub tasks: Vec<TaskResult>,
    /// Per part without answers, such as texts: the loss alone.
    pub losses: Vec<LossResult>,
    /// Mean accuracy over the parts; of the parent, the student as cut out, the recovered student.
    pub mean: Option<TaskResult>,
    /// KL from parent to student on the fixed held-out set, nats per token.
    #[serde(with = "floats")]
    pub held_out_before_recovery: f64,
    #[serde(with = "floats")]
    pub held_out_after_recovery: f64,
    pub held_out_tokens: u64,
}

/// Next-token losses, nats per token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossResult {
    pub name: String,
    pub items: usize,
    #[serde(with = "floats")]
    pub parent: f64,
    /// As cut out of the parent, before recovery.
    #[serde(with = "floats")]
    pub extracted: f64,
    #[serde(with = "floats")]
    pub student: f64,
}

/// Shares from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    pub name: String,
    pub items: usize,
    #[serde(with = "floats")]
    pub parent: f64,
    /// As cut out of the parent, before recovery.
    #[serde(with = "floats")]
    pub extracted: f64,
    #[serde(with = "floats")]
    pub student: f64,
}

/// The search, step by step; every list over steps has the length of `steps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    pub architectures: String,
    pub gates: Vec<GateCurve>,
    pub converged: bool,
    pub tokens: u64,
    pub draws: usize,
    /// The part of a limit that may stay unused without a penalty.
    #[serde(with = "floats")]
    pub delta: f64,
    /// "each" or "binding": whose unused budget is penalised.
    pub slack: String,
    /// The leading probability from which on a gate counts as decided.
    #[serde(with = "floats")]
    pub converged_at: f64,
    pub steps: Vec<u64>,
    /// KL from parent to the masked supernet, nats per token.
    #[serde(with = "floats")]
    pub distillation: Vec<f64>,
    /// With its factor α.
    #[serde(with = "floats")]
    pub penalty: Vec<f64>,
    #[serde(with = "floats")]
    pub kappa: Vec<f64>,
    #[serde(with = "floats")]
    pub tau: Vec<f64>,
    /// By resource: expected cost / target, mean over draws.
    #[serde(with = "floats")]
    pub rho: BTreeMap<String, Vec<f64>>,
    /// By axis: norms of the gradients of its gates' logits.
    #[serde(with = "floats")]
    pub distillation_norms: BTreeMap<String, Vec<f64>>,
    #[serde(with = "floats")]
    pub budget_norms: BTreeMap<String, Vec<f64>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateCurve {
    /// `hidden_size`, `layers.3.experts`, …
    pub name: String,
    /// "hidden_size", "mamba.heads", "keep", "experts", "intermediate", "shared_intermediate".
    pub axis: String,
    pub layer: Option<usize>,
    pub candidates: Vec<usize>,
    /// `[steps][candidates]`: softmax(κ·z).
    #[serde(with = "floats")]
    pub probabilities: Vec<Vec<f64>>,
    /// The size in the student.
    pub chosen: usize,
}

/// The screening of uniform architectures by a short distillation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScreeningResult {
    /// Uniform architectures within the targets, and those of them that cannot grow.
    pub within: usize,
    pub maximal: usize,
    /// "each", "binding" or "neither": of which limits a candidate uses `floor` or more.
    pub reach: String,
    #[serde(with = "floats")]
    pub floor: f64,
    /// Of each candidate that was trained; the mean loss of the last `scored_steps` is its score.
    pub steps: u64,
    pub scored_steps: u64,
    pub tokens: u64,
    /// The trained ones, the least score first; then the others.
    pub candidates: Vec<ScreenedResult>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScreenedResult {
    /// By axis, as a space file names it.
    pub sizes: BTreeMap<String, usize>,
    /// Predicted cost / target, by resource.
    #[serde(with = "floats")]
    pub rho: BTreeMap<String, f64>,
    /// KL from the parent on the first batch before any training, nats per token.
    #[serde(with = "floats")]
    pub first_loss: f64,
    /// `None` where it was not trained.
    #[serde(with = "floats")]
    pub score: Option<f64>,
    /// KL of every step.
    #[serde(with = "floats")]
    pub losses: Vec<f64>,
    /// Whether it is the student.
    pub chosen: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepairResult {
    /// Cost / target of the gates' leading candidates, before the repair.
    #[serde(with = "floats")]
    pub rho_before: BTreeMap<String, f64>,
    #[serde(with = "floats")]
    pub rho_after: BTreeMap<String, f64>,
    pub gates: usize,
    /// Names of those whose size is not the leading candidate.
    pub gates_changed: Vec<String>,
    /// One for each time that the architecture was measured before recovery.
    pub rounds: Vec<RoundResult>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundResult {
    /// By resource, in the limit's unit: what the repair aimed at, predicted, measured, and what the limit was then.
    #[serde(with = "floats")]
    pub target: BTreeMap<String, f64>,
    #[serde(with = "floats")]
    pub predicted: BTreeMap<String, f64>,
    #[serde(with = "floats")]
    pub measured: BTreeMap<String, f64>,
    #[serde(with = "floats")]
    pub limit: BTreeMap<String, f64>,
    pub met: bool,
    pub gates_changed: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryResult {
    pub tokens: u64,
    pub steps: Vec<u64>,
    /// KL from parent to student of each step, nats per token.
    #[serde(with = "floats")]
    pub loss: Vec<f64>,
    /// Mean of the last steps, at most 25.
    #[serde(with = "floats")]
    pub final_loss: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModelResult {
    /// Of the table that was measured.
    pub rows: usize,
    /// The margin kept from a limit: the 95th percentile of the held-out errors, by resource.
    #[serde(with = "floats")]
    pub margin: BTreeMap<String, f64>,
    /// Whole models, held out: the parent, random architectures, and the student.
    pub points: Vec<CostPoint>,
    /// What predicted times of `points` are multiplied with: where limits are shares of the parent's time, the machine's
    /// speed when whole models were measured against that when the table was; else 1.
    #[serde(with = "floats")]
    pub drift: f64,
    /// By resource: median and worst of |predicted − measured| / measured over `points`.
    #[serde(with = "floats")]
    pub median_error: BTreeMap<String, f64>,
    #[serde(with = "floats")]
    pub worst_error: BTreeMap<String, f64>,
    /// Rows of the table for the hidden sizes of parent and student.
    pub table: Vec<CostRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostPoint {
    /// "parent", "student", or the number of a random architecture.
    pub name: String,
    #[serde(with = "floats")]
    pub predicted_ms: f64,
    #[serde(with = "floats")]
    pub measured_ms: f64,
    #[serde(with = "floats")]
    pub predicted_mib: f64,
    #[serde(with = "floats")]
    pub measured_mib: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostRow {
    pub hidden_size: usize,
    /// "mamba H16 P16 …", "moe E16 F64 …", "rest".
    pub part: String,
    #[serde(with = "floats")]
    pub prefill_ms: f64,
    /// Of one step, mean over the workload's contexts.
    #[serde(with = "floats")]
    pub decode_us: f64,
    #[serde(with = "floats")]
    pub weights_bytes: f64,
    #[serde(with = "floats")]
    pub cache_bytes: f64,
    #[serde(with = "floats")]
    pub workspace_bytes: f64,
}

/// Everything needed to do it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduce {
    pub version: String,
    pub command: String,
    /// The recipe file, word for word.
    pub recipe: String,
    /// Digests of what the recipe reads.
    pub inputs: BTreeMap<String, String>,
    /// Wall time of each stage in this run, where this process did it.
    #[serde(with = "floats")]
    pub seconds: BTreeMap<String, f64>,
}
