//! A look at activations while a model runs, for calibration.

use crate::Result;
use crate::ops::moe_permute::Dispatch;
use crate::tensor::Tensor;

/// An activation of one layer. R rows, one per token; M rows, one per (token, expert) pair.
#[derive(Clone, Copy)]
pub enum Reading<'r> {
    /// The mixer's input, after the layer's norm: [R, d].
    Normed(&'r Tensor),
    /// What a Mamba layer's convolution reads: [R, x | B | C], x being H·P columns.
    MambaInput(&'r Tensor),
    /// A routed expert's hidden activation and its output before weighting, rows sorted by expert.
    Experts {
        /// [M, F].
        activation: &'r Tensor,
        /// [M, L].
        output: &'r Tensor,
        /// [R, K].
        weights: &'r Tensor,
        dispatch: &'r Dispatch,
    },
    /// The hidden activation of a MoE layer's shared expert, [R, S], or of an MLP layer.
    Dense(&'r Tensor),
    /// The residual stream before and after the layer: [R, d]. The layer's last reading.
    Stream { before: &'r Tensor, after: &'r Tensor },
}

/// Reads activations, which are where the model computes; see [`super::Lm::forward_probed`].
pub trait Probe {
    /// # Errors
    /// On a GPU, where the activation cannot be read.
    fn read(&self, layer: usize, reading: Reading<'_>) -> Result<()>;
}

/// The probe of a pass, and the layer that is running.
#[derive(Clone, Copy)]
pub struct LayerProbe<'c> {
    pub layer: usize,
    pub probe: &'c dyn Probe,
}
