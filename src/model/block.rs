//! What every block sees, and the weights it owns.

use super::cache::LayerCache;
use super::masks::LayerMasks;
use super::probe::{LayerProbe, Reading};
use super::products::StepProducts;
use crate::autograd::{ParamId, Params, Tape, Var};
use crate::tensor::{Segments, Tensor};
use crate::{Error, Result};

/// The surroundings of a block's forward pass.
pub struct Context<'c> {
    pub params: &'c Params,
    /// How the rows form sequences.
    pub segments: &'c Segments,
    pub masks: &'c LayerMasks,
    /// `[S]`: the cached sequence that each segment continues; empty without a cache.
    pub sequences: &'c [usize],
    /// How the layer's products are quantised, where they are.
    pub products: Option<StepProducts>,
    /// Reads activations on their way; most passes have none.
    pub probe: Option<LayerProbe<'c>>,
}

impl Context<'_> {
    pub fn param(&self, tape: &Tape<'_>, id: ParamId) -> Var {
        tape.param(self.params, id)
    }

    /// Shows the probe, where there is one, an activation.
    pub fn read(&self, reading: Reading<'_>) -> Result<()> {
        self.probe.map_or(Ok(()), |LayerProbe { layer, probe }| probe.read(layer, reading))
    }
}

/// A layer's mixer: what lies between the norm and the residual stream.
pub trait Mixer {
    /// x [R, d], normalised → [R, d]. A MoE mixer adds its experts' row offsets, u32 [E + 1], to `loads`.
    fn forward(
        &self,
        tape: &Tape<'_>,
        x: &Var,
        ctx: &Context<'_>,
        cache: Option<&mut LayerCache>,
        loads: Option<&mut Vec<Tensor>>,
    ) -> Result<Var>;
}

/// Finds a layer's parameters by name.
pub struct Names<'n> {
    pub params: &'n Params,
    /// `backbone.layers.i.mixer`, or the prefix of other parts.
    pub prefix: String,
}

impl Names<'_> {
    pub fn get(&self, name: &str) -> Result<ParamId> {
        let name = format!("{}.{name}", self.prefix);
        self.params.find(&name).ok_or_else(|| Error::Contract {
            op: "model",
            argument: "parameter",
            found: format!("no {name}"),
            expected: "every parameter of the configuration".into(),
        })
    }

    pub fn optional(&self, name: &str, present: bool) -> Result<Option<ParamId>> {
        if present { self.get(name).map(Some) } else { Ok(None) }
    }
}
