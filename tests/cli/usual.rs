//! The usual way: text, shards, training, evaluation, generation.

use serde_json::{Value, json};

use crate::common::{Folder, run};

#[test]
fn text_becomes_shards_a_model_and_its_continuations() {
    let folder = Folder::new();
    let text = folder.file("a.txt", "the quick brown fox\n\njumps over the lazy dog\n\n".repeat(30));
    let more = folder.file("b.jsonl", "{\"text\": \"the end\"}\n{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n");
    run(["tokenize", &text, &more, "--blank-line", "--out", &folder.at("shards"), "--tokens-per-shard", "500"]).ok();
    assert!(folder.names("shards").len() > 2);
    let mut losses = Vec::new();
    for (out, data) in [
        ("apart", "kind = \"shards\"\npaths = [\"shards\"]"),
        ("joined", "kind = \"shards\"\npaths = [\"shards\"]\ndocuments = \"joined\""),
        ("text", "kind = \"text\"\npaths = [\"a.txt\", \"b.jsonl\"]\nseparate_by = \"blank_line\""),
    ] {
        folder.recipe(data);
        let text = String::from_utf8(folder.read("recipe.toml")).unwrap();
        let recipe = folder.file("recipe.toml", text.replace("steps = 4", "steps = 12"));
        let result = folder.pretrain(&recipe, out).json();
        let metrics = folder.read(&format!("{out}/pretrain/metrics.jsonl"));
        let first: Value = serde_json::from_slice(metrics.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert!(result["loss"].as_f64().unwrap() < first["loss"].as_f64().unwrap(), "{out}: {result} after {first}");
        losses.push(result["loss"].as_f64().unwrap());
    }
    // The same documents, whether they come from shards or from text.
    assert_eq!(losses[0], losses[2]);
    assert_ne!(losses[0], losses[1]);

    let model = folder.at("apart/model");
    evaluate_records(&folder, &model);
    generate_from_several_prompts(&folder, &model);
}

fn evaluate_records(folder: &Folder, model: &str) {
    let records = [
        json!({ "text": "the quick brown fox" }),
        json!({ "prompt": "the lazy ", "answer": "dog" }),
        json!({ "prompt": "the ", "choices": ["quick", "end", "dog"], "answer": 1, "source": "other keys are left" }),
        json!({ "text": "jumps" }),
    ];
    let data = folder.file("records.jsonl", records.map(|record| record.to_string()).join("\n"));
    let evaluate = |threads| run(["--threads", threads, "evaluate", model, "--data", &data, "--json"]).json();
    let evaluation = evaluate("1");
    let parts = evaluation["parts"].as_array().unwrap();
    let told: Vec<(&str, u64)> =
        parts.iter().map(|part| (part["name"].as_str().unwrap(), part["items"].as_u64().unwrap())).collect();
    assert_eq!(told[..2], [("text", 2), ("exact match", 1)]);
    assert_eq!(told[2].0, "multiple choice");
    assert_eq!(parts[0]["accuracy"], Value::Null);
    assert!(parts[2]["accuracy_per_token"].is_number());
    assert_eq!(evaluate("2"), evaluation);
}

fn generate_from_several_prompts(folder: &Folder, model: &str) {
    let prompts = folder.file("prompts.txt", "the\n\nthe quick brown fox jumps over\n");
    let generate = |threads, more: &[&str]| {
        let args = ["--threads", threads, "generate", model, "--max-tokens", "12", "--json"];
        run(args.iter().chain(more)).json()
    };
    let several = ["--prompt", "a", "--prompt", "jumps", "--prompts", &prompts];
    for draws in [&[][..], &["--temperature", "0.8", "--top-p", "0.9", "--seed", "7"]] {
        let args = [&several[..], draws].concat();
        let one = generate("1", &args);
        assert_eq!(one, generate("2", &args));
        assert_eq!(one, generate("2", &[&args[..], &["--prefill-chunk", "3"]].concat()));
        let told: Vec<&str> = one.as_array().unwrap().iter().map(|c| c["prompt"].as_str().unwrap()).collect();
        assert_eq!(told, ["a", "jumps", "the", "the quick brown fox jumps over"]);
    }
    // What a prompt is continued with does not depend on the others.
    let alone = generate("1", &["--prompt", "jumps"]);
    assert_eq!(generate("1", &several)[1], alone[0]);
    let seeds = ["1", "2"].map(|seed| generate("1", &["--prompt", "a", "--temperature", "1", "--seed", seed]));
    assert_ne!(seeds[0], seeds[1]);
    let text = run(["generate", model, "--prompt", "jumps", "--max-tokens", "12"]).ok();
    assert!(text.out.starts_with("jumps") && text.err.ends_with(" s\n"), "{text:?}");
}
