//! From JSON to [`Config`].

use std::path::Path;

use serde_json::Value;

use super::keys::{Keys, show};
use super::{Attention, Config, Layer, LayerKind, Mamba, Mlp, Moe, Mtp};
use crate::{Error, Result};

/// More layers, experts or MTP steps than this is a damaged file, and would only cost memory.
const MOST_LAYERS: usize = 4096;
const MOST_MTP_STEPS: usize = 64;

/// Parses JSON as Python writes it: bare `Infinity`, `-Infinity` and `NaN` become transformers' `{"__float__": …}`.
pub fn json_of_python(file: &Path, text: &str) -> Result<Value> {
    let mut strict = String::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let Some(c) = rest.chars().next() {
        let bare = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !in_string && rest.starts_with(word));
        let length = match bare {
            Some(word) => {
                strict.push_str(&format!("{{\"__float__\": \"{word}\"}}"));
                word.len()
            }
            None => {
                // An escaped character cannot end the string.
                let length = if in_string && c == '\\' {
                    rest.chars().take(2).map(char::len_utf8).sum()
                } else {
                    in_string ^= c == '"';
                    c.len_utf8()
                };
                strict.push_str(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    serde_json::from_str(&strict).map_err(|error| {
        Error::input(
            file,
            format!("line {}", error.line()),
            error.to_string(),
            "a JSON object of a model's configuration",
        )
    })
}

pub fn config(file: &Path, json: Value) -> Result<Config> {
    let Value::Object(map) = json else {
        return Err(Error::input(file, "top level", show(&json), "a JSON object"));
    };
    let keys = Keys { file, map: &map, within: "" };
    let puzzle = match keys.text(&["model_type"])? {
        Some("nemotron_h") => false,
        Some("nemotron_h_puzzle") => true,
        Some(other) => return Err(keys.error("model_type", other, "nemotron_h or nemotron_h_puzzle")),
        None => return Err(keys.error("model_type", "no such key", "nemotron_h or nemotron_h_puzzle")),
    };
    refuse_unsupported(&keys)?;
    let pattern = Pattern::read(&keys)?;
    let layers = layers(&keys, puzzle, &pattern)?;
    let mtp = mtp(&keys, &pattern)?;
    Ok(Config {
        vocab_size: keys.size(&["vocab_size"])?,
        hidden_size: keys.size(&["hidden_size"])?,
        layers,
        tie_word_embeddings: keys.flag(&["tie_word_embeddings"], false)?,
        norm_eps: keys.number(&["layer_norm_epsilon"], 1e-5)?,
        bos_token_id: keys.id("bos_token_id")?,
        eos_token_ids: keys.ids("eos_token_id")?,
        pad_token_id: keys.id("pad_token_id")?,
        initializer_range: keys.number(&["initializer_range"], 0.02)?,
        rescale_prenorm_residual: keys.flag(&["rescale_prenorm_residual"], true)?,
        mtp,
        dtype: keys.text(&["dtype", "torch_dtype"])?.map(str::to_owned),
        json: map,
    })
}

/// Keys that change the computation in ways this crate does not have. Being silently wrong would be worse.
fn refuse_unsupported(keys: &Keys) -> Result<()> {
    for name in ["use_bias", "mamba_proj_bias", "attention_bias", "mlp_bias"] {
        if keys.flag(&[name], false)? {
            return Err(keys.error(name, "true", "false: biases of linear layers are not supported"));
        }
    }
    for (name, supported) in [("mamba_hidden_act", "silu"), ("mlp_hidden_act", "relu2")] {
        match keys.text(&[name])? {
            Some(act) if act != supported => {
                return Err(keys.error(name, act, format!("{supported}, the only one supported")));
            }
            _ => {}
        }
    }
    match keys.get(&["sliding_window"]) {
        Some((name, window)) => Err(keys.error(name, show(window), "null: sliding-window attention is not supported")),
        None => Ok(()),
    }
}

/// `hybrid_override_pattern`, as transformers and Megatron write it: `M|E*-/…`. Marks `|` cut it for pipelining; what
/// follows the first `/` are the patterns of the MTP steps.
struct Pattern {
    main: Option<Vec<LayerKind>>,
    mtp: Option<Vec<LayerKind>>,
}

impl Pattern {
    fn read(keys: &Keys) -> Result<Pattern> {
        let Some(text) = keys.text(&["hybrid_override_pattern"])? else { return Ok(Pattern { main: None, mtp: None }) };
        let mut parts = text.split('/');
        let main = letters(keys, "hybrid_override_pattern", parts.next().unwrap_or_default())?;
        let mtp = match parts.next() {
            Some(part) if !part.is_empty() => Some(letters(keys, "hybrid_override_pattern", part)?),
            _ => None,
        };
        Ok(Pattern { main: Some(main), mtp })
    }
}

fn letters(keys: &Keys, name: &'static str, text: &str) -> Result<Vec<LayerKind>> {
    let kind = |letter| match letter {
        'M' => Ok(LayerKind::Mamba),
        'E' => Ok(LayerKind::Moe),
        '*' => Ok(LayerKind::Attention),
        '-' => Ok(LayerKind::Mlp),
        other => Err(keys.error(name, format!("{other:?}"), "the letters M E * -, with | and / marks")),
    };
    text.chars().filter(|&letter| letter != '|').map(kind).collect()
}

/// A list of layer kinds by name, in either spelling.
fn kinds(keys: &Keys, names: &[&'static str]) -> Result<Option<Vec<LayerKind>>> {
    let Some((name, list)) = keys.list(names)? else { return Ok(None) };
    list.iter().map(|value| kind(keys, name, value)).collect::<Result<_>>().map(Some)
}

fn kind(keys: &Keys, name: &str, value: &Value) -> Result<LayerKind> {
    match value.as_str() {
        Some("mamba" | "linear_attention") => Ok(LayerKind::Mamba),
        Some("moe") => Ok(LayerKind::Moe),
        Some("attention" | "full_attention") => Ok(LayerKind::Attention),
        Some("mlp") => Ok(LayerKind::Mlp),
        _ => Err(keys.error(name, show(value), "mamba, linear_attention, moe, attention, full_attention or mlp")),
    }
}

fn layers(keys: &Keys, puzzle: bool, pattern: &Pattern) -> Result<Vec<Layer>> {
    let listed = match kinds(keys, &["layers_block_type", "layer_types"])? {
        Some(kinds) => Some(kinds),
        None => pattern.main.clone(),
    };
    let layers = match blocks(keys, "block_configs")? {
        Some(layers) => {
            check_agreement(keys, &layers, listed)?;
            layers
        }
        None if puzzle => return Err(keys.error("block_configs", "no such key", "a list of every layer's sizes")),
        None => {
            let expected = "a list of layer kinds (or hybrid_override_pattern)";
            let kinds = listed.ok_or_else(|| keys.error("layers_block_type", "no such key", expected))?;
            uniform(keys, &kinds)?
        }
    };
    match layers.len() {
        1..=MOST_LAYERS => Ok(layers),
        n => Err(keys.error("layers_block_type", format!("{n} layers"), format!("1 to {MOST_LAYERS} layers"))),
    }
}

/// `block_configs` and a list of kinds, where both are there, must tell of the same layers.
fn check_agreement(keys: &Keys, layers: &[Layer], listed: Option<Vec<LayerKind>>) -> Result<()> {
    let Some(listed) = listed else { return Ok(()) };
    if listed.len() != layers.len() {
        let found = format!("{} layers", layers.len());
        return Err(keys.error("block_configs", found, format!("the {} that layers_block_type lists", listed.len())));
    }
    match listed.iter().zip(layers).position(|(&listed, layer)| listed != layer.kind()) {
        Some(i) => {
            let expected = format!("{}, as layers_block_type says", listed[i].name());
            Err(keys.error(&format!("block_configs[{i}].block_type"), layers[i].kind().name(), expected))
        }
        None => Ok(()),
    }
}

/// Layers that all take the model's own keys.
fn uniform(keys: &Keys, kinds: &[LayerKind]) -> Result<Vec<Layer>> {
    kinds.iter().map(|&kind| layer(keys, kind, None)).collect()
}

/// A list of blocks with sizes of their own; `None` where the key is missing, null or (for MTP) empty.
fn blocks(keys: &Keys, name: &'static str) -> Result<Option<Vec<Layer>>> {
    let Some((_, list)) = keys.list(&[name])? else { return Ok(None) };
    let read = |(i, value): (usize, &Value)| {
        let Value::Object(map) = value else {
            return Err(keys.error(&format!("{name}[{i}]"), show(value), "an object with a block_type"));
        };
        let within = format!("{name}[{i}].");
        let block = Keys { file: keys.file, map, within: &within };
        let kind = match map.get("block_type") {
            Some(value) => kind(&block, "block_type", value)?,
            None => return Err(block.error("block_type", "no such key", "mamba, moe, attention or mlp")),
        };
        layer(keys, kind, Some(&block))
    };
    let layers: Vec<Layer> = list.iter().enumerate().map(read).collect::<Result<_>>()?;
    Ok(Some(layers).filter(|layers| !layers.is_empty()))
}

/// One layer from the model's keys, and from its block's where it has one.
fn layer(keys: &Keys, kind: LayerKind, block: Option<&Keys>) -> Result<Layer> {
    Ok(match kind {
        LayerKind::Mamba => Layer::Mamba(mamba(keys)?),
        LayerKind::Attention => Layer::Attention(attention(keys)?),
        LayerKind::Moe => Layer::Moe(moe(keys, block)?),
        LayerKind::Mlp => {
            Layer::Mlp(Mlp { intermediate: where_told(keys, block, "intermediate_size").size(&["intermediate_size"])? })
        }
    })
}

/// Where a size is read: in the block if the block tells it, even as null.
fn where_told<'a>(keys: &Keys<'a>, block: Option<&Keys<'a>>, name: &str) -> Keys<'a> {
    match block {
        Some(block) if block.has(name) => *block,
        _ => *keys,
    }
}

/// The older name comes first: it overrides where both are there.
fn mamba(keys: &Keys) -> Result<Mamba> {
    Ok(Mamba {
        heads: keys.size(&["mamba_num_heads"])?,
        head_dim: keys.size(&["mamba_head_dim"])?,
        groups: keys.size(&["mamba_n_groups", "n_groups"])?,
        state: keys.size(&["ssm_state_size"])?,
        conv_kernel: keys.size(&["mamba_d_conv", "conv_kernel"])?,
        chunk_size: keys.optional_size(&["mamba_chunk_size", "chunk_size"])?.unwrap_or(128),
        conv_bias: keys.flag(&["mamba_conv_bias", "use_conv_bias"], true)?,
        time_step_limit: keys.range(&["mamba_dt_limit", "time_step_limit"], (0.0, f32::INFINITY))?,
        time_step_min: keys.number(&["mamba_dt_min", "time_step_min"], 0.001)?,
        time_step_max: keys.number(&["mamba_dt_max", "time_step_max"], 0.1)?,
        time_step_floor: keys.number(&["mamba_dt_init_floor", "time_step_floor"], 1e-4)?,
    })
}

fn attention(keys: &Keys) -> Result<Attention> {
    let heads = keys.size(&["num_attention_heads"])?;
    Ok(Attention {
        heads,
        kv_heads: match keys.map.get("num_key_value_heads") {
            Some(Value::Null) => heads,
            _ => keys.size(&["num_key_value_heads"])?,
        },
        head_dim: keys.size(&["head_dim", "attention_head_dim"])?,
    })
}

fn moe(keys: &Keys, block: Option<&Keys>) -> Result<Moe> {
    let told = |name| where_told(keys, block, name);
    let size = |name: &'static str| told(name).size(&[name]);
    let experts = match block {
        Some(block) if block.has("n_routed_experts") => block.size(&["n_routed_experts"])?,
        _ => keys.size(&["n_routed_experts", "num_local_experts"])?,
    };
    Ok(Moe {
        experts,
        top_k: size("num_experts_per_tok")?,
        intermediate: size("moe_intermediate_size")?,
        shared_intermediate: shared(&told("n_shared_experts"), &told("moe_shared_expert_intermediate_size"))?,
        latent: told("moe_latent_size").optional_size(&["moe_latent_size"])?,
        norm_topk_prob: keys.flag(&["norm_topk_prob"], true)?,
        n_group: keys.optional_size(&["n_group"])?.unwrap_or(1),
        topk_group: keys.optional_size(&["topk_group"])?.unwrap_or(1),
        routed_scaling_factor: keys.number(&["routed_scaling_factor"], 1.0)?,
    })
}

/// The shared expert's width. Readers differ where there are several (transformers ignores the number, vLLM multiplies),
/// so that is refused.
fn shared(number: &Keys, width: &Keys) -> Result<usize> {
    let name = "moe_shared_expert_intermediate_size";
    match number.count(&["n_shared_experts"])?.unwrap_or(1) {
        0 => Ok(0),
        1 => match width.count(&[name])? {
            Some(width) => Ok(width),
            None => Err(width.error(name, "no such key", "a whole number, 0 for no shared expert")),
        },
        n => Err(number.error("n_shared_experts", n.to_string(), "0 or 1")),
    }
}

/// The MTP head. Its layers' kinds come from the first of: `mtp_block_configs`, `mtp_layers_block_type`,
/// `mtp_hybrid_override_pattern`, the `/…` part of the model's pattern, transformers' default.
fn mtp(keys: &Keys, pattern: &Pattern) -> Result<Option<Mtp>> {
    let steps = match keys.count(&["num_nextn_predict_layers"])? {
        None | Some(0) => return Ok(None),
        Some(steps @ 1..=MOST_MTP_STEPS) => steps,
        Some(n) => return Err(keys.error("num_nextn_predict_layers", n.to_string(), format!("0 to {MOST_MTP_STEPS}"))),
    };
    let layers = match blocks(keys, "mtp_block_configs")? {
        Some(layers) => layers,
        None => uniform(keys, &mtp_kinds(keys, pattern)?)?,
    };
    match layers.len() {
        1..=MOST_LAYERS => Ok(Some(Mtp { steps, layers })),
        n => Err(keys.error("mtp_layers_block_type", format!("{n} layers"), format!("1 to {MOST_LAYERS} layers"))),
    }
}

fn mtp_kinds(keys: &Keys, pattern: &Pattern) -> Result<Vec<LayerKind>> {
    if let Some(kinds) = kinds(keys, &["mtp_layers_block_type"])? {
        return Ok(kinds);
    }
    if let Some(text) = keys.text(&["mtp_hybrid_override_pattern"])? {
        return letters(keys, "mtp_hybrid_override_pattern", text);
    }
    Ok(pattern.mtp.clone().unwrap_or_else(|| vec![LayerKind::Attention, LayerKind::Moe]))
}

/// Every key that [`config`] reads under another name than the one that is written.
pub const ALIASES: [&str; 14] = [
    "layer_types",
    "num_local_experts",
    "mamba_n_groups",
    "mamba_d_conv",
    "mamba_expand",
    "mamba_dt_min",
    "mamba_dt_max",
    "mamba_dt_limit",
    "mamba_dt_init_floor",
    "mamba_conv_bias",
    "mamba_chunk_size",
    "attention_head_dim",
    "mtp_hybrid_override_pattern",
    "torch_dtype",
];
