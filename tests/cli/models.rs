//! Damaged models.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Folder, edit_weights, fixture, run};

const TENSOR: &str = "lm_head.weight";

/// What every command that reads weights says of `model`.
#[track_caller]
fn refused(model: &str, code: i32, parts: &[&str]) {
    run(["generate", model, "--prompt", "a"]).refused(code, parts);
    run(["evaluate", model, "--examples", "1"]).refused(code, parts);
}

#[test]
fn damaged_weights_are_refused_by_name() {
    let folder = Folder::new();
    let model = folder.model("truncated");
    let weights = Path::new(&model).join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    for length in [0, 7, 8, 100, bytes.len() - 1] {
        fs::write(&weights, &bytes[..length]).unwrap();
        refused(&model, 2, &["truncated/model.safetensors", "expected"]);
        run(["inspect", &model]).refused(2, &["truncated/model.safetensors", "expected"]);
    }
    for length in [bytes.len() as u64 + 1, u64::MAX] {
        let mut long = bytes.clone();
        long[..8].copy_from_slice(&length.to_le_bytes());
        fs::write(&weights, long).unwrap();
        refused(&model, 2, &["model.safetensors", "header", "expected"]);
    }
    fs::write(&weights, "PK\u{3}\u{4} a file of another kind").unwrap();
    refused(&model, 2, &["model.safetensors", "header"]);

    let model = folder.model("missing");
    edit_weights(&model, |header, data| {
        let entry = header.remove(TENSOR).unwrap();
        remove_data(header, data, &entry);
    });
    refused(&model, 2, &[TENSOR, "no such tensor"]);

    let model = folder.model("extra");
    edit_weights(&model, |header, data| {
        let end = data.len();
        data.extend([0; 8]);
        header.insert("backbone.extra".into(), json!({"dtype": "F32", "shape": [2], "data_offsets": [end, end + 8]}));
    });
    refused(&model, 2, &["extra/model.safetensors", "backbone.extra", "no place"]);

    let model = folder.model("shape");
    edit_weights(&model, |header, _| header[TENSOR]["shape"] = json!([64, 256]));
    refused(&model, 2, &[TENSOR, "[64, 256]", "[256, 64]"]);

    let model = folder.model("dtype");
    edit_weights(&model, |header, _| header[TENSOR]["dtype"] = json!("I32"));
    refused(&model, 2, &[TENSOR, "I32"]);

    let model = folder.model("nan");
    edit_weights(&model, |header, data| {
        let at = header[TENSOR]["data_offsets"][0].as_u64().unwrap() as usize + 4 * 7;
        data[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    refused(&model, 2, &[TENSOR, "NaN", "7"]);

    // Finite, but too large for the arithmetic: an answer would be noise.
    let model = folder.model("huge");
    edit_weights(&model, |header, data| {
        let range = &header[TENSOR]["data_offsets"];
        let (from, to) = (range[0].as_u64().unwrap() as usize, range[1].as_u64().unwrap() as usize);
        data[from..to].chunks_exact_mut(4).for_each(|bytes| bytes.copy_from_slice(&3e38f32.to_le_bytes()));
    });
    refused(&model, 1, &["finite"]);
}

/// Takes a tensor's bytes out of the data, and moves the others up.
fn remove_data(header: &mut serde_json::Map<String, Value>, data: &mut Vec<u8>, entry: &Value) {
    let offset = |value: &Value| value.as_u64().unwrap() as usize;
    let (from, to) = (offset(&entry["data_offsets"][0]), offset(&entry["data_offsets"][1]));
    data.drain(from..to);
    for (_, other) in header.iter_mut() {
        for i in 0..2 {
            let at = offset(&other["data_offsets"][i]);
            if at >= to {
                other["data_offsets"][i] = json!(at - (to - from));
            }
        }
    }
}

#[test]
fn wrong_configurations_are_refused_by_key() {
    let folder = Folder::new();
    let model = folder.model("model");
    let config = Path::new(&model).join("config.json");
    let whole: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    for key in
        ["model_type", "vocab_size", "hidden_size", "layers_block_type", "num_attention_heads", "mamba_num_heads"]
    {
        let mut lacks = whole.clone();
        lacks.as_object_mut().unwrap().remove(key);
        fs::write(&config, lacks.to_string()).unwrap();
        // transformers has defaults for some; then the weights do not fit.
        refused(&model, 2, &["model/", "expected"]);
    }
    for key in ["model_type", "hidden_size", "layers_block_type"] {
        let mut lacks = whole.clone();
        lacks.as_object_mut().unwrap().remove(key);
        fs::write(&config, lacks.to_string()).unwrap();
        run(["inspect", &model]).refused(2, &["config.json", key, "no such key"]);
    }
    for (key, value) in
        [("hidden_size", json!("64")), ("hidden_size", json!(-1)), ("vocab_size", json!(1.5)), ("n_groups", json!(0))]
    {
        let mut wrong = whole.clone();
        wrong[key] = value;
        fs::write(&config, wrong.to_string()).unwrap();
        refused(&model, 2, &["config.json", key]);
        run(["inspect", &model]).refused(2, &["config.json", key]);
    }
    for text in ["", "{", "not JSON", "[]", "null"] {
        fs::write(&config, text).unwrap();
        refused(&model, 2, &["config.json", "expected"]);
        run(["inspect", &model]).refused(2, &["config.json", "expected"]);
    }
    fs::write(&config, [b'{', 0xff, b'}']).unwrap();
    refused(&model, 2, &["config.json", "UTF-8"]);
    // Sizes that no machine holds.
    let mut huge = whole.clone();
    (huge["hidden_size"], huge["vocab_size"]) = (json!(1_000_000), json!(10_000_000));
    fs::write(&config, huge.to_string()).unwrap();
    refused(&model, 2, &["model.safetensors", "shape", "1000000"]);
    assert_eq!(run(["inspect", &model, "--json"]).json()["hidden_size"], 1_000_000);
    let folder = Folder::new();
    let recipe = folder.recipe("kind = \"tasks\"");
    folder.file("config.json", huge.to_string());
    folder.pretrain(&recipe, "run").refused(1, &["training", "GiB of memory"]);
}

#[test]
fn what_is_no_models_folder_is_named() {
    let folder = Folder::new();
    for command in [&["inspect"][..], &["generate", "--prompt", "a"], &["evaluate", "--examples", "1"]] {
        let on = |path: &str| run(command.iter().copied().chain([path]));
        on(&folder.at("none")).refused(2, &["none", "No such file"]);
        let bare = Folder::new();
        on(&bare.at("")).refused(2, &["config.json", "No such file"]);
    }
    let file = format!("{}/model.safetensors", fixture("base"));
    run(["generate", &file, "--prompt", "a"]).refused(2, &["model.safetensors", "a checkpoint's folder"]);
    run(["inspect", &file]).refused(2, &["model.safetensors"]);
    let config = fs::read(format!("{}/config.json", fixture("base"))).unwrap();
    folder.file("config.json", config);
    run(["generate", &folder.at(""), "--prompt", "a"]).refused(2, &["weights", "model.safetensors"]);
    run(["inspect", &folder.at("")]).ok();
    run(["inspect", &folder.at("config.json")]).ok();
}
