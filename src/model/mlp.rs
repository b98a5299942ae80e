//! The dense feed-forward mixer: down(relu(up x)²).

use super::block::{Context, Mixer, Names};
use super::cache::LayerCache;
use super::probe::Reading;
use crate::Result;
use crate::autograd::{Mask, ParamId, Tape, Var};
use crate::ops::relu2::relu2;
use crate::tensor::Tensor;

pub struct MlpMixer {
    up: ParamId,
    down: ParamId,
}

impl MlpMixer {
    /// `names` is the prefix of `up_proj` and `down_proj`: an MLP layer's mixer, or a MoE layer's shared expert.
    pub fn new(names: &Names<'_>) -> Result<MlpMixer> {
        Ok(MlpMixer { up: names.get("up_proj.weight")?, down: names.get("down_proj.weight")? })
    }

    /// x [R, d] → [R, d], the activation times `mask` (axis S).
    pub fn apply(&self, tape: &Tape<'_>, x: &Var, ctx: &Context<'_>, mask: Option<&Mask>) -> Result<Var> {
        let up = ctx.linear(tape, x, self.up)?;
        let activation = relu2(tape, &up, mask)?;
        ctx.read(Reading::Dense(activation.value()))?;
        ctx.linear(tape, &activation, self.down)
    }
}

impl Mixer for MlpMixer {
    fn forward(
        &self,
        tape: &Tape<'_>,
        x: &Var,
        ctx: &Context<'_>,
        cache: Option<&mut LayerCache>,
        _: Option<&mut Vec<Tensor>>,
    ) -> Result<Var> {
        LayerCache::refuse("mlp", cache)?;
        self.apply(tape, x, ctx, ctx.masks.shared.as_ref())
    }
}
