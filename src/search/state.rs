//! What a search knows of itself after a step, and how it writes that down.

use serde_json::{Map, Value, json};

use super::token_share::TokenShare;
use crate::supernet::{Axis, Choice, SearchSpace};

/// A gate's candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct GateState {
    pub name: String,
    /// softmax(κ·z), in the candidates' order.
    pub probabilities: Vec<f64>,
    /// Whether a gradient has ever reached the gate.
    pub moved: bool,
}

impl GateState {
    /// The largest probability.
    pub fn leading(&self) -> f64 {
        self.probabilities.iter().copied().fold(0.0, f64::max)
    }
}

/// Euclidean norms of a step's gradients with respect to the logits of an axis's gates.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisNorms {
    pub axis: Axis,
    pub distillation: f64,
    pub budget: f64,
}

/// A search after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchState {
    pub kappa: f32,
    pub tau: f32,
    /// Mean over the step's valid tokens, in nats.
    pub distillation: f64,
    /// With its factor α; what the loss adds to the distillation.
    pub penalty: f64,
    /// Per resource: its name, ρ as the mean over the step's draws, ρ of the leading candidates after the step.
    pub rho: Vec<(String, f64, f64)>,
    pub norms: Vec<AxisNorms>,
    /// After the step, at the step's κ.
    pub gates: Vec<GateState>,
    /// The leading candidate of every gate.
    pub choice: Choice,
    /// Whether every gate has moved and its leading candidate has the probability that ends the search.
    pub converged: bool,
    /// By the expert gate's name; `None` unless [`SearchOptions::token_shares`](super::SearchOptions::token_shares) asks.
    pub token_shares: Option<Vec<(String, TokenShare)>>,
}

impl SearchState {
    /// The keys that a step's line of metrics gets.
    pub fn write(&self, line: &mut Map<String, Value>) {
        let object = |entries: &mut dyn Iterator<Item = (String, Value)>| Value::Object(entries.collect());
        let least = self.gates.iter().map(GateState::leading).fold(1.0, f64::min);
        let rho = &mut self.rho.iter().map(|(name, mean, hard)| (name.clone(), json!({ "mean": mean, "hard": hard })));
        let norms = &mut self.norms.iter().map(|norms| {
            (norms.axis.name().to_owned(), json!({ "distillation": norms.distillation, "budget": norms.budget }))
        });
        let gates = &mut self
            .gates
            .iter()
            .map(|gate| (gate.name.clone(), json!({ "leading": gate.leading(), "probabilities": gate.probabilities })));
        line.insert("kappa".into(), json!(self.kappa));
        line.insert("tau".into(), json!(self.tau));
        line.insert("distillation".into(), json!(self.distillation));
        line.insert("penalty".into(), json!(self.penalty));
        line.insert("rho".into(), object(rho));
        line.insert("logit_gradient_norms".into(), object(norms));
        line.insert("least_leading_probability".into(), json!(least));
        line.insert("gates".into(), object(gates));
        line.insert("converged".into(), self.converged.into());
        if let Some(shares) = &self.token_shares {
            let shares = &mut shares.iter().map(|(gate, share)| (gate.clone(), json!(share)));
            line.insert("expert_token_shares".into(), object(shares));
        }
    }
}

/// The norm over the gates of each axis of the space, in the axes' order.
pub fn axis_norms(space: &SearchSpace, distillation: &[Vec<f64>], budget: &[Vec<f64>]) -> Vec<AxisNorms> {
    let mut axes: Vec<Axis> = space.gates.iter().map(|gate| gate.axis).collect();
    axes.sort_unstable();
    axes.dedup();
    let norm = |gradients: &[Vec<f64>], axis: Axis| {
        let of_axis = space.gates.iter().zip(gradients).filter(|(gate, _)| gate.axis == axis);
        of_axis.flat_map(|(_, gradient)| gradient).map(|g| g * g).sum::<f64>().sqrt()
    };
    (axes.into_iter())
        .map(|axis| AxisNorms { axis, distillation: norm(distillation, axis), budget: norm(budget, axis) })
        .collect()
}
