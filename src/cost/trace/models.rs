//! Which short models fill a table.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::manifest::TracedModel;
use crate::cost::contract::{Contract, Format};
use crate::cost::roofline::parts;
use crate::cost::vllm::component;
use crate::model::Config;
use crate::model::config::{Layer, LayerKind};
use crate::supernet::SearchSpace;
use crate::{Error, Result};

/// The fewest models of at most `layers_per_model` layers in which every (d, layer configuration) of the space occurs.
///
/// Each has an attention and a Mamba layer where the parent does, so that the engine pages its caches as the parent's; and
/// Mamba layers of one size, as the format has one for a model.
///
/// # Errors
/// [`Error::Usage`] where `layers_per_model` leaves no room beside these two.
pub fn traced_models(space: &SearchSpace, layers_per_model: usize) -> Result<Vec<TracedModel>> {
    let mut by_size: BTreeMap<usize, Vec<Layer>> = BTreeMap::new();
    for (d, layer) in parts(space)? {
        by_size.entry(d).or_default().extend(layer);
    }
    let mut models = Vec::new();
    for (d, layers) in by_size {
        models.extend(of_size(d, &layers, layers_per_model)?);
    }
    Ok(models)
}

fn of_size(d: usize, layers: &[Layer], most: usize) -> Result<Vec<TracedModel>> {
    let of = |kind: LayerKind| layers.iter().filter(|l| l.kind() == kind).copied().collect::<Vec<Layer>>();
    let (mambas, attentions) = (of(LayerKind::Mamba), of(LayerKind::Attention));
    let others: Vec<Layer> = [of(LayerKind::Moe), of(LayerKind::Mlp)].concat();
    let carried = usize::from(!mambas.is_empty()) + usize::from(!attentions.is_empty());
    let Some(room) = most.checked_sub(carried).filter(|room| *room > 0) else {
        return Err(Error::Usage(format!("layers per model: found {most}, expected at least {}", carried + 1)));
    };
    let count = others.len().div_ceil(room).max(mambas.len()).max(attentions.len()).max(1);
    let model = |i: usize| {
        let mut model = TracedModel { name: format!("d{d}-{i:02}"), hidden_size: d, layers: Vec::new(), fresh: 0 };
        for kind in [&mambas, &attentions] {
            model.layers.extend(kind.get(i).or(kind.first()));
            model.fresh += usize::from(i < kind.len());
        }
        // Dealt like cards: models differ by at most one layer.
        let dealt: Vec<Layer> = others.iter().skip(i).step_by(count).copied().collect();
        model.fresh += dealt.len();
        model.layers.extend(dealt);
        model
    };
    Ok((0..count).map(model).collect())
}

/// The model's `config.json`, with the formats of its weights in ModelOpt's form where some are low.
pub fn config_json(config: &Config, contract: &Contract) -> Result<Value> {
    let mut json = config.to_json()?;
    let Value::Object(map) = &mut json else { return Ok(json) };
    let longest = map.get("max_position_embeddings").and_then(Value::as_u64).unwrap_or(0);
    map.insert("max_position_embeddings".into(), longest.max(contract.workload.capacity() as u64 + 1).into());
    map.insert("dtype".into(), "bfloat16".into());
    if let Some(quantization) = quantization(config, contract) {
        map.insert("quantization_config".into(), quantization);
    }
    Ok(json)
}

fn quantization(config: &Config, contract: &Contract) -> Option<Value> {
    let formats: BTreeMap<&str, Format> = contract.precision.weights().into_iter().collect();
    let mut layers = Map::new();
    for spec in config.tensors().iter().filter(|spec| spec.is_linear()) {
        let entry = match formats.get(component(spec)) {
            Some(Format::Nvfp4) => json!({ "quant_algo": "NVFP4", "group_size": 16 }),
            Some(Format::Fp8) => json!({ "quant_algo": "FP8" }),
            _ => continue,
        };
        for part in 0..spec.disk_count() {
            let name = spec.disk_name(part);
            layers.insert(name.trim_end_matches(".weight").to_owned(), entry.clone());
        }
    }
    let kv = contract.precision.kv_cache;
    if layers.is_empty() && kv == Format::Bf16 {
        return None;
    }
    let mut map = Map::new();
    map.insert("quant_method".into(), "modelopt".into());
    map.insert("quant_algo".into(), "MIXED_PRECISION".into());
    if kv == Format::Fp8 {
        map.insert("kv_cache_quant_algo".into(), "FP8".into());
    }
    map.insert("quantized_layers".into(), Value::Object(layers));
    Some(Value::Object(map))
}
