//! `--json`: what a program reads.

use std::path::Path;

use serde_json::Value;

use crate::common::{Folder, contract, fixture, read_weights, run};

#[test]
fn inspect_tells_sizes_that_are_those_of_the_files() {
    for (name, width) in [("base", 4), ("base_bf16", 2), ("latent", 4)] {
        let info = run(["inspect", &fixture(name), "--json"]).json();
        let (header, data) = read_weights(&Path::new(&fixture(name)).join("model.safetensors"));
        let shapes = header.values().map(|entry| entry["shape"].as_array().unwrap());
        let elements: u64 = shapes.map(|shape| shape.iter().map(|n| n.as_u64().unwrap()).product::<u64>()).sum();
        assert_eq!(info["parameters"]["total"], elements);
        assert!(info["parameters"]["active"].as_u64().unwrap() < elements);
        assert_eq!(info["tensors"]["model"], info["stored"]["tensors"]);
        assert_eq!(info["bytes"]["f32"], 4 * elements);
        assert_eq!(info["stored"]["bytes"], data.len());
        assert_eq!(data.len() as u64, width * elements);
        let layers = info["layers"].as_array().unwrap();
        assert_eq!(layers.len(), info["pattern"].as_str().unwrap().len());
        assert_eq!((&layers[0]["kind"], &layers[0]["heads"]), (&"mamba".into(), &8.into()));
        assert_eq!((&info["hidden_size"], &info["vocab_size"]), (&64.into(), &256.into()));
        let text = run(["inspect", &fixture(name)]).ok().out;
        assert!(text.contains(&elements.to_string()), "{text}");
    }
}

#[test]
fn evaluate_tells_every_part() {
    let evaluation = run(["evaluate", &fixture("base"), "--examples", "5", "--json"]).json();
    let parts = evaluation["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 8);
    let mut sum = 0.0;
    for part in parts {
        assert_eq!(part["items"], 5);
        let (loss, perplexity) = (part["loss"].as_f64().unwrap(), part["perplexity"].as_f64().unwrap());
        assert!(loss > 0.0 && (loss.exp() - perplexity).abs() < 1e-9 * perplexity, "{part}");
        sum += part["accuracy"].as_f64().unwrap();
    }
    assert_eq!(evaluation["mean_accuracy"], sum / 8.0);
    assert!(evaluation["perplexity"].as_f64().unwrap() > 1.0);
    let text = run(["evaluate", &fixture("base"), "--examples", "5"]).ok().out;
    assert_eq!(text.lines().count(), 10, "{text}");
    // The tasks of a recipe.
    let folder = Folder::new();
    let recipe = folder.recipe("kind = \"tasks\"\nsort.weight = 0\ncopy = { min_length = 2, max_length = 4 }");
    let evaluation = run(["evaluate", &fixture("base"), "--examples", "5", "--json", "--tasks", &recipe]).json();
    let names: Vec<&Value> = evaluation["parts"].as_array().unwrap().iter().map(|part| &part["name"]).collect();
    assert!(names.len() == 7 && !names.contains(&&"sort".into()), "{names:?}");
    let recipe = folder.recipe("kind = \"shards\"\npaths = [\"a\"]");
    run(["evaluate", &fixture("base"), "--tasks", &recipe]).refused(2, &["recipe.toml", "data.kind", "\"tasks\""]);
}

#[test]
fn generate_tells_tokens_and_what_ended_them() {
    let generate = |more: &[&str]| {
        let args = ["generate", &fixture("base"), "--prompt", "abc", "--max-tokens", "6", "--json"];
        run(args.iter().chain(more)).json()
    };
    let whole = generate(&[]);
    assert_eq!((&whole[0]["prompt"], &whole[0]["stopped"]), (&"abc".into(), &Value::Null));
    let tokens = whole[0]["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 6);
    let bytes: Vec<u8> = tokens.iter().map(|id| id.as_u64().unwrap() as u8).filter(|byte| *byte > 2).collect();
    assert_eq!(whole[0]["text"], String::from_utf8_lossy(&bytes).into_owned());
    // Each of its tokens can end it.
    let first = tokens.iter().position(|id| *id == tokens[3]).unwrap();
    let stopped = generate(&["--stop", &tokens[3].to_string()]);
    assert_eq!(stopped[0]["stopped"], tokens[3]);
    assert_eq!(stopped[0]["tokens"].as_array().unwrap()[..], tokens[..first]);
}

#[test]
fn tokenize_tells_its_shards() {
    let folder = Folder::new();
    let text = folder.file("a.txt", "one\n\ntwo é\n\nthree");
    let args = ["tokenize", &text, "--out", &folder.at("out"), "--blank-line", "--tokens-per-shard", "10", "--json"];
    let built = run(args).json();
    assert_eq!((&built["documents"], &built["vocab_size"]), (&3.into(), &256.into()));
    // Each document between its two marks.
    assert_eq!(built["tokens"], "onetwo éthree".len() + 3 * 2);
    let shards: Vec<&str> = built["shards"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert_eq!(shards, [folder.at("out/shard-00000.bin"), folder.at("out/shard-00001.bin")]);
    assert_eq!(folder.names("out"), ["shard-00000.bin", "shard-00001.bin"]);
}

#[test]
fn pretrain_tells_its_result() {
    let folder = Folder::new();
    let recipe = folder.recipe("kind = \"tasks\"");
    let result = folder.pretrain(&recipe, "run").json();
    assert_eq!((&result["steps"], &result["tokens"]), (&4.into(), &(4 * 4 * 64).into()));
    assert!(result["loss"].as_f64().is_some_and(|loss| (3.0..8.0).contains(&loss)), "{result}");
    assert_eq!(result["model"], folder.at("run/model"));
    let info = run(["inspect", &folder.at("run/model"), "--json"]).json();
    assert_eq!(info["stored"]["by_dtype"].as_object().unwrap().keys().collect::<Vec<_>>(), ["F32"]);
}

#[test]
fn measure_holds_models_to_the_contract_and_says_so_in_its_exit_code() {
    let folder = Folder::new();
    let base = fixture("base");
    let measure = |limits: &str, models: &[&str], more: &[&str]| {
        let contract = folder.file("contract.toml", contract(limits));
        let args = [models, &["--contract", &contract, "--repeats", "1"], more].concat();
        run(["--threads", "1", "measure"].iter().chain(&args))
    };
    let told = measure("memory_mib = 0.01\nlatency_ms = 60000", &[&base], &[]);
    assert_eq!(told.code, Some(3), "{told:?}");
    let line =
        |start: &str| told.out.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{told:?}"));
    assert!(line("memory").contains("≤ 0.01000 MiB: NOT MET") && line("latency").contains("ms: met"), "{told:?}");
    let json = measure("memory_mib = 0.01", &[&base], &["--json"]);
    assert_eq!(json.code, Some(3), "{json:?}");
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json[0]["met"], &json[0]["limits"][0]["unit"]), (&false.into(), &"MiB".into()));
    measure("memory_mib = 100", &[&base], &[]).ok();
    // Shares are of the first model, which is not held itself.
    let two = measure("memory_of_parent = 1.5", &[&base, &base], &["--json"]).json();
    assert_eq!((&two[0]["met"], &two[1]["met"]), (&Value::Null, &true.into()));
    assert_eq!(measure("memory_of_parent = 0.5", &[&base, &base], &[]).code, Some(3));
    let alone = measure("memory_of_parent = 0.5", &[&base], &[]).ok();
    assert!(alone.out.contains("no limit held"), "{alone:?}");
}

#[test]
fn a_workload_without_decoding_has_no_decode_time() {
    let folder = Folder::new();
    let contract = contract("latency_ms = 60000").replace("output_tokens = 4", "output_tokens = 0");
    let contract = folder.file("contract.toml", contract);
    let args = ["--threads", "1", "measure", &fixture("base"), "--contract", &contract, "--repeats", "3"];
    let json = run(args.iter().chain(&["--json"])).json();
    assert_eq!(json[0]["measured"]["decode_step_seconds"], 0.0);
    assert_eq!(json[0]["measured"]["request"]["median"], json[0]["measured"]["prefill_seconds"]);
    let text = run(args).ok().out;
    assert!(!text.contains("t/s") && text.lines().nth(1).unwrap().contains(" - "), "{text}");
}
