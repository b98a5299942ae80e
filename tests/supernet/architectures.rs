//! Choices: uniform, random, and as JSON.

use std::path::Path;

use autocompress::supernet::Axis;
use serde_json::json;

use crate::models::{config_with, space};

const SPACE: &str =
    "hidden_size = [64, 32]\n[mamba]\nremove = true\n[moe]\nexperts = [8, 4]\nintermediate = [48, 16, 0]";

#[test]
fn json_and_back() {
    let space = space(&config_with(json!({})), SPACE);
    let mut choice = space.uniform(&[(Axis::Routed, 16), (Axis::Hidden, 32)]).unwrap();
    choice.0[space.gate(Axis::KeepMamba, Some(3)).unwrap()] = 0;
    let json = space.choice_to_json(&choice).unwrap();
    let expected = json!({
        "hidden_size": 32, "layers.0.keep": true, "layers.1.experts": 8, "layers.1.intermediate": 16, "layers.3.keep": false
    });
    assert_eq!(json, expected);
    let file = Path::new("architecture.json");
    assert_eq!(space.choice_from_json(file, &json).unwrap(), choice);
    for seed in 0..50 {
        let choice = space.random(seed);
        let json = space.choice_to_json(&choice).unwrap();
        assert_eq!(space.choice_from_json(file, &json).unwrap(), choice);
    }

    let broken =
        [("hidden_size", json!(33), "33"), ("layers.0.keep", json!(1), "true or false"), ("x", json!(1), "no such")];
    for (key, value, says) in broken {
        let mut json = json.clone();
        json[key] = value;
        let error = space.choice_from_json(file, &json).unwrap_err().to_string();
        assert!(error.contains("architecture.json") && error.contains(key) && error.contains(says), "{error}");
    }
    let error = space.choice_from_json(file, &json!({})).unwrap_err().to_string();
    assert!(error.contains("hidden_size") && error.contains("no such key"), "{error}");
}

#[test]
fn random_choices_are_reproducible_and_reach_every_candidate() {
    let space = space(&config_with(json!({})), SPACE);
    assert_eq!(space.random(4), space.random(4));
    for (g, gate) in space.gates.iter().enumerate() {
        let mut counts = vec![0; gate.candidates.len()];
        (0..300).for_each(|seed| counts[space.random(seed).0[g]] += 1);
        let expected = 300 / gate.candidates.len();
        assert!(counts.iter().all(|count| *count > expected / 2), "{}: {counts:?}", gate.name);
    }
}

#[test]
fn a_uniform_choice_needs_a_gate_and_a_candidate() {
    let space = space(&config_with(json!({})), SPACE);
    let error = space.uniform(&[(Axis::Experts, 5)]).unwrap_err().to_string();
    assert!(error.contains("layers.1.experts") && error.contains('5'), "{error}");
    assert!(space.uniform(&[(Axis::Heads, 8)]).unwrap_err().to_string().contains("Heads"));
    assert_eq!(space.uniform(&[]).unwrap(), space.parent_choice());
}

#[test]
fn a_student_without_layers_is_refused() {
    let parent = config_with(json!({ "layers_block_type": ["mamba", "moe", "attention"] }));
    let text = "[mamba]\nremove = true\n[moe]\nintermediate = [48, 0]\nshared_intermediate = [80, 0]";
    let mut space = space(&parent, text);
    // No space file gives such a space: the attention layer stays.
    space.parent.layers.truncate(2);
    let choice = autocompress::supernet::Choice(vec![0; space.gates.len()]);
    assert!(space.config_of(&choice).unwrap_err().to_string().contains("no layers"));
}
