//! Where things lie, and what is said about them.

use std::collections::BTreeMap;
use std::fs;

use autocompress::cost::{Contract, Format, Precision};
use autocompress::export::{ExportOptions, export};
use autocompress::model::checkpoint::DiskDtype;
use serde_json::{Value, json};

use crate::models::{Folder, model, preset};
use crate::reader::{dequantise, plain, read};
use crate::values::{check, options};

fn json_of(folder: &Folder, file: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path(file)).unwrap()).unwrap()
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

#[test]
fn engines_are_told_what_is_quantised() {
    let folder = Folder::new();
    let from = folder.save("model", &model(json!({ "moe_intermediate_size": 40 })), DiskDtype::BF16);
    for (format, algorithm) in [(Format::Fp8, "FP8"), (Format::Nvfp4, "W4A16_NVFP4")] {
        export(&from, &folder.path("out"), &options(format)).unwrap();
        let config = json_of(&folder, "out/config.json");
        let (in_config, beside) = (&config["quantization_config"], json_of(&folder, "out/hf_quant_config.json"));
        assert_eq!((&in_config["quant_method"], &in_config["quant_algo"]), (&json!("modelopt"), &json!(algorithm)));
        assert_eq!(beside["quantization"]["quant_algo"], algorithm);
        assert_eq!(in_config["config_groups"]["group_0"]["targets"], json!(["Linear"]));
        assert_eq!(in_config["ignore"], beside["quantization"]["exclude_modules"]);
        let ignored = strings(&in_config["ignore"]);
        let tensors = read(&folder.path("out"));
        // Ignored are exactly the modules with a plain weight of two or more dimensions.
        let modules = tensors.iter().filter_map(|(name, tensor)| {
            let module = name.strip_suffix(".weight")?;
            (tensor.shape.len() > 1 && ["F32", "BF16"].contains(&tensor.dtype.as_str())).then_some(module)
        });
        let mut plain: Vec<&str> = modules.collect();
        let mut sorted = ignored.clone();
        sorted.sort();
        plain.sort();
        assert_eq!(sorted, plain);
        assert!(ignored.contains(&"backbone.layers.1.mixer.gate") && !ignored.contains(&"lm_head"));
        assert_eq!(ignored.contains(&"backbone.layers.1.mixer.experts.0.up_proj"), format == Format::Nvfp4);
        assert!(!tensors.keys().any(|name| name.ends_with("input_scale")), "no activations were calibrated");
        assert_eq!(config["model_type"], "nemotron_h");
    }
}

#[test]
fn mixed_formats_are_told_module_by_module() {
    let folder = Folder::new();
    let from = folder.save("model", &model(json!({})), DiskDtype::F32);
    let precision = Contract::from_file(&preset("contracts/rtx-5080.toml")).unwrap().precision;
    export(&from, &folder.path("out"), &ExportOptions { precision, max_shard_bytes: 1 << 30 }).unwrap();
    let config = json_of(&folder, "out/config.json");
    let told = &config["quantization_config"];
    assert_eq!(told["quant_algo"], "MIXED_PRECISION");
    assert_eq!(told["kv_cache_scheme"]["num_bits"], 8);
    let tensors = read(&folder.path("out"));
    let layers = told["quantized_layers"].as_object().unwrap();
    let mut grouped: BTreeMap<&str, usize> = BTreeMap::new();
    for group in told["config_groups"].as_object().unwrap().values() {
        for module in strings(&group["targets"]) {
            let bits = if tensors[&format!("{module}.weight")].dtype == "U8" { 4 } else { 8 };
            assert_eq!(group["weights"]["num_bits"], bits, "{module}");
            *grouped.entry(module).or_default() += 1;
        }
    }
    for (name, tensor) in &tensors {
        let Some(module) = name.strip_suffix(".weight") else { continue };
        let algorithm = match tensor.dtype.as_str() {
            "U8" => "W4A16_NVFP4",
            "F8_E4M3" => "FP8",
            _ => {
                assert!(!layers.contains_key(module), "{module}");
                continue;
            }
        };
        assert_eq!(layers[module]["quant_algo"], algorithm, "{module}");
        assert_eq!(grouped[module], 1, "{module}");
    }
    assert_eq!(
        json_of(&folder, "out/hf_quant_config.json")["quantization"]["quantized_layers"],
        told["quantized_layers"]
    );
}

#[test]
fn fused_projections_share_their_scale_and_shards_are_indexed() {
    let folder = Folder::new();
    let from = folder.save("model", &model(json!({})), DiskDtype::F32);
    for format in [Format::Fp8, Format::Nvfp4] {
        let small = ExportOptions { max_shard_bytes: 4000, ..options(format) };
        let report = export(&from, &folder.path("out"), &small).unwrap();
        check(&from, &folder.path("out"), &report);
        let tensors = read(&folder.path("out"));
        let of = |p: &str| dequantise(&tensors, &format!("backbone.layers.2.mixer.{p}_proj.weight")).unwrap();
        let [q, k, v] = ["q", "k", "v"].map(|p| of(p).tensor_scale);
        assert!(q == k && k == v);
        assert_ne!(of("o").tensor_scale, q);
        let before = read(&from);
        let largest = ["q", "k", "v"].map(|p| {
            let values = plain(&before[&format!("backbone.layers.2.mixer.{p}_proj.weight")]);
            values.iter().fold(0.0f64, |amax, x| amax.max(x.abs()))
        });
        let of_format = if format == Format::Fp8 { 448.0 } else { 448.0 * 6.0 };
        let wanted = largest.into_iter().fold(0.0, f64::max) / of_format;
        assert!((q / wanted - 1.0).abs() < 1e-6);
        let index = json_of(&folder, "out/model.safetensors.index.json");
        let map = index["weight_map"].as_object().unwrap();
        assert_eq!(map.len(), tensors.len());
        assert!(tensors.iter().all(|(name, tensor)| map[name] == tensor.file.as_str()));
        let bytes: usize = tensors.values().map(|tensor| tensor.bytes.len()).sum();
        assert_eq!(index["metadata"]["total_size"], bytes);
        assert_eq!((report.tensors, report.bytes), (tensors.len(), bytes as u64));
        assert!(
            report.files > 5
                && folder.names("out").iter().filter(|n| n.ends_with(".safetensors")).count() == report.files
        );
    }
}

#[test]
fn tied_heads_and_companions_stay() {
    let folder = Folder::new();
    let from = folder.save("model", &model(json!({ "tie_word_embeddings": true })), DiskDtype::F32);
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"] {
        fs::write(from.join(name), format!("{{\"of\": \"{name}\"}}")).unwrap();
    }
    fs::write(from.join("README.md"), "---\nlicense: apache-2.0\n---\n# Its card\n\n```\n# code\n```\n").unwrap();
    fs::write(from.join("notes.txt"), "a user's").unwrap();
    let report = export(&from, &folder.path("out"), &options(Format::Nvfp4)).unwrap();
    let tensors = read(&folder.path("out"));
    assert!(tensors["lm_head.weight"].bytes == tensors["backbone.embeddings.weight"].bytes);
    assert!(report.kept.iter().any(|kept| kept.tensor == "lm_head.weight" && kept.because.contains("tied")));
    let expected = [
        "README.md",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "hf_quant_config.json",
        "model.safetensors",
        "quantization_error.csv",
        "quantization_error.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(folder.names("out"), expected);
    assert_eq!(fs::read(folder.path("out/tokenizer.json")).unwrap(), fs::read(from.join("tokenizer.json")).unwrap());
    let card = fs::read_to_string(folder.path("out/README.md")).unwrap();
    for part in ["base_model: model", "base_model_relation: quantized", "license: apache-2.0", "- nvfp4"] {
        assert!(card.split("\n---\n").next().unwrap().contains(part), "{part}: {card}");
    }
    assert!(
        card.contains("\n### Its card") && card.contains("\n# code\n") && card.contains("| experts | nvfp4 |"),
        "{card}"
    );
    let csv = fs::read_to_string(folder.path("out/quantization_error.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + report.changed.len());
    let told = json_of(&folder, "out/quantization_error.json");
    assert_eq!(told["changed"].as_array().unwrap().len(), report.changed.len());
    assert!(!told.to_string().contains(folder.path("").to_str().unwrap()), "it names no place of this machine: {told}");
}

#[test]
fn bf16_alone_is_an_export_too() {
    let folder = Folder::new();
    let from = folder.save("model", &model(json!({})), DiskDtype::F32);
    let options = ExportOptions { precision: Precision::BF16, max_shard_bytes: 1 << 30 };
    let report = export(&from, &folder.path("out"), &options).unwrap();
    assert!(check(&from, &folder.path("out"), &report).is_empty());
    assert!(json_of(&folder, "out/config.json").get("quantization_config").is_none());
    assert!(!folder.path("out/hf_quant_config.json").exists());
    // It is a model again.
    autocompress::model::load(&folder.path("out"), autocompress::model::checkpoint::MtpChoice::Drop).unwrap();
}
