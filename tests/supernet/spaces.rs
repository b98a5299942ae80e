//! Spaces: counted exactly, and every impossible one refused with its key.

use std::path::Path;

use autocompress::model::Config;
use autocompress::supernet::{Axis, SearchSpace, Space};
use serde_json::json;

use crate::models::{config_with, preset, space};

fn presets(name: &str, parent: &str) -> SearchSpace {
    let parent = Config::from_file(&preset(parent)).unwrap();
    SearchSpace::new(&Space::from_file(&preset(&format!("spaces/{name}.toml"))).unwrap(), &parent).unwrap()
}

#[test]
fn the_numbers_of_architectures() {
    // 6·5·60²³ = 2.37e42 and 6·2²³·85²³ = 1.20e52.
    let lightning = presets("lightning", "parents/lightning.json").count().to_string();
    assert_eq!((&lightning[..4], lightning.len()), ("2369", 43));
    let pow = |base: u32, n: u32| num_bigint::BigUint::from(base).pow(n);
    assert_eq!(lightning, (pow(60, 23) * 30u32).to_string());
    let nano = presets("nano-3-12b", "parents/nano-3-12b.json").count();
    assert_eq!((&nano.to_string()[..3], nano.to_string().len()), ("119", 53));
    assert_eq!(nano, pow(2, 23) * pow(85, 23) * 6u32);
    // 40 layers of 18·10.
    assert_eq!(presets("super", "parents/super-120b.json").count(), pow(180, 40));
    // 4 MoE layers: E·F>0·S + F=0·S.
    assert_eq!(presets("tiny", "parents/tiny/config.json").count(), pow(4 * 4 * 5 + 5, 4) * 20u32);
}

/// Against an enumeration of all choices.
#[test]
fn small_spaces_counted_one_by_one() {
    let parent = config_with(json!({}));
    for text in [
        "[mamba]\nheads = [8, 4]\nremove = true",
        "hidden_size = [64, 32]\n[moe]\nexperts = [8, 4]\nintermediate = [48, 16, 0]\nshared_intermediate = [80, 0]",
        "[moe]\nexperts = [8, 4]\nshared_intermediate = [80, 0]",
    ] {
        let space = space(&parent, text);
        let mut seen = std::collections::HashSet::new();
        let mut choices = vec![Vec::new()];
        for gate in &space.gates {
            let longer = |choice: &Vec<usize>| {
                (0..gate.candidates.len()).map(|i| [choice.as_slice(), &[i]].concat()).collect::<Vec<_>>()
            };
            choices = choices.iter().flat_map(longer).collect();
        }
        for choice in choices {
            let choice = autocompress::supernet::Choice(choice);
            let layers = space.layers_of(&choice).unwrap();
            seen.insert(format!("{} {layers:?}", space.config_of(&choice).unwrap().hidden_size));
        }
        assert_eq!(space.count(), num_bigint::BigUint::from(seen.len()), "{text}");
    }
}

#[test]
fn gates_are_named_and_rising() {
    let space =
        space(&config_with(json!({})), "hidden_size = [32, 64]\n[mamba]\nremove = true\n[moe]\nexperts = [4, 8, 6]");
    let gates: Vec<(&str, &[usize])> = space.gates.iter().map(|g| (g.name.as_str(), g.candidates.as_slice())).collect();
    let expected: [(&str, &[usize]); 4] = [
        ("hidden_size", &[32, 64]),
        ("layers.0.keep", &[0, 1]),
        ("layers.1.experts", &[4, 6, 8]),
        ("layers.3.keep", &[0, 1]),
    ];
    assert_eq!(gates, expected);
    assert_eq!(space.gate(Axis::Experts, Some(1)), Some(2));
    assert_eq!(space.gate(Axis::Routed, Some(1)), None);
}

#[test]
fn a_parent_without_moe_or_mamba_layers_has_no_such_gates() {
    let text = "hidden_size = [64, 32]\n[mamba]\nheads = [8, 4]\nremove = true\n[moe]\nexperts = [8, 4]";
    for (kinds, gates) in [(["mamba", "mlp"], 3), (["attention", "moe"], 2), (["attention", "mlp"], 1)] {
        assert_eq!(space(&config_with(json!({ "layers_block_type": kinds })), text).gates.len(), gates);
    }
}

#[test]
fn a_multi_token_head_is_no_part_of_a_student() {
    let parent = Config::from_file(&preset("parents/lightning.json")).unwrap();
    assert!(parent.mtp.is_some());
    let space = presets("lightning", "parents/lightning.json");
    assert!(space.config_of(&space.parent_choice()).unwrap().mtp.is_none());
}

/// Keys, TOML, and what the error must say: key, found, expected.
#[test]
fn impossible_spaces_are_refused() {
    let plain = json!({});
    let grouped = json!({ "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2 });
    let wide = json!({ "n_group": 4, "topk_group": 3, "num_experts_per_tok": 6 });
    let cases: [(&serde_json::Value, &str, [&str; 3]); 20] = [
        (&plain, "", ["top level", "nothing", "two candidates"]),
        (&plain, "hidden_size = [64]", ["top level", "nothing", "two candidates"]),
        (&plain, "hidden_size = []", ["hidden_size", "no candidates", "at least one"]),
        (&plain, "hidden_size = [64, 32, 32]", ["hidden_size", "32 twice", "once"]),
        (&plain, "hidden_size = [64, 0]", ["hidden_size", "found 0", "at least 1"]),
        (&plain, "hidden_size = [128, 64]", ["hidden_size", "128", "at most 64"]),
        (&plain, "hidden_size = [48, 32]", ["hidden_size", "[48, 32]", "64 among them"]),
        (&plain, "hidden_size = [64, -1]", ["line 1", "-1", "expected usize"]),
        (&plain, "hidden_size = 64", ["line 1", "integer", "expected a sequence"]),
        (&plain, "\nhidden_sizes = [64]", ["line 2", "hidden_sizes", "did you mean `hidden_size`?"]),
        (&plain, "[mamba]\nheads = [8]\nremoves = true", ["line 3", "removes", "did you mean `remove`?"]),
        (&plain, "[mamba]\nheads = [8, 5]", ["mamba.heads", "found 5", "n_groups = 2"]),
        (&plain, "[mamba]\nheads = [8, 0]", ["mamba.heads", "found 0", "at least 1"]),
        (&plain, "[moe]\nexperts = [8, 2]", ["moe.experts", "found 2", "num_experts_per_tok = 3"]),
        (&plain, "[moe]\nexperts = [8, 0]", ["moe.experts", "found 0", "at least 1"]),
        (&plain, "[moe]\nintermediate = [0, 32]", ["moe.intermediate", "[0, 32]", "48 among them"]),
        (&plain, "[moe]\nshared_intermediate = [81, 80]", ["moe.shared_intermediate", "81", "at most 80"]),
        (&grouped, "[moe]\nexperts = [8, 5]", ["moe.experts", "found 5", "n_group = 2"]),
        (&grouped, "[moe]\nexperts = [8, 2]", ["moe.experts", "found 2", "at least 2 experts in each"]),
        (&json!({}), "[moe]\nexperts = [9, 8]", ["moe.experts", "found 9", "at most 8"]),
    ];
    for (keys, text, says) in cases {
        refused(&config_with(keys.clone()), text, says);
    }
    // 12 experts in 4 groups, 3 open, 6 wanted: 8 leave 2·3 = 6; with 7 wanted they do not.
    let twelve = |k: usize| {
        let mut keys = wide.clone();
        keys["n_routed_experts"] = json!(12);
        keys["num_experts_per_tok"] = json!(k);
        config_with(keys)
    };
    assert_eq!(space(&twelve(6), "[moe]\nexperts = [12, 8]").gates.len(), 1);
    refused(&twelve(7), "[moe]\nexperts = [12, 8]", ["moe.experts", "8, 6 within topk_group = 3", "per_tok = 7"]);
}

#[test]
fn a_space_that_removes_every_layer_is_refused() {
    let parent = config_with(json!({ "layers_block_type": ["mamba", "moe"], "num_hidden_layers": 2 }));
    let all = "[mamba]\nremove = true\n[moe]\nintermediate = [48, 0]\nshared_intermediate = [80, 0]";
    refused(&parent, all, ["top level", "removes every layer", "a layer that stays"]);
    // The shared expert stays.
    space(&parent, "[mamba]\nremove = true\n[moe]\nintermediate = [48, 0]");
}

fn refused(parent: &Config, text: &str, says: [&str; 3]) {
    let result = Space::from_toml(Path::new("space.toml"), text).and_then(|space| SearchSpace::new(&space, parent));
    let error = result.err().unwrap_or_else(|| panic!("accepted: {text}"));
    assert_eq!(error.exit_code(), 2, "{error}");
    let message = error.to_string();
    assert!(message.starts_with("space.toml: "), "{message}");
    assert!(says.iter().all(|part| message.contains(part)), "{text:?}: {message}");
}
