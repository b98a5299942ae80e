//! config.json: every spelling, every refusal, parameter counts against published numbers.

use std::path::{Path, PathBuf};

use autocompress::Error;
use autocompress::model::config::{Attention, Config, Layer, LayerKind, Mamba, Mlp, Moe, Mtp};
use serde_json::{Value, json};

fn preset(name: &str) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets/parents").join(format!("{name}.json"));
    Config::from_file(&path).unwrap()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference").join(name).join("config.json")
}

fn base() -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture("base")).unwrap()).unwrap()
}

fn parse(json: Value) -> Result<Config, Error> {
    Config::from_json(Path::new("config.json"), json)
}

/// The base fixture with keys set; a null removes nothing, as null is a value of its own.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut json = base();
    for (key, value) in changes {
        json[*key] = value.clone();
    }
    json
}

fn without(keys: &[&str]) -> Value {
    let mut json = base();
    keys.iter().for_each(|key| drop(json.as_object_mut().unwrap().remove(*key)));
    json
}

/// Parses and expects an input error whose text holds every one of `parts`.
#[track_caller]
fn refused(json: Value, parts: &[&str]) {
    let error = parse(json).expect_err("must be refused");
    assert!(matches!(error, Error::Input { .. }), "{error}");
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    for part in ["config.json"].iter().chain(parts) {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

fn kinds(config: &Config) -> String {
    config.pattern()
}

fn same(a: &Config, b: &Config) -> bool {
    let strip = |c: &Config| Config { json: Default::default(), ..c.clone() };
    strip(a) == strip(b)
}

#[test]
fn the_fixture_is_read_in_full() {
    let config = Config::from_file(&fixture("base")).unwrap();
    assert_eq!((config.vocab_size, config.hidden_size, config.tie_word_embeddings), (256, 64, false));
    assert_eq!(config.norm_eps, 1e-5);
    assert_eq!(
        (config.bos_token_id, config.eos_token_ids.as_slice(), config.pad_token_id),
        (Some(1), &[2][..], Some(0))
    );
    assert_eq!((config.initializer_range, config.rescale_prenorm_residual), (0.1, true));
    assert_eq!(config.dtype.as_deref(), Some("float32"));
    assert_eq!(config.mtp, None);
    let mamba = Mamba {
        heads: 8,
        head_dim: 16,
        groups: 2,
        state: 16,
        conv_kernel: 4,
        chunk_size: 16,
        conv_bias: true,
        time_step_limit: (0.0, f32::INFINITY),
        time_step_min: 0.001,
        time_step_max: 0.1,
        time_step_floor: 1e-4,
    };
    let moe = Moe {
        experts: 8,
        top_k: 3,
        intermediate: 48,
        shared_intermediate: 80,
        latent: None,
        norm_topk_prob: true,
        n_group: 1,
        topk_group: 1,
        routed_scaling_factor: 2.5,
    };
    let attention = Attention { heads: 4, kv_heads: 2, head_dim: 16 };
    let expected = [
        Layer::Mamba(mamba),
        Layer::Moe(moe),
        Layer::Attention(attention),
        Layer::Mamba(mamba),
        Layer::Mlp(Mlp { intermediate: 96 }),
    ];
    assert_eq!(config.layers, expected);
    let latent = Config::from_file(&fixture("latent")).unwrap();
    assert_eq!(latent.layers[1], Layer::Moe(Moe { latent: Some(32), ..moe }));
}

#[test]
fn parameters_and_tensors_match_the_published_numbers() {
    let nano = preset("nano-30b");
    assert_eq!((nano.layers.len(), nano.count(LayerKind::Mamba), nano.count(LayerKind::Moe)), (52, 23, 23));
    assert_eq!(nano.parameters().total, 31_577_940_288);
    assert_eq!((nano.disk_tensors().model, nano.disk_tensors().mtp), (6_243, 0));
    assert_eq!(nano.parameters().active / 100_000_000, 35, "3.6 billion active");

    let lightning = preset("lightning");
    let (parameters, tensors) = (lightning.parameters(), lightning.disk_tensors());
    assert_eq!(parameters.total + parameters.mtp, 32_913_266_240);
    assert_eq!(tensors.model + tensors.mtp, 6_513);
    assert_eq!(lightning.mtp.as_ref().unwrap().layers.len(), 2);

    let small = preset("nano-3-12b").parameters();
    assert_eq!((small.total + 50_000_000) / 100_000_000, 124, "{small:?}");
    assert_eq!((small.active + 50_000_000) / 100_000_000, 21, "{small:?}");

    let large = preset("super-120b");
    assert_eq!([LayerKind::Mamba, LayerKind::Moe, LayerKind::Attention].map(|kind| large.count(kind)), [40, 40, 8]);
    assert_eq!((large.parameters().total + 50_000_000) / 100_000_000, 1207, "{:?}", large.parameters());
}

#[test]
fn counting_needs_no_weights_and_no_time() {
    let config = preset("super-120b");
    let start = std::time::Instant::now();
    for _ in 0..10 {
        std::hint::black_box((config.parameters(), config.disk_tensors()));
    }
    // Generous: a loaded machine may take a hundred times longer than an idle one.
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
}

#[test]
fn layer_lists_have_many_spellings() {
    let expected = "ME*M-";
    for json in [
        base(),
        with(&[("layers_block_type", json!(["mamba", "moe", "attention", "linear_attention", "mlp"]))]),
        with(&[
            ("layers_block_type", Value::Null),
            ("layer_types", json!(["mamba", "moe", "full_attention", "mamba", "mlp"])),
        ]),
        with(&[("layers_block_type", Value::Null), ("hybrid_override_pattern", json!("M|E*|M-"))]),
        with(&[("layers_block_type", Value::Null), ("hybrid_override_pattern", json!("ME*M-/*E/*E"))]),
        // The list wins, and its length wins over the number.
        with(&[("hybrid_override_pattern", json!("MMMM")), ("num_hidden_layers", json!(99))]),
    ] {
        assert_eq!(kinds(&parse(json).unwrap()), expected);
    }
    refused(
        with(&[("layers_block_type", json!(["mamba", "conv"]))]),
        &["layers_block_type", "conv", "linear_attention"],
    );
    refused(
        with(&[("layers_block_type", Value::Null), ("hybrid_override_pattern", json!("MEX"))]),
        &["hybrid_override_pattern", "'X'"],
    );
    refused(without(&["layers_block_type"]), &["layers_block_type", "no such key"]);
    refused(with(&[("layers_block_type", json!([]))]), &["0 layers"]);
}

#[test]
fn older_names_override() {
    let json = with(&[
        ("mamba_n_groups", json!(4)),
        ("mamba_d_conv", json!(3)),
        ("mamba_expand", json!(7)),
        ("mamba_dt_min", json!(0.01)),
        ("mamba_dt_max", json!(0.2)),
        ("mamba_dt_limit", json!([0.5, 2.0])),
        ("mamba_dt_init_floor", json!(0.002)),
        ("mamba_conv_bias", json!(false)),
        ("mamba_chunk_size", json!(32)),
    ]);
    let Layer::Mamba(m) = parse(json).unwrap().layers[0] else { panic!("not a Mamba layer") };
    assert_eq!((m.groups, m.conv_kernel, m.conv_bias, m.chunk_size), (4, 3, false, 32));
    assert_eq!((m.time_step_min, m.time_step_max, m.time_step_floor), (0.01, 0.2, 0.002));
    assert_eq!(m.time_step_limit, (0.5, 2.0));
    let mut renamed = without(&["n_routed_experts"]);
    renamed["num_local_experts"] = json!(16);
    let Layer::Moe(moe) = parse(renamed).unwrap().layers[1] else { panic!("not a MoE layer") };
    assert_eq!(moe.experts, 16);
}

#[test]
fn infinities_and_token_lists_are_read_in_every_form() {
    for limit in [json!([0.0, {"__float__": "Infinity"}]), json!([0, "Infinity"]), Value::Null] {
        let Layer::Mamba(m) = parse(with(&[("time_step_limit", limit)])).unwrap().layers[0] else { panic!() };
        assert_eq!(m.time_step_limit, (0.0, f32::INFINITY));
    }
    // As Python's json writes it, and not inside a text.
    let text = base()
        .to_string()
        .replace(r#"{"__float__":"Infinity"}"#, "Infinity")
        .replace("\"silu\"", "\"silu\",\"note\":\"a \\\" NaN, Infinity\"");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    std::fs::write(&path, text).unwrap();
    let config = Config::from_file(&path).unwrap();
    assert_eq!(config.json["note"], "a \" NaN, Infinity");
    let Layer::Mamba(m) = config.layers[0] else { panic!() };
    assert_eq!(m.time_step_limit.1, f32::INFINITY);

    assert_eq!(parse(with(&[("eos_token_id", json!([2, 11]))])).unwrap().eos_token_ids, [2, 11]);
    let none = parse(with(&[("eos_token_id", Value::Null), ("pad_token_id", Value::Null)])).unwrap();
    assert_eq!((none.eos_token_ids.len(), none.pad_token_id), (0, None));
    refused(with(&[("eos_token_id", json!("end"))]), &["eos_token_id", "token id"]);
    refused(with(&[("time_step_limit", json!([0.0]))]), &["time_step_limit", "two numbers"]);
    refused(with(&[("time_step_limit", json!([0.2, 0.1]))]), &["time_step_limit"]);
}

#[test]
fn missing_keys_and_wrong_types_are_named() {
    for key in [
        "vocab_size",
        "hidden_size",
        "model_type",
        "mamba_num_heads",
        "mamba_head_dim",
        "n_groups",
        "ssm_state_size",
        "conv_kernel",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "intermediate_size",
    ] {
        refused(without(&[key]), &[key, "no such key"]);
        refused(with(&[(key, json!([1]))]), &[key, "[1]"]);
        if key != "model_type" && key != "moe_shared_expert_intermediate_size" {
            refused(with(&[(key, json!(0))]), &[key, "found 0"]);
        }
        if key != "model_type" {
            refused(with(&[(key, json!(-3))]), &[key, "-3"]);
            refused(with(&[(key, json!(1u64 << 62))]), &[key]);
        }
    }
    refused(with(&[("chunk_size", json!(1.5))]), &["chunk_size", "1.5"]);
    refused(with(&[("tie_word_embeddings", json!("yes"))]), &["tie_word_embeddings", "true or false"]);
    refused(with(&[("layer_norm_epsilon", json!("small"))]), &["layer_norm_epsilon", "finite number"]);
    refused(json!([1, 2]), &["top level"]);
}

#[test]
fn what_the_model_cannot_compute_is_refused() {
    refused(with(&[("model_type", json!("llama"))]), &["model_type", "llama", "nemotron_h"]);
    refused(with(&[("sliding_window", json!(4096))]), &["sliding_window", "4096", "not supported"]);
    refused(with(&[("mamba_hidden_act", json!("gelu"))]), &["mamba_hidden_act", "gelu", "silu"]);
    refused(with(&[("mlp_hidden_act", json!("silu"))]), &["mlp_hidden_act", "silu", "relu2"]);
    for key in ["use_bias", "mamba_proj_bias", "attention_bias", "mlp_bias"] {
        refused(with(&[(key, json!(true))]), &[key, "bias"]);
    }
    refused(with(&[("n_shared_experts", json!(2))]), &["n_shared_experts", "found 2"]);
}

#[test]
fn sizes_must_fit_each_other() {
    refused(with(&[("n_groups", json!(3))]), &["layer 0", "mamba_num_heads", "multiple of n_groups = 3"]);
    refused(with(&[("num_key_value_heads", json!(3))]), &["layer 2", "num_attention_heads", "multiple"]);
    refused(with(&[("num_experts_per_tok", json!(9))]), &["layer 1", "num_experts_per_tok", "9", "8"]);
    refused(with(&[("n_group", json!(3))]), &["n_routed_experts", "multiple of n_group = 3"]);
    refused(with(&[("n_group", json!(2)), ("topk_group", json!(3))]), &["topk_group"]);
    refused(with(&[("n_group", json!(8))]), &["n_group", "at least 2"]);
    refused(with(&[("n_group", json!(4)), ("topk_group", json!(1))]), &["num_experts_per_tok", "3", "at most 2"]);
    assert!(parse(with(&[("n_group", json!(4)), ("topk_group", json!(2))])).is_ok());
}

#[test]
fn a_shared_expert_may_be_absent() {
    for changes in [[("n_shared_experts", json!(0))], [("moe_shared_expert_intermediate_size", json!(0))]] {
        let config = parse(with(&changes)).unwrap();
        let Layer::Moe(moe) = config.layers[1] else { panic!() };
        assert_eq!(moe.shared_intermediate, 0);
        assert!(!config.tensors().iter().any(|spec| spec.name.contains("shared_experts")));
        // transformers makes a shared expert in any case; the heterogeneous form says that there is none.
        assert_eq!(config.to_json().unwrap()["model_type"], "nemotron_h_puzzle");
        assert!(same(&parse(config.to_json().unwrap()).unwrap(), &config));
    }
}

fn puzzle() -> Value {
    with(&[
        ("model_type", json!("nemotron_h_puzzle")),
        ("architectures", json!(["NemotronHPuzzleForCausalLM"])),
        ("layers_block_type", Value::Null),
        ("n_routed_experts", json!(16)),
        (
            "block_configs",
            json!([
                {"block_type": "mamba"},
                {"block_type": "moe", "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                 "moe_shared_expert_intermediate_size": 40, "moe_latent_size": 8},
                {"block_type": "attention"},
                {"block_type": "mlp", "intermediate_size": 30},
                {"block_type": "moe", "n_routed_experts": 16, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
                 "moe_shared_expert_intermediate_size": 0, "moe_latent_size": null},
                {"block_type": "mlp"},
            ]),
        ),
        ("mtp_block_configs", json!([])),
    ])
}

#[test]
fn puzzle_layers_carry_their_own_sizes() {
    let config = parse(puzzle()).unwrap();
    assert_eq!(kinds(&config), "ME*-E-");
    let (Layer::Moe(a), Layer::Moe(b)) = (config.layers[1], config.layers[4]) else { panic!() };
    assert_eq!((a.experts, a.top_k, a.intermediate, a.shared_intermediate, a.latent), (4, 2, 24, 40, Some(8)));
    assert_eq!((b.experts, b.top_k, b.intermediate, b.shared_intermediate, b.latent), (16, 3, 32, 0, None));
    assert_eq!(config.layers[3], Layer::Mlp(Mlp { intermediate: 30 }));
    // Without a size of its own a block takes the model's.
    assert_eq!(config.layers[5], Layer::Mlp(Mlp { intermediate: 96 }));

    let mut listed = puzzle();
    listed["layers_block_type"] = json!(["mamba", "moe", "attention", "moe", "moe", "mlp"]);
    refused(listed, &["block_configs[3]", "mlp", "moe"]);
    let mut short = puzzle();
    short["layers_block_type"] = json!(["mamba"]);
    refused(short, &["block_configs", "6 layers"]);
    let mut broken = puzzle();
    broken["block_configs"][1]["moe_intermediate_size"] = json!("wide");
    refused(broken, &["block_configs[1].moe_intermediate_size", "wide"]);
    let mut untyped = puzzle();
    untyped["block_configs"][2] = json!({});
    refused(untyped, &["block_configs[2].block_type", "no such key"]);
    let mut none = puzzle();
    none["block_configs"] = Value::Null;
    refused(none, &["block_configs", "no such key"]);
}

#[test]
fn writing_then_reading_gives_the_same_model() {
    let mut configs = vec![
        Config::from_file(&fixture("base")).unwrap(),
        Config::from_file(&fixture("base_bf16")).unwrap(),
        Config::from_file(&fixture("latent")).unwrap(),
        parse(puzzle()).unwrap(),
        parse(with(&[("num_nextn_predict_layers", json!(2))])).unwrap(),
        parse(with(&[("time_step_limit", json!([0.001, 0.5])), ("eos_token_id", json!([2, 3]))])).unwrap(),
    ];
    configs.extend(["nano-30b", "lightning", "nano-3-12b", "super-120b"].map(preset));
    for config in configs {
        let json = config.to_json().unwrap();
        let again = parse(json.clone()).unwrap();
        assert!(same(&again, &config), "{json:#}");
        // Saving a second time changes nothing.
        assert_eq!(again.to_json().unwrap(), json);
    }
}

#[test]
fn a_config_made_in_memory_can_be_written() {
    let parent = preset("lightning");
    let config = Config { json: Default::default(), mtp: None, ..parent };
    let again = parse(config.to_json().unwrap()).unwrap();
    assert!(same(&again, &config));
    assert_eq!(again.json["hybrid_override_pattern"], "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME");
}

#[test]
fn unknown_keys_are_kept_and_the_rest_is_rewritten() {
    let mut json = with(&[
        ("my_key", json!({"deep": [1, 2.5]})),
        ("auto_map", json!({"AutoConfig": "configuration_nemotron_h.NemotronHConfig"})),
        ("torch_dtype", json!("bfloat16")),
        ("mamba_d_conv", json!(3)),
        ("quantization_config", json!({"quant_algo": "NVFP4"})),
    ]);
    json.as_object_mut().unwrap().remove("dtype");
    let mut config = parse(json).unwrap();
    let written = config.to_json().unwrap();
    assert_eq!(written["my_key"], json!({"deep": [1, 2.5]}));
    assert_eq!(written["max_position_embeddings"], 512);
    assert_eq!((&written["torch_dtype"], &written["dtype"]), (&json!("bfloat16"), &Value::Null));
    assert_eq!((&written["conv_kernel"], &written["mamba_d_conv"]), (&json!(3), &Value::Null));
    assert_eq!(written["quantization_config"], Value::Null);
    assert_eq!(written["layers_block_type"][0], "linear_attention", "the file's own spelling");
    assert_eq!(written["time_step_limit"], json!([0.0, {"__float__": "Infinity"}]));
    assert!(written["auto_map"].is_object());

    // One layer narrower than the others: the heterogeneous form.
    let Layer::Moe(mut moe) = config.layers[1] else { panic!() };
    moe.intermediate = 16;
    config.layers.push(Layer::Moe(moe));
    let written = config.to_json().unwrap();
    assert_eq!(written["model_type"], "nemotron_h_puzzle");
    assert_eq!(written["architectures"], json!(["NemotronHPuzzleForCausalLM"]));
    assert_eq!(written["block_configs"][5]["moe_intermediate_size"], 16);
    assert_eq!(written["block_configs"][5]["moe_latent_size"], Value::Null);
    assert_eq!(written["n_routed_experts"], 8);
    assert_eq!(written["auto_map"], Value::Null, "it names code that reads the other form");
    assert!(same(&parse(written).unwrap(), &config));
}

#[test]
fn the_largest_expert_count_stands_at_the_top() {
    let mut config = Config::from_file(&fixture("base")).unwrap();
    let Layer::Moe(moe) = config.layers[1] else { panic!() };
    config.layers[1] = Layer::Moe(Moe { experts: 4, ..moe });
    config.layers.push(Layer::Moe(Moe { experts: 6, ..moe }));
    assert_eq!(config.to_json().unwrap()["n_routed_experts"], 6);
}

#[test]
fn what_the_format_cannot_say_is_an_error() {
    let mut config = Config::from_file(&fixture("base")).unwrap();
    let Layer::Mamba(mamba) = config.layers[0] else { panic!() };
    config.layers[0] = Layer::Mamba(Mamba { heads: 4, ..mamba });
    let error = config.to_json().unwrap_err().to_string();
    assert!(error.contains("Mamba") && error.contains("heads: 4"), "{error}");
}

#[test]
fn mtp_heads_are_explicit() {
    let steps = ("num_nextn_predict_layers", json!(1));
    let of = |changes: &[(&str, Value)]| parse(with(changes)).unwrap().mtp.unwrap();
    let letters = |mtp: &Mtp| mtp.layers.iter().map(|layer| layer.kind().letter()).collect::<String>();
    assert_eq!(letters(&of(std::slice::from_ref(&steps))), "*E");
    assert_eq!(letters(&of(&[steps.clone(), ("mtp_layers_block_type", json!(["mamba"]))])), "M");
    let none = ("mtp_layers_block_type", Value::Null);
    let old = of(&[steps.clone(), none.clone(), ("mtp_hybrid_override_pattern", json!("*-"))]);
    assert_eq!(letters(&old), "*-");
    let suffix = of(&[steps.clone(), none, ("hybrid_override_pattern", json!("ME/*M/*M"))]);
    assert_eq!(letters(&suffix), "*M");
    // A suffix without steps is no head.
    assert_eq!(parse(with(&[("hybrid_override_pattern", json!("ME/*M"))])).unwrap().mtp, None);
    let blocks = of(&[
        steps,
        ("mtp_block_configs", json!([{"block_type": "moe", "n_routed_experts": 4, "moe_intermediate_size": 8}])),
    ]);
    let Layer::Moe(moe) = blocks.layers[0] else { panic!() };
    assert_eq!((moe.experts, moe.intermediate, moe.top_k), (4, 8, 3));
}

#[test]
fn tensor_lists_have_the_documented_shapes() {
    let config = Config::from_file(&fixture("latent")).unwrap();
    let tensors = config.tensors();
    let shape = |name: &str| tensors.iter().find(|spec| spec.name == name).unwrap().shape.clone();
    assert_eq!(shape("backbone.layers.0.mixer.in_proj.weight"), [328, 64]);
    assert_eq!(shape("backbone.layers.0.mixer.conv1d.weight"), [192, 4]);
    assert_eq!(shape("backbone.layers.1.mixer.experts.up_proj.weight"), [8, 48, 32]);
    assert_eq!(shape("backbone.layers.1.mixer.experts.down_proj.weight"), [8, 32, 48]);
    assert_eq!(shape("backbone.layers.1.mixer.fc2_latent_proj.weight"), [64, 32]);
    let up = tensors.iter().find(|spec| spec.name.ends_with("mixer.experts.up_proj.weight")).unwrap();
    assert_eq!((up.disk_count(), up.disk_name(3)), (8, "backbone.layers.1.mixer.experts.3.up_proj.weight".into()));
    assert_eq!(up.disk_shape(), [48, 32]);
    let tied = parse(with(&[("tie_word_embeddings", json!(true))])).unwrap();
    assert!(!tied.tensors().iter().any(|spec| spec.name == "lm_head.weight"));
    let no_bias = parse(with(&[("use_conv_bias", json!(false))])).unwrap();
    assert!(!no_bias.tensors().iter().any(|spec| spec.name.ends_with("conv1d.bias")));
}
