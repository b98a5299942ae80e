//! How engines are told what is quantised: `quantization_config` of config.json and `hf_quant_config.json`, as NVIDIA's
//! Model-Optimizer writes them for its unified Hugging Face checkpoints.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::encode::BLOCK;
use super::plan::Form;
use crate::cost::Format;

/// A module, a tensor's name without `.weight`, and what became of it.
pub struct Module<'m> {
    pub name: &'m str,
    pub form: Form,
    /// Whether its weight is a matrix or more, which engines ask the configuration about.
    pub is_product: bool,
}

/// Both files' content: (`quantization_config`, `hf_quant_config.json`); `None` where nothing is quantised.
///
/// Weights only: there are no scales of activations. Engines multiply FP8 with activations that they scale themselves, and
/// NVFP4 in bf16 (`W4A16_NVFP4`).
pub fn quantization(modules: &[Module<'_>], kv_cache: Format, carried: &[&str]) -> Option<(Value, Value)> {
    let quantised: Vec<&Module<'_>> = modules.iter().filter(|module| module.form.is_quantised()).collect();
    let first = quantised.first()?;
    let mut ignore: Vec<&str> =
        modules.iter().filter(|m| m.is_product && !m.form.is_quantised()).map(|m| m.name).collect();
    ignore.extend(carried);
    let uniform = quantised.iter().all(|module| module.form == first.form);
    let algorithm = if uniform { algorithm(first.form) } else { "MIXED_PRECISION" };
    let layers: Map<String, Value> = quantised.iter().map(|m| (m.name.to_owned(), layer(m.form))).collect();
    let producer = json!({ "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") });

    let mut config = json!({
        "quant_method": "modelopt",
        "quant_algo": algorithm,
        "config_groups": groups(&quantised, uniform),
        "ignore": &ignore,
        "producer": &producer,
    });
    let kv_algorithm = (kv_cache == Format::Fp8).then_some("FP8");
    if kv_algorithm.is_some() {
        config["kv_cache_scheme"] = json!({ "dynamic": false, "num_bits": 8, "type": "float" });
    }
    let mut quantization = json!({
        "quant_algo": algorithm,
        "kv_cache_quant_algo": kv_algorithm,
        "exclude_modules": ignore,
    });
    if quantised.iter().any(|module| module.form == Form::Nvfp4) {
        quantization["group_size"] = BLOCK.into();
    }
    if !uniform {
        config["quantized_layers"] = layers.clone().into();
        quantization["quantized_layers"] = layers.into();
    }
    Some((config, json!({ "producer": producer, "quantization": quantization })))
}

fn algorithm(form: Form) -> &'static str {
    if form == Form::Nvfp4 { "W4A16_NVFP4" } else { "FP8" }
}

fn layer(form: Form) -> Value {
    match form {
        Form::Nvfp4 => json!({ "quant_algo": algorithm(form), "group_size": BLOCK }),
        _ => json!({ "quant_algo": algorithm(form) }),
    }
}

/// One group for each format: of all linear layers where there is one, else of those that it names.
fn groups(quantised: &[&Module<'_>], uniform: bool) -> Value {
    let mut by_form: BTreeMap<&str, (Form, Vec<&str>)> = BTreeMap::new();
    for module in quantised {
        by_form.entry(module.form.name()).or_insert((module.form, Vec::new())).1.push(module.name);
    }
    let group = |(i, (form, names)): (usize, (Form, Vec<&str>))| {
        let (weights, inputs) = match form {
            Form::Nvfp4 => {
                (json!({ "dynamic": false, "num_bits": 4, "type": "float", "group_size": BLOCK }), Value::Null)
            }
            _ => (
                json!({ "dynamic": false, "num_bits": 8, "type": "float" }),
                json!({ "dynamic": true, "num_bits": 8, "type": "float" }),
            ),
        };
        let targets = if uniform { vec!["Linear"] } else { names };
        (format!("group_{i}"), json!({ "weights": weights, "input_activations": inputs, "targets": targets }))
    };
    by_form.into_values().enumerate().map(group).collect::<Map<String, Value>>().into()
}
