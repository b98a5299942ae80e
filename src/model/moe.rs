//! The mixture-of-experts mixer: routed experts (in a latent space, where the model has one) plus a shared expert.

use super::block::{Context, Mixer, Names};
use super::cache::LayerCache;
use super::config::Moe;
use super::masks::ExpertMasking;
use super::mlp::MlpMixer;
use super::probe::Reading;
use crate::Result;
use crate::autograd::{ParamId, Tape, Var};
use crate::ops::linear::linear_wide;
use crate::ops::moe_combine::moe_combine;
use crate::ops::moe_permute::{Dispatch, moe_permute};
use crate::ops::moe_route::{RouteOptions, moe_route};
use crate::ops::relu2::relu2;
use crate::ops::residual_add::residual_add;
use crate::tensor::Tensor;

pub struct MoeMixer {
    experts: usize,
    route: RouteOptions,
    gate: ParamId,
    correction_bias: ParamId,
    up: ParamId,
    down: ParamId,
    latent: Option<(ParamId, ParamId)>,
    shared: Option<MlpMixer>,
}

impl MoeMixer {
    pub fn new(sizes: &Moe, names: &Names<'_>) -> Result<MoeMixer> {
        let shared = Names { params: names.params, prefix: format!("{}.shared_experts", names.prefix) };
        let latent = match sizes.latent {
            Some(_) => Some((names.get("fc1_latent_proj.weight")?, names.get("fc2_latent_proj.weight")?)),
            None => None,
        };
        Ok(MoeMixer {
            experts: sizes.experts,
            route: RouteOptions {
                top_k: sizes.top_k,
                n_group: sizes.n_group,
                topk_group: sizes.topk_group,
                norm_topk_prob: sizes.norm_topk_prob,
                routed_scaling_factor: sizes.routed_scaling_factor,
            },
            gate: names.get("gate.weight")?,
            correction_bias: names.get("gate.e_score_correction_bias")?,
            up: names.get("experts.up_proj.weight")?,
            down: names.get("experts.down_proj.weight")?,
            latent,
            shared: if sizes.shared_intermediate > 0 { Some(MlpMixer::new(&shared)?) } else { None },
        })
    }

    /// The experts' share: x [R, d] → [R, d].
    fn routed(&self, tape: &Tape<'_>, x: &Var, ctx: &Context<'_>, loads: Option<&mut Vec<Tensor>>) -> Result<Var> {
        let masks = ctx.masks;
        let (score_mask, output_mask) = match masks.expert_masking {
            ExpertMasking::Score => (masks.experts.as_ref(), None),
            ExpertMasking::Output => (None, masks.experts.as_ref()),
        };
        let logits = linear_wide(tape, x, &ctx.param(tape, self.gate))?;
        let bias = &ctx.params.get(self.correction_bias).value;
        let routing = moe_route(tape, &logits, bias, self.route, score_mask)?;
        let draws = masks.routed.as_ref().map(|mask| &mask.draws);
        let dispatch = Dispatch::of(&routing.experts, self.route.top_k, self.experts, draws)?;
        if let Some(loads) = loads {
            loads.push(dispatch.loads()?);
        }
        let inner = match self.latent {
            Some((down, _)) => ctx.linear(tape, x, down)?,
            None => x.clone(),
        };
        let rows = moe_permute(tape, &inner, &dispatch)?;
        let up = ctx.grouped_gemm(tape, &rows, self.up, &dispatch)?;
        let width = masks.routed.as_ref().zip(dispatch.draws()).map(|(mask, draws)| mask.with_draws(draws.clone()));
        let activation = relu2(tape, &up, width.as_ref())?;
        let down = ctx.grouped_gemm(tape, &activation, self.down, &dispatch)?;
        ctx.read(Reading::Experts {
            activation: activation.value(),
            output: down.value(),
            weights: routing.weights.value(),
            dispatch: &dispatch,
        })?;
        let combined = moe_combine(tape, &down, &routing.weights, &dispatch, output_mask)?;
        match self.latent {
            Some((_, up)) => ctx.linear(tape, &combined, up),
            None => Ok(combined),
        }
    }
}

impl Mixer for MoeMixer {
    fn forward(
        &self,
        tape: &Tape<'_>,
        x: &Var,
        ctx: &Context<'_>,
        cache: Option<&mut LayerCache>,
        loads: Option<&mut Vec<Tensor>>,
    ) -> Result<Var> {
        LayerCache::refuse("moe", cache)?;
        let routed = self.routed(tape, x, ctx, loads)?;
        match &self.shared {
            Some(shared) => {
                let shared = shared.apply(tape, x, ctx, ctx.masks.shared.as_ref())?;
                residual_add(tape, &routed, &shared, None, None)
            }
            None => Ok(routed),
        }
    }
}
