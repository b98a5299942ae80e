use std::path::Path;

use autocompress::cost::{Contract, Device, DeviceSpec, Engine, Explanation, Format, MoeBackend, Precision};

use super::common::{DEPLOYMENTS, contract, deployment, edited, parent, preset};

fn explain(name: &str, from: &str, to: &str) -> Explanation {
    let (of_preset, space) = deployment(name);
    let changed = Contract::from_toml(&of_preset.file, &edited(name, from, to)).unwrap();
    changed.explain(Some(&space.parent), Some(&space)).unwrap()
}

fn refused(name: &str, from: &str, to: &str) -> String {
    let error = Contract::from_toml(Path::new("c.toml"), &edited(name, from, to)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn the_four_deployments_are_explained_without_contradiction() {
    for name in DEPLOYMENTS {
        let (contract, space) = deployment(name);
        let explanation = contract.explain(Some(&space.parent), Some(&space)).unwrap();
        assert!(explanation.findings.iter().all(|f| !f.contradiction), "{name}: {:?}", explanation.findings);
        explanation.refuse(&contract).unwrap();
        let words = explanation.words.join(" ");
        assert!(words.contains("vLLM") && words.contains("NVIDIA") && words.contains("architectures"), "{words}");
    }
    let (contract_of_h100, space) = deployment("h100");
    let explanation = contract_of_h100.explain(Some(&space.parent), Some(&space)).unwrap();
    assert!(explanation.words.join(" ").contains("2.37e42 architectures"), "{:?}", explanation.words);
    let words = |name| contract(name).explain(None, None).unwrap().words.join(" ");
    assert!(words("rtx-5080").contains("262144 tokens cached"), "{}", words("rtx-5080"));
    // 128 · 65,536 tokens at 7,330 a second.
    assert!(words("h100").contains("within 1144.4 s"), "{}", words("h100"));
}

#[test]
fn contracts_of_the_built_in_engine_are_the_same_type() {
    for name in ["cpu", "half"] {
        let contract = contract(name);
        assert_eq!((&contract.device, &contract.engine), (&Device::Cpu, &Engine::Builtin));
        assert_eq!(contract.precision, Precision::F32);
        assert!(contract.threads > 0 && contract.measured_here().is_ok() && contract.vllm().is_err());
        assert!(contract.explain(None, None).unwrap().findings.is_empty());
    }
    let contract = contract("rtx-5070");
    let vllm = contract.vllm().unwrap();
    assert_eq!((vllm.version.as_str(), vllm.moe_backend), ("0.27.1", MoeBackend::Cutlass));
    assert_eq!((contract.precision.experts, contract.precision.ssm_state), (Format::Nvfp4, Format::F32));
    assert_eq!(contract.precision.gate, Format::Bf16);
    assert!(contract.measured_here().unwrap_err().to_string().contains("profile plan"));
}

#[test]
fn faults_are_named() {
    for (from, to, parts) in [
        ("device = \"rtx-5070\"", "device = \"rtx-507\"", &["line 3", "did you mean `rtx-5070`"][..]),
        ("moe_backend", "moe_backed", &["unknown field", "did you mean `moe_backend`"]),
        ("name = \"vllm\"", "name = \"vlm\"", &["vlm", "`vllm`"]),
        ("experts = \"nvfp4\"", "experts = \"fp4\"", &["fp4", "did you mean"]),
        ("mamba = \"fp8\"", "mambo = \"fp8\"", &["did you mean `mamba`"]),
        ("kv_cache = \"fp8\"", "kv_cache = \"nvfp4\"", &["precision.kv_cache", "bf16 or fp8"]),
        ("ssm_state = \"f32\"", "ssm_state = \"fp8\"", &["precision.ssm_state", "f32 or bf16"]),
        ("moe_backend", "tensor_parallel = 2\nmoe_backend", &["engine.tensor_parallel", "not modelled"]),
        ("moe_backend", "gpu_memory_utilization = 1.5\nmoe_backend", &["engine.gpu_memory_utilization"]),
        ("device =", "threads = 2\ndevice =", &["threads", "builtin"]),
        ("[limits]", "[limit]", &["did you mean `limits`"]),
        ("alpha = 1.0", "alpha = -1", &["search.alpha"]),
        ("space =", "spaces =", &["did you mean `space`"]),
    ] {
        let error = refused("rtx-5070", from, to);
        assert!(error.contains("c.toml") && parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let builtin = "device = \"h100\"\nengine = \"builtin\"\nprecision = \"f32\"\nthreads = 1\n[workload]\nbatch = 1\n\
                   input_tokens = 1\noutput_tokens = 1\nprefill_chunk = 1\n[limits]\nlatency_ms = 1";
    let refused = |text: &str| Contract::from_toml(Path::new("c.toml"), text).unwrap_err().to_string();
    assert!(refused(builtin).contains("device: found h100"));
    assert!(refused(&builtin.replace("h100", "cpu").replace("\"f32\"", "\"bf16\"")).contains("precision"));
    assert!(refused(&builtin.replace("\"builtin\"", "\"vllm\"")).contains("[engine]"));
    let without_limits = format!("# A comment.\n{builtin}").replace("[limits]\nlatency_ms = 1", "");
    assert!(refused(&without_limits).contains("file: found missing field `limits`"), "{}", refused(&without_limits));
}

#[test]
fn contradictions_are_found() {
    for (name, from, to, at, of) in [
        // One token more than the parent was made for.
        ("rtx-5070", "input_tokens = 2048", "input_tokens = 262145", "workload", "max_position_embeddings"),
        ("rtx-5070", "memory_mib = 4096", "memory_mib = 100", "limits.memory_mib", "weights alone"),
        ("rtx-5070", "memory_mib = 4096", "memory_mib = 20000", "limits.memory_mib", "NVIDIA GeForce RTX 5070"),
        ("h100", "moe_backend = \"marlin\"", "moe_backend = \"cutlass\"", "precision.experts", "marlin"),
        ("rtx-5070", "moe_backend = \"cutlass\"", "moe_backend = \"triton\"", "engine.moe_backend", "NVFP4"),
        ("rtx-5080", "prefill_chunk = 16384", "prefill_chunk = 2048", "workload.prefill_chunk", "4176"),
        ("h100", "prefill_chunk = 8192", "prefill_chunk = 64", "workload.prefill_chunk", "128"),
        ("h100", "data_parallel = 8", "max_num_seqs = 64", "engine.max_num_seqs", "128"),
    ] {
        let findings = explain(name, from, to).findings;
        let found = findings.iter().find(|f| f.contradiction && f.at == at);
        let found = found.unwrap_or_else(|| panic!("{name} {to}: {findings:?}"));
        assert!(found.expected.contains(of) || found.found.contains(of), "{found:?}");
    }
}

#[test]
fn notes_are_no_contradictions() {
    let (contract, space) = deployment("h100");
    let findings = contract.explain(Some(&space.parent), Some(&space)).unwrap().findings;
    let experts = findings.iter().find(|f| f.at == "precision.experts").unwrap();
    assert!(!experts.contradiction && experts.expected.contains("emulated in bf16"), "{experts:?}");
    let both = explain("h100", "throughput = 7330", "throughput = 7330\nlatency_ms = 100_000");
    let note = both.findings.iter().find(|f| f.at == "limits.throughput").unwrap();
    assert!(!note.contradiction && note.expected.contains("latency_ms alone"), "{note:?}");
    // A short sequence takes a whole page all the same.
    let short = explain("rtx-5070", "input_tokens = 2048", "input_tokens = 512");
    assert!(short.findings.iter().any(|f| f.at == "workload" && !f.contradiction && f.expected.contains("4176")));
}

/// Limits held against times from arithmetic: never a contradiction, and always said to be an estimate.
#[test]
fn estimates_tell_limits_that_nothing_reaches_and_those_that_ask_for_nothing() {
    let estimates = |explanation: &Explanation| -> Vec<(String, String, String)> {
        let all = explanation.findings.iter().filter(|finding| finding.estimate);
        let text = |f: &autocompress::cost::Finding| {
            assert!(!f.contradiction && f.expected.contains("an estimate at the device's peak rates"), "{f:?}");
            (f.at.clone(), f.found.clone(), f.expected.clone())
        };
        all.map(text).collect()
    };
    for name in DEPLOYMENTS {
        let (contract, space) = deployment(name);
        let found = estimates(&contract.explain(Some(&space.parent), Some(&space)).unwrap());
        assert!(found.is_empty(), "{name}: {found:?}");
    }
    // The estimate has no kernel's losses: nothing at all is below it.
    let found = estimates(&explain("rtx-5070", "latency_ms = 750", "latency_ms = 20"));
    assert_eq!(found.len(), 1, "{found:?}");
    let (at, _, expected) = &found[0];
    assert!(at == "limits.latency_ms" && expected.contains("smallest architecture of the space"), "{found:?}");
    let found = estimates(&explain("h100", "throughput = 7330", "throughput = 1e9"));
    assert!(found.len() == 1 && found[0].0 == "limits.throughput" && found[0].2.contains("at most about"), "{found:?}");
    // Both limits far above the parent's.
    let loose = explain("rtx-5070", "memory_mib = 4096", "memory_mib = 11_000");
    let found = estimates(&loose);
    assert!(found.is_empty() || found[0].1.contains("memory"), "{found:?}");
    let (contract, space) = deployment("rtx-5070");
    let text =
        edited("rtx-5070", "memory_mib = 4096", "memory_mib = 11_000").replace("latency_ms = 750", "latency_ms = 9000");
    let loose = Contract::from_toml(&contract.file, &text).unwrap();
    for space_or_none in [Some(&space), None] {
        let found = estimates(&loose.explain(Some(&space.parent), space_or_none).unwrap());
        let parts = [
            "a parent that already keeps every limit",
            "latency_ms about",
            "limit 9000.0 ms",
            "memory",
            "limit 11000 MiB",
        ];
        assert!(found.len() == 1 && parts.iter().all(|part| found[0].1.contains(part)), "{found:?}");
    }
    assert!(loose.explain(None, None).unwrap().findings.iter().all(|finding| !finding.estimate));
}

/// Shares of the parent's, on this crate's own engine, whose bytes are measured and not estimated.
#[test]
fn shares_of_the_parents_are_held_against_estimates_too() {
    let tiny = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("presets/parents/tiny/config.json");
    let parent = autocompress::model::Config::from_file(&tiny).unwrap();
    let space = autocompress::supernet::Space::from_file(&preset("spaces/tiny.toml")).unwrap();
    let space = autocompress::supernet::SearchSpace::new(&space, &parent).unwrap();
    let explain = |limits: &str| {
        let text = edited("half", "latency_of_parent = 0.5\nmemory_of_parent = 0.5", limits);
        let contract = Contract::from_toml(Path::new("c.toml"), &text).unwrap();
        contract.explain(Some(&parent), Some(&space)).unwrap().findings
    };
    assert!(explain("latency_of_parent = 0.5\nmemory_of_parent = 0.5").is_empty());
    let found = explain("latency_of_parent = 0.001");
    assert!(found.len() == 1 && found[0].estimate && found[0].at == "limits.latency_of_parent", "{found:?}");
    let found = explain("throughput_of_parent = 1000");
    assert!(found.len() == 1 && found[0].at == "limits.throughput_of_parent", "{found:?}");
    let found = explain("latency_of_parent = 1.5");
    assert!(found.len() == 1 && found[0].found.contains("already keeps every limit"), "{found:?}");
    // Bytes are not known without a measurement: nothing is said where a limit is on them.
    assert!(explain("latency_of_parent = 1.5\nmemory_mib = 100000").is_empty());
}

#[test]
fn devices_are_read_from_presets_and_files() {
    for name in autocompress::cost::GPUS {
        let spec = DeviceSpec::of(&Device::parse(name).unwrap()).unwrap();
        let text = std::fs::read_to_string(preset(&format!("devices/{name}.toml"))).unwrap();
        assert_eq!(DeviceSpec::from_toml(Path::new("d.toml"), &text).unwrap(), spec);
        assert_eq!(spec.rate(Format::Nvfp4).is_some(), name != "h100");
        assert!(spec.rate_or_higher(Format::Nvfp4) >= spec.rate(Format::Bf16).unwrap());
        let wrong = text.replace("bandwidth =", "bandwith =");
        let error = DeviceSpec::from_toml(Path::new("d.toml"), &wrong).unwrap_err().to_string();
        assert!(error.contains("did you mean `bandwidth`"), "{error}");
    }
    assert_eq!(Device::parse("h200"), None);
    assert!(DeviceSpec::of(&Device::parse("missing.toml").unwrap()).is_err());
}

#[test]
fn spaces_and_parents_are_the_papers() {
    for (name, total, active) in [("lightning", 31.6, 3.6), ("nano-3-12b", 12.4, 2.1), ("super-120b", 120.0, 12.0)] {
        let p = parent(name).parameters();
        let (t, a) = (p.total as f64 / 1e9, p.active as f64 / 1e9);
        let near = if name == "super-120b" { 0.04 } else { 0.03 };
        assert!((t / total - 1.0).abs() < near, "{name}: {t}");
        assert!((a / active - 1.0).abs() < 0.1, "{name}: {a}");
    }
    for (name, digits, length) in [("rtx-5080", "237", 43), ("rtx-5070", "120", 53)] {
        let (_, space) = deployment(name);
        let count = space.count().to_string();
        let rounded = (count[..4].parse::<f64>().unwrap() / 10.0).round().to_string();
        assert_eq!((rounded.as_str(), count.len()), (digits, length), "{name}");
    }
}
