//! Rules that a configuration must keep, whoever made it.

use std::path::Path;

use super::keys::LARGEST;
use super::{Attention, Config, Layer, Mamba, Moe};
use crate::{Error, Result};

/// Elements of one tensor, at most: 2⁴⁸, so that bytes and sums of all tensors fit in 64 bits.
const MOST_ELEMENTS: u64 = 1 << 48;
/// Experts of one layer: more is a damaged file.
const MOST_EXPERTS: usize = 1 << 16;

/// Where an error is: the file, and the layer.
struct At<'a> {
    file: &'a Path,
    layer: String,
}

impl At<'_> {
    fn check(&self, ok: bool, key: &str, found: impl ToString, expected: impl Into<String>) -> Result<()> {
        if ok {
            Ok(())
        } else {
            Err(Error::input(self.file, format!("{}{key}", self.layer), found.to_string(), expected))
        }
    }

    fn sizes(&self, sizes: &[(&str, usize)]) -> Result<()> {
        let expected = || format!("from 1 to {LARGEST}");
        sizes.iter().try_for_each(|&(key, size)| self.check((1..=LARGEST).contains(&size), key, size, expected()))
    }
}

pub fn config(file: &Path, config: &Config) -> Result<()> {
    let top = At { file, layer: String::new() };
    top.sizes(&[("vocab_size", config.vocab_size), ("hidden_size", config.hidden_size)])?;
    top.check(!config.layers.is_empty(), "layers_block_type", "no layers", "at least one")?;
    let eps = config.norm_eps;
    top.check(eps.is_finite() && eps >= 0.0, "layer_norm_epsilon", eps, "a finite number, at least 0")?;
    let range = config.initializer_range;
    top.check(range.is_finite() && range >= 0.0, "initializer_range", range, "a finite number, at least 0")?;
    for (i, of_layer) in config.layers.iter().enumerate() {
        layer(&At { file, layer: format!("layer {i}: ") }, of_layer)?;
    }
    for (i, of_layer) in config.mtp.iter().flat_map(|mtp| mtp.layers.iter().enumerate()) {
        layer(&At { file, layer: format!("MTP layer {i}: ") }, of_layer)?;
    }
    for spec in config.tensors().iter().chain(&config.mtp_tensors()) {
        let elements = spec.shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
        if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
            return Err(Error::input(file, &spec.name, format!("shape {:?}", spec.shape), "at most 2^48 elements"));
        }
    }
    Ok(())
}

fn layer(at: &At, layer: &Layer) -> Result<()> {
    match layer {
        Layer::Mamba(sizes) => mamba(at, sizes),
        Layer::Moe(sizes) => moe(at, sizes),
        Layer::Attention(sizes) => attention(at, sizes),
        Layer::Mlp(sizes) => at.sizes(&[("intermediate_size", sizes.intermediate)]),
    }
}

fn mamba(at: &At, m: &Mamba) -> Result<()> {
    at.sizes(&[
        ("mamba_num_heads", m.heads),
        ("mamba_head_dim", m.head_dim),
        ("n_groups", m.groups),
        ("ssm_state_size", m.state),
        ("conv_kernel", m.conv_kernel),
        ("chunk_size", m.chunk_size),
    ])?;
    at.check(
        m.heads.is_multiple_of(m.groups),
        "mamba_num_heads",
        m.heads,
        format!("a multiple of n_groups = {}", m.groups),
    )?;
    let (low, high) = m.time_step_limit;
    let found = format!("[{low}, {high}]");
    at.check(low >= 0.0 && low.is_finite() && low <= high, "time_step_limit", found, "0 ≤ lower ≤ upper")?;
    let (min, max, floor) = (m.time_step_min, m.time_step_max, m.time_step_floor);
    let ok = min > 0.0 && min <= max && max.is_finite();
    at.check(ok, "time_step_min", min, format!("positive, at most time_step_max = {max}"))?;
    at.check(floor > 0.0 && floor.is_finite(), "time_step_floor", floor, "a positive number")
}

fn moe(at: &At, m: &Moe) -> Result<()> {
    at.sizes(&[
        ("n_routed_experts", m.experts),
        ("num_experts_per_tok", m.top_k),
        ("moe_intermediate_size", m.intermediate),
        ("moe_latent_size", m.latent.unwrap_or(1)),
        ("n_group", m.n_group),
        ("topk_group", m.topk_group),
    ])?;
    let (experts, groups) = (m.experts, m.n_group);
    at.check(
        m.shared_intermediate <= LARGEST,
        "moe_shared_expert_intermediate_size",
        m.shared_intermediate,
        format!("at most {LARGEST}"),
    )?;
    at.check(experts <= MOST_EXPERTS, "n_routed_experts", experts, format!("at most {MOST_EXPERTS}"))?;
    at.check(m.top_k <= experts, "num_experts_per_tok", m.top_k, format!("at most n_routed_experts = {experts}"))?;
    at.check(experts.is_multiple_of(groups), "n_routed_experts", experts, format!("a multiple of n_group = {groups}"))?;
    at.check(m.topk_group <= groups, "topk_group", m.topk_group, format!("at most n_group = {groups}"))?;
    // A group is scored by its two best experts.
    let each = experts / groups;
    at.check(groups == 1 || each >= 2, "n_group", groups, format!("groups of at least 2 of the {experts} experts"))?;
    let open = m.topk_group * each;
    let expected = format!("at most {open}, the experts of topk_group = {} groups", m.topk_group);
    at.check(m.top_k <= open, "num_experts_per_tok", m.top_k, expected)?;
    let factor = m.routed_scaling_factor;
    at.check(factor.is_finite(), "routed_scaling_factor", factor, "a finite number")
}

fn attention(at: &At, a: &Attention) -> Result<()> {
    at.sizes(&[("num_attention_heads", a.heads), ("num_key_value_heads", a.kv_heads), ("head_dim", a.head_dim)])?;
    let expected = format!("a multiple of num_key_value_heads = {}", a.kv_heads);
    at.check(a.heads.is_multiple_of(a.kv_heads), "num_attention_heads", a.heads, expected)
}
