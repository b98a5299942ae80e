//! How a unit's search went.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Bench;
use crate::cost::Resource;
use crate::run::read_lines;
use crate::search::{SearchOptions, TokenShare, repair};
use crate::stages::compress::{Compression, SearchRecipe, search};
use crate::supernet::{Axis, Choice, SearchSpace};
use crate::{Error, Result};

/// How a search went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchOutcome {
    /// To convergence, or to the recipe's limit.
    pub steps: u64,
    pub tokens: u64,
    pub converged: bool,
    /// Distillation loss of the masked supernet over the last steps, at most 25, in nats per token.
    pub distillation: f64,
    /// Cost over target of the leading candidates, by resource.
    pub rho_before: BTreeMap<String, f64>,
    /// Names of the gates that the repair gave another candidate than the leading one.
    pub gates_changed: Vec<String>,
    /// Norm of the distillation loss's gradient with respect to all logits, mean over the steps.
    pub distillation_gradient_norm: f64,
    /// The same by axis.
    pub distillation_gradient_norms: BTreeMap<String, f64>,
    /// Which experts the supernet's tokens went to; `None` where the space has no expert gate, or where a step did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expert_tokens: Option<ExpertTokens>,
}

/// [`TokenShare`] as means over a search's steps and its MoE layers with an expert gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpertTokens {
    /// The share of tokens' (token, slot) pairs that go to experts which not every candidate keeps: Σ of the
    /// `by_candidate` of all candidates but the smallest.
    pub removable: f64,
    /// What it were if all experts got equally many: 1 − E_1/E_C.
    pub removable_if_even: f64,
    /// The busiest expert's pairs as a multiple of the mean expert's.
    pub busiest: f64,
    /// `removable` of the last steps, at most 25.
    pub removable_at_end: f64,
}

/// Searches in `folder` of the run directory, and repairs what is found.
pub fn searched(
    c: &Compression,
    bench: &Bench,
    recipe: &SearchRecipe,
    targets: &[Resource],
    folder: &str,
) -> Result<(Choice, SearchOutcome)> {
    let options = SearchOptions { token_shares: true, ..recipe.options() };
    let searched = search::search(c, recipe, options, &bench.sorted, targets, folder)?;
    let repaired = repair(&c.space, &searched.log_probabilities, targets, recipe.delta)?;
    let metrics = c.path(folder).join("metrics.jsonl");
    let lines = read_lines(&metrics)?;
    let (norm, norms) = gradient_norms(&metrics, &lines)?;
    let outcome = SearchOutcome {
        steps: searched.steps,
        tokens: searched.tokens,
        converged: searched.converged,
        distillation: searched.distillation,
        rho_before: targets.iter().map(|t| t.name.clone()).zip(repaired.rho_before).collect(),
        gates_changed: repaired.gates_changed,
        distillation_gradient_norm: norm,
        distillation_gradient_norms: norms,
        expert_tokens: ExpertTokens::of(&c.space, &metrics, &lines)?,
    };
    Ok((repaired.choice, outcome))
}

/// Norms of the distillation's gradient with respect to the logits: of all, and by axis; means over the steps.
fn gradient_norms(metrics: &Path, lines: &[Value]) -> Result<(f64, BTreeMap<String, f64>)> {
    let (mut all, mut by_axis, mut steps) = (0.0, BTreeMap::<String, f64>::new(), 0.0);
    for (i, line) in lines.iter().enumerate() {
        let norms = line.get("logit_gradient_norms").and_then(Value::as_object).ok_or_else(|| {
            let expected = "an object with logit_gradient_norms";
            Error::input(metrics, format!("line {}", i + 1), "another line", expected)
        })?;
        let mut squares = 0.0;
        for (axis, norm) in norms {
            let norm = norm.get("distillation").and_then(Value::as_f64).unwrap_or(f64::NAN);
            squares += norm * norm;
            *by_axis.entry(axis.clone()).or_default() += norm;
        }
        all += squares.sqrt();
        steps += 1.0;
    }
    by_axis.values_mut().for_each(|norm| *norm /= steps);
    Ok((all / steps.max(1.0), by_axis))
}

impl ExpertTokens {
    fn of(space: &SearchSpace, metrics: &Path, lines: &[Value]) -> Result<Option<ExpertTokens>> {
        let gates = space.gates.iter().filter(|gate| gate.axis == Axis::Experts);
        let evens: Vec<f64> = gates
            .map(|gate| 1.0 - gate.candidates[0] as f64 / gate.candidates[gate.candidates.len() - 1] as f64)
            .collect();
        let mut steps = Vec::with_capacity(lines.len());
        for (i, line) in lines.iter().enumerate() {
            // Steps that an earlier version did are not what the others' mean is compared with.
            let Some(shares) = line.get("expert_token_shares") else { return Ok(None) };
            let shares: BTreeMap<String, TokenShare> = serde_json::from_value(shares.clone()).map_err(|error| {
                let at = format!("line {}, expert_token_shares", i + 1);
                Error::input(metrics, at, error.to_string(), "token shares by gate")
            })?;
            let of = |value: &dyn Fn(&TokenShare) -> f64| mean(shares.values().map(value));
            steps.push((of(&|share| share.by_candidate.iter().skip(1).sum()), of(&|share| share.busiest)));
        }
        let last = &steps[steps.len().saturating_sub(25)..];
        Ok((!evens.is_empty() && !steps.is_empty()).then(|| ExpertTokens {
            removable: mean(steps.iter().map(|step| step.0)),
            removable_if_even: mean(evens.iter().copied()),
            busiest: mean(steps.iter().map(|step| step.1)),
            removable_at_end: mean(last.iter().map(|step| step.0)),
        }))
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}
