//! The masks of a supernet, where the blocks apply them.

use serde::{Deserialize, Serialize};

use crate::autograd::{Mask, Var};

/// Where the mask of the expert axis acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpertMasking {
    /// On the chosen experts' outputs: routing stays the parent's.
    #[default]
    Output,
    /// On the scores: a masked expert is not chosen. Kept for comparison.
    Score,
}

/// The masks of one layer. `None` keeps everything.
#[derive(Clone, Debug, Default)]
pub struct LayerMasks {
    /// Axis d: this layer's norm divides by its sum, its output is multiplied by it.
    pub hidden: Option<Mask>,
    /// Axis H, Mamba layers: over heads, period H/G.
    pub heads: Option<Mask>,
    /// The layer's own gate {keep, remove}: one interval, over the block's output.
    pub keep: Option<Mask>,
    /// Axis E, MoE layers: over experts, period E/n_group.
    pub experts: Option<Mask>,
    /// Axis F: over the routed experts' width.
    pub routed: Option<Mask>,
    /// Axis S: over the shared expert's width (an MLP layer's width).
    pub shared: Option<Mask>,
    pub expert_masking: ExpertMasking,
}

impl LayerMasks {
    fn fields(&self) -> [&Option<Mask>; 6] {
        [&self.hidden, &self.heads, &self.keep, &self.experts, &self.routed, &self.shared]
    }

    /// The differentiable parts, in a fixed order.
    pub fn keeps(&self) -> Vec<&Var> {
        self.fields().into_iter().flatten().map(|mask| &mask.keep).collect()
    }

    /// The same masks with other probabilities, in the order of [`LayerMasks::keeps`].
    pub fn with_keeps(&self, keeps: &[Var]) -> LayerMasks {
        let mut masks = self.clone();
        let mut keeps = keeps.iter();
        let fields = [
            &mut masks.hidden,
            &mut masks.heads,
            &mut masks.keep,
            &mut masks.experts,
            &mut masks.routed,
            &mut masks.shared,
        ];
        for (mask, keep) in fields.into_iter().flatten().zip(&mut keeps) {
            mask.keep = keep.clone();
        }
        masks
    }
}

/// All masks of a model.
#[derive(Clone, Debug, Default)]
pub struct Masks {
    /// Axis d, on the embedding's output and the final norm.
    pub hidden: Option<Mask>,
    /// One entry per layer.
    pub layers: Vec<LayerMasks>,
}
