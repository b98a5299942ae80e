//! From [`Config`] to JSON.

use serde_json::{Map, Value, json};

use super::parse::ALIASES;
use super::{Config, Layer, LayerKind, Mlp, Moe, Mtp};
use crate::{Error, Result};

pub fn json(config: &Config) -> Result<Value> {
    let mut map = config.json.clone();
    // The key that was there keeps its place; a second name for it would only contradict it later.
    let dtype_key = if map.contains_key("torch_dtype") && !map.contains_key("dtype") { "torch_dtype" } else { "dtype" };
    for alias in ALIASES.into_iter().filter(|&alias| alias != dtype_key) {
        map.shift_remove(alias);
    }
    // What is written is never quantised.
    map.shift_remove("quantization_config");
    put_model(&mut map, config, dtype_key);
    put_shared_sizes(&mut map, config)?;
    let names = Names::of(&config.json);
    let kinds = |layers: &[Layer]| Value::from(layers.iter().map(|layer| names.name(layer.kind())).collect::<Vec<_>>());
    map.insert("layers_block_type".into(), kinds(&config.layers));
    map.insert("num_hidden_layers".into(), config.layers.len().into());
    map.insert("num_nextn_predict_layers".into(), config.mtp.as_ref().map_or(0, |mtp| mtp.steps).into());
    match &config.mtp {
        Some(mtp) => map.insert("mtp_layers_block_type".into(), kinds(&mtp.layers)),
        None => map.shift_remove("mtp_layers_block_type"),
    };
    put_form(&mut map, config);
    Ok(Value::Object(map))
}

/// transformers renamed two layer kinds; a file keeps the spelling it had, and a new one takes the older, which every
/// version reads.
struct Names {
    newer: bool,
}

impl Names {
    fn of(json: &Map<String, Value>) -> Names {
        let lists = ["layers_block_type", "layer_types"].into_iter().filter_map(|key| json.get(key)?.as_array());
        let newer = |value: &Value| matches!(value.as_str(), Some("linear_attention" | "full_attention"));
        Names { newer: lists.flatten().any(newer) }
    }

    fn name(&self, kind: LayerKind) -> &'static str {
        match kind {
            LayerKind::Mamba if self.newer => "linear_attention",
            LayerKind::Attention if self.newer => "full_attention",
            kind => kind.name(),
        }
    }
}

fn put_model(map: &mut Map<String, Value>, config: &Config, dtype_key: &str) {
    let mut put = |key: &str, value: Value| map.insert(key.into(), value);
    put("vocab_size", config.vocab_size.into());
    put("hidden_size", config.hidden_size.into());
    put("tie_word_embeddings", config.tie_word_embeddings.into());
    put("layer_norm_epsilon", float(config.norm_eps));
    put("bos_token_id", config.bos_token_id.into());
    put("pad_token_id", config.pad_token_id.into());
    let eos = match config.eos_token_ids[..] {
        [] => Value::Null,
        [id] => id.into(),
        _ => config.eos_token_ids.clone().into(),
    };
    put("eos_token_id", eos);
    put("initializer_range", float(config.initializer_range));
    put("rescale_prenorm_residual", config.rescale_prenorm_residual.into());
    for (key, value) in
        [("use_bias", false), ("mamba_proj_bias", false), ("attention_bias", false), ("mlp_bias", false)]
    {
        put(key, value.into());
    }
    put("mamba_hidden_act", "silu".into());
    put("mlp_hidden_act", "relu2".into());
    if let Some(dtype) = &config.dtype {
        put(dtype_key, dtype.as_str().into());
    }
}

/// The sizes that are one set for the whole model, from the first layer of each kind; and defaults for the others, which
/// blocks may override.
fn put_shared_sizes(map: &mut Map<String, Value>, config: &Config) -> Result<()> {
    let mut put = |key: &str, value: Value| map.insert(key.into(), value);
    let layers = || config.layers.iter().chain(config.mtp.iter().flat_map(|mtp| &mtp.layers));
    if let Some(m) = one(layers().filter_map(|l| if let Layer::Mamba(m) = l { Some(*m) } else { None }), "Mamba")? {
        put("mamba_num_heads", m.heads.into());
        put("mamba_head_dim", m.head_dim.into());
        put("n_groups", m.groups.into());
        put("ssm_state_size", m.state.into());
        put("conv_kernel", m.conv_kernel.into());
        put("chunk_size", m.chunk_size.into());
        put("use_conv_bias", m.conv_bias.into());
        put("time_step_limit", Value::from(vec![float(m.time_step_limit.0), float(m.time_step_limit.1)]));
        put("time_step_min", float(m.time_step_min));
        put("time_step_max", float(m.time_step_max));
        put("time_step_floor", float(m.time_step_floor));
    }
    if let Some(a) =
        one(layers().filter_map(|l| if let Layer::Attention(a) = l { Some(*a) } else { None }), "attention")?
    {
        put("num_attention_heads", a.heads.into());
        put("num_key_value_heads", a.kv_heads.into());
        put("head_dim", a.head_dim.into());
    }
    let moes = || layers().filter_map(|l| if let Layer::Moe(m) = l { Some(*m) } else { None });
    let routing = |m: Moe| (m.norm_topk_prob, m.n_group, m.topk_group, m.routed_scaling_factor);
    if let Some((norm, n_group, topk_group, factor)) = one(moes().map(routing), "MoE routing")? {
        put("norm_topk_prob", norm.into());
        put("n_group", n_group.into());
        put("topk_group", topk_group.into());
        put("routed_scaling_factor", float(factor));
    }
    if let Some(first) = moes().next() {
        moe_keys(&first).into_iter().for_each(|(key, value)| drop(put(key, value)));
        // Readers size their buffers by it.
        put("n_routed_experts", moes().map(|m| m.experts).max().into());
        put("n_shared_experts", usize::from(moes().any(|m| m.shared_intermediate > 0)).into());
    }
    if let Some(mlp) = layers().find_map(|l| if let Layer::Mlp(m) = l { Some(m) } else { None }) {
        put("intermediate_size", mlp.intermediate.into());
    }
    Ok(())
}

/// The value that all have; an error where they differ, as the format has one place for it.
fn one<T: PartialEq + std::fmt::Debug>(mut values: impl Iterator<Item = T>, of: &str) -> Result<Option<T>> {
    let Some(first) = values.next() else { return Ok(None) };
    match values.find(|value| *value != first) {
        None => Ok(Some(first)),
        Some(other) => Err(Error::Usage(format!(
            "config.json holds one set of {of} sizes for all layers: found {first:?} and {other:?}"
        ))),
    }
}

/// Writes the plain or the heterogeneous form.
fn put_form(map: &mut Map<String, Value>, config: &Config) {
    let (model_type, architecture) = match is_plain(config) {
        true => ("nemotron_h", "NemotronHForCausalLM"),
        false => ("nemotron_h_puzzle", "NemotronHPuzzleForCausalLM"),
    };
    if config.json.get("model_type").is_some_and(|before| before != model_type) {
        // Names the parent's own modelling code, which would read the other form wrongly.
        map.shift_remove("auto_map");
    }
    map.insert("model_type".into(), model_type.into());
    map.insert("architectures".into(), json!([architecture]));
    if is_plain(config) {
        map.shift_remove("block_configs");
        map.shift_remove("mtp_block_configs");
        // Older readers know the layers by this key only.
        map.insert("hybrid_override_pattern".into(), config.pattern().into());
    } else {
        map.shift_remove("hybrid_override_pattern");
        let mtp: &[Layer] = config.mtp.as_ref().map_or(&[], |mtp: &Mtp| &mtp.layers);
        map.insert("block_configs".into(), config.layers.iter().map(block).collect());
        map.insert("mtp_block_configs".into(), mtp.iter().map(block).collect());
    }
}

/// True where the plain form says everything: all MoE layers are equal (the MTP head's too) and have a shared expert
/// (transformers always makes one), and all MLP layers are equal.
fn is_plain(config: &Config) -> bool {
    let layers = || config.layers.iter().chain(config.mtp.iter().flat_map(|mtp| &mtp.layers));
    let mut first = [None; 2];
    layers().all(|layer| match layer {
        Layer::Moe(moe) => moe.shared_intermediate > 0 && first[0].get_or_insert(layer) == &layer,
        Layer::Mlp(_) => first[1].get_or_insert(layer) == &layer,
        _ => true,
    })
}

fn block(layer: &Layer) -> Value {
    let mut block = Map::new();
    block.insert("block_type".into(), layer.kind().name().into());
    match layer {
        Layer::Mlp(Mlp { intermediate }) => drop(block.insert("intermediate_size".into(), (*intermediate).into())),
        Layer::Moe(moe) => block.extend(moe_keys(moe).into_iter().map(|(key, value)| (key.to_owned(), value))),
        Layer::Mamba(_) | Layer::Attention(_) => {}
    }
    Value::Object(block)
}

fn moe_keys(moe: &Moe) -> [(&'static str, Value); 5] {
    [
        ("n_routed_experts", moe.experts.into()),
        ("num_experts_per_tok", moe.top_k.into()),
        ("moe_intermediate_size", moe.intermediate.into()),
        ("moe_shared_expert_intermediate_size", moe.shared_intermediate.into()),
        ("moe_latent_size", moe.latent.into()),
    ]
}

/// A number with no more digits than it needs (f32 0.1 is "0.1", not "0.10000000149"); infinities as transformers
/// writes them.
fn float(value: f32) -> Value {
    if value.is_infinite() {
        return json!({ "__float__": if value > 0.0 { "Infinity" } else { "-Infinity" } });
    }
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}
