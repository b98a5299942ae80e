//! Which experts a search's tokens go to: what masking the scores changes and masking the outputs does not (docs/method.md, "Router
//! and masks", the alternatives of E).

use serde::{Deserialize, Serialize};

use crate::model::config::Layer;
use crate::supernet::{Axis, Gate, SearchSpace};

/// Where a MoE layer sends the tokens of a step. Of n_e (token, slot) pairs that go to the expert of rank e, counted from 0
/// within its routing group, Σ n over all experts, and candidates E_1 < … < E_C of the layer's expert gate:
///
/// ```text
/// by_candidate[c] = Σ n_e over the experts with E_(c−1)/G ≤ e < E_c/G, by Σ n        E_0 = 0, G routing groups
/// busiest         = E_C · max n_e / Σ n                                              1 where all have equally many
/// ```
///
/// Evenly spread tokens give `by_candidate[c]` = (E_c − E_(c−1)) / E_C. Pairs of all draws count, whatever their masks are;
/// those of micro-batches without a token to predict, which are not computed, do not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenShare {
    /// By the smallest candidate that keeps the expert, in the candidates' order; the shares add up to 1.
    pub by_candidate: Vec<f64>,
    /// The busiest expert's pairs, as a multiple of the mean expert's.
    pub busiest: f64,
}

/// Of every MoE layer with an expert gate, by the gate's name. `loads`: pairs of each expert, `[E]` per MoE layer in order.
pub fn token_shares(space: &SearchSpace, loads: &[Vec<u64>]) -> Vec<(String, TokenShare)> {
    let groups = |(i, layer): (usize, &Layer)| match layer {
        Layer::Moe(moe) => Some((i, moe.n_group)),
        _ => None,
    };
    let layers = space.parent.layers.iter().enumerate().filter_map(groups);
    let share = |((layer, groups), load): ((usize, usize), &Vec<u64>)| {
        let gate = &space.gates[space.gate(Axis::Experts, Some(layer))?];
        Some((gate.name.clone(), TokenShare::of(gate, groups, load)))
    };
    layers.zip(loads).filter_map(share).collect()
}

impl TokenShare {
    fn of(gate: &Gate, groups: usize, load: &[u64]) -> TokenShare {
        let period = load.len() / groups;
        let mut pairs = vec![0u64; gate.candidates.len()];
        for (expert, n) in load.iter().enumerate() {
            let keeps = |size: &usize| expert % period < size / groups;
            let first = gate.candidates.iter().position(keeps).unwrap_or(pairs.len() - 1);
            pairs[first] += n;
        }
        // No pair at all gives zeros.
        let all = pairs.iter().sum::<u64>().max(1) as f64;
        TokenShare {
            by_candidate: pairs.iter().map(|n| *n as f64 / all).collect(),
            busiest: load.len() as f64 * load.iter().copied().max().unwrap_or(0) as f64 / all,
        }
    }
}
