//! The Mamba-2 mixer (Dao & Gu, arXiv 2405.21060).

use super::block::{Context, Mixer, Names};
use super::cache::{LayerCache, MambaCache, gather, scatter};
use super::config::Mamba;
use super::probe::Reading;
use crate::autograd::{ParamId, Tape, Var};
use crate::ops::causal_conv1d::{causal_conv1d, next_state};
use crate::ops::gated_group_norm::gated_group_norm;
use crate::ops::ssd_scan::{ScanOptions, ssd_scan};
use crate::tensor::Tensor;
use crate::{Error, Result};

pub struct MambaMixer {
    sizes: Mamba,
    eps: f32,
    in_proj: ParamId,
    conv_weight: ParamId,
    conv_bias: Option<ParamId>,
    a_log: ParamId,
    d: ParamId,
    dt_bias: ParamId,
    norm: ParamId,
    out_proj: ParamId,
}

impl MambaMixer {
    pub fn new(sizes: &Mamba, eps: f32, names: &Names<'_>) -> Result<MambaMixer> {
        Ok(MambaMixer {
            sizes: *sizes,
            eps,
            in_proj: names.get("in_proj.weight")?,
            conv_weight: names.get("conv1d.weight")?,
            conv_bias: names.optional("conv1d.bias", sizes.conv_bias)?,
            a_log: names.get("A_log")?,
            d: names.get("D")?,
            dt_bias: names.get("dt_bias")?,
            norm: names.get("norm.weight")?,
            out_proj: names.get("out_proj.weight")?,
        })
    }
}

impl Mixer for MambaMixer {
    fn forward(
        &self,
        tape: &Tape<'_>,
        x: &Var,
        ctx: &Context<'_>,
        cache: Option<&mut LayerCache>,
        _: Option<&mut Vec<Tensor>>,
    ) -> Result<Var> {
        let s = &self.sizes;
        let param = |id| ctx.param(tape, id);
        let cache = match cache {
            Some(LayerCache::Mamba(cache)) => Some(cache),
            None => None,
            Some(_) => return Err(Error::contract("mamba", "cache", "another layer's", "a Mamba layer's")),
        };
        let parts = ctx.linear_split(tape, x, self.in_proj, &[s.inner(), s.conv_channels(), s.heads])?;
        let [z, xbc, dt] = &parts[..] else { unreachable!("three widths, three parts") };
        ctx.read(Reading::MambaInput(xbc.value()))?;

        let before = cache.as_ref().map(|c| gather(&c.conv, ctx.sequences)).transpose()?;
        let bias = self.conv_bias.map(param);
        let conv = causal_conv1d(tape, xbc, &param(self.conv_weight), bias.as_ref(), ctx.segments, before.as_ref())?;

        let initial = cache.as_ref().map(|c| gather(&c.ssm, ctx.sequences)).transpose()?.map(Var::constant);
        let options = ScanOptions {
            heads: s.heads,
            head_dim: s.head_dim,
            groups: s.groups,
            state: s.state,
            chunk: s.chunk_size,
            dt_limit: s.time_step_limit,
            segments: ctx.segments,
            initial: initial.as_ref(),
            mask: ctx.masks.heads.as_ref(),
            final_state: cache.is_some(),
        };
        let scan = ssd_scan(tape, &conv, dt, &param(self.a_log), &param(self.d), &param(self.dt_bias), &options)?;

        if let (Some(MambaCache { conv, ssm }), Some(state)) = (cache, &scan.final_state) {
            let inputs = next_state(xbc.value(), ctx.segments, s.conv_kernel, before.as_ref())?;
            scatter(conv, &inputs, ctx.sequences)?;
            scatter(ssm, state.value(), ctx.sequences)?;
        }
        let mask = ctx.masks.heads.as_ref().map(|mask| (mask, s.head_dim));
        let y = gated_group_norm(tape, &scan.y, z, &param(self.norm), s.groups, self.eps, mask)?;
        ctx.linear(tape, &y, self.out_proj)
    }
}
