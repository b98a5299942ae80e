//! Promise: a run killed at any step and resumed ends with the same bits as one that was not.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_autocompress"));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A small recipe of all four kinds of layers, in `folder`.
fn recipe(folder: &Path) -> PathBuf {
    let config = serde_json::json!({
        "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "vocab_size": 256, "hidden_size": 32,
        "layers_block_type": ["mamba", "moe", "attention", "mlp"],
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 8, "conv_kernel": 4, "chunk_size": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 32, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
        "routed_scaling_factor": 2.5, "intermediate_size": 48, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": false,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let text = r#"
[model]
config = "config.json"
seed = 3
dtype = "f32"

[data]
kind = "tasks"

[train]
steps = 40
sequences = 4
length = 64
micro_batches = 2
learning_rate = 3e-3
warmup_steps = 5
checkpoint_every = 3
"#;
    let path = folder.join("recipe.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn lines(run: &Path) -> usize {
    std::fs::read_to_string(run.join("pretrain/metrics.jsonl")).map_or(0, |text| text.lines().count())
}

/// Starts the run and kills it once `after` lines of metrics are written. Returns whether it was still running then.
fn run_and_kill(recipe: &Path, run: &Path, after: usize) -> bool {
    let mut child = program().args(["--threads", "1", "pretrain"]).arg(recipe).arg("--out").arg(run).spawn().unwrap();
    let started = Instant::now();
    while lines(run) < after && child.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let running = child.try_wait().unwrap().is_none();
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    running
}

fn finish(recipe: &Path, run: &Path, threads: &str) {
    let output = program().args(["--threads", threads, "pretrain"]).arg(recipe).arg("--out").arg(run).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn killed_and_resumed_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe(folder.path());
    let whole = folder.path().join("whole");
    finish(&recipe, &whole, "2");
    let weights = std::fs::read(whole.join("model/model.safetensors")).unwrap();
    let metrics = std::fs::read(whole.join("pretrain/metrics.jsonl")).unwrap();

    // Steps that nobody chose: from the clock. Each is in the message of a failure.
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos() as usize;
    let kills = [1 + clock % 7, 10 + clock / 7 % 9, 22 + clock / 63 % 12];
    let killed = folder.path().join("killed");
    let mut interrupted = 0;
    for after in kills {
        interrupted += usize::from(run_and_kill(&recipe, &killed, after));
    }
    assert!(interrupted >= 1, "no kill met a running process");
    finish(&recipe, &killed, "1");
    let after = std::fs::read(killed.join("model/model.safetensors")).unwrap();
    assert!(weights == after, "weights differ after kills at lines {kills:?}");
    let after = std::fs::read(killed.join("pretrain/metrics.jsonl")).unwrap();
    assert!(metrics == after, "metrics differ after kills at lines {kills:?}");
}

#[test]
fn another_recipe_or_a_changed_config_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe(folder.path());
    let run = folder.path().join("run");
    run_and_kill(&recipe, &run, 4);
    let refused = |recipe: &Path| {
        let output = program().arg("pretrain").arg(recipe).arg("--out").arg(&run).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = std::fs::read_to_string(&recipe).unwrap();
    let other = folder.path().join("other.toml");
    std::fs::write(&other, text.replace("steps = 40", "steps = 41")).unwrap();
    let error = refused(&other);
    assert!(error.contains("steps = 40") && error.contains("steps = 41"), "{error}");
    let config = folder.path().join("config.json");
    let changed = std::fs::read_to_string(&config).unwrap() + " ";
    std::fs::write(&config, changed).unwrap();
    let error = refused(&recipe);
    assert!(error.contains("config") && error.contains("changed"), "{error}");
}
