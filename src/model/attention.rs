//! Causal grouped-query attention without positional embedding.

use std::ops::Range;

use super::block::{Context, Mixer, Names};
use super::cache::LayerCache;
use super::config::Attention;
use crate::autograd::{ParamId, Tape, Var};
use crate::ops::attention::{AttentionDims, attention};
use crate::ops::linear::linear;
use crate::tensor::Tensor;
use crate::{Error, Result};

pub struct AttentionMixer {
    dims: AttentionDims,
    q: ParamId,
    k: ParamId,
    v: ParamId,
    o: ParamId,
}

impl AttentionMixer {
    pub fn new(sizes: &Attention, names: &Names<'_>) -> Result<AttentionMixer> {
        Ok(AttentionMixer {
            dims: AttentionDims { heads: sizes.heads, kv_heads: sizes.kv_heads, head_dim: sizes.head_dim },
            q: names.get("q_proj.weight")?,
            k: names.get("k_proj.weight")?,
            v: names.get("v_proj.weight")?,
            o: names.get("o_proj.weight")?,
        })
    }
}

impl Mixer for AttentionMixer {
    fn forward(
        &self,
        tape: &Tape<'_>,
        x: &Var,
        ctx: &Context<'_>,
        cache: Option<&mut LayerCache>,
        _: Option<&mut Vec<Tensor>>,
    ) -> Result<Var> {
        let project = |id| linear(tape, x, &ctx.param(tape, id));
        let (q, k, v) = (project(self.q)?, project(self.k)?, project(self.v)?);
        let y = match cache {
            None => {
                let keys: Vec<Range<usize>> = ctx.segments.iter().collect();
                attention(tape, &q, &k, &v, &self.dims, ctx.segments, &keys)?
            }
            Some(LayerCache::Attention(cache)) => {
                let keys = cache.append(k.value(), v.value(), ctx.segments, ctx.sequences)?;
                let (k, v) = (Var::constant(cache.keys.clone()), Var::constant(cache.values.clone()));
                attention(tape, &q, &k, &v, &self.dims, ctx.segments, &keys)?
            }
            Some(_) => return Err(Error::contract("attention", "cache", "another layer's", "an attention layer's")),
        };
        linear(tape, &y, &ctx.param(tape, self.o))
    }
}
