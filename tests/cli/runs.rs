//! Run directories: whose they are, and what they survive.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Folder, as_pipe, command, files_below, run, tokenizer, wait};

const TASKS: &str = "kind = \"tasks\"";

#[test]
fn a_run_that_another_process_holds_is_refused_with_its_id() {
    let folder = Folder::new();
    let long = folder.recipe_with("steps = 4", "steps = 1000000");
    let out = folder.at("run");
    let mut holder = command(["--threads", "1", "pretrain", &long, "--out", &out, "--quiet"]).spawn().unwrap();
    let started = Instant::now();
    while fs::read_to_string(folder.path().join("run/lock")).map_or(true, |pid| pid.is_empty()) {
        assert!(started.elapsed() < Duration::from_secs(30), "no lock");
        std::thread::sleep(Duration::from_millis(2));
    }
    let refused = folder.pretrain(&long, "run");
    let pid = holder.id().to_string();
    holder.kill().unwrap();
    holder.wait().unwrap();
    refused.refused(1, &["run", "in use by process", &pid]);
}

#[test]
fn folders_that_are_no_run_of_this_recipe_are_refused_and_kept() {
    let folder = Folder::new();
    let recipe = folder.recipe(TASKS);
    fs::create_dir(folder.path().join("mine")).unwrap();
    folder.file("mine/thesis.txt", "years of work");
    folder.pretrain(&recipe, "mine").refused(2, &["mine", "thesis.txt", "an empty folder"]);
    assert_eq!(folder.names("mine"), ["thesis.txt"]);
    folder.file("file", "");
    folder.pretrain(&recipe, "file").refused(2, &["file: path: found a file, expected a folder, or nothing"]);
    folder.pretrain(&recipe, "file/run").refused(2, &["file: path: found a file, expected a folder, or nothing"]);
    let outcome = run(["pretrain", &recipe, "--out", "/proc/run"]);
    outcome.refused(1, &["/proc/run", "cannot create"]);
    folder.pretrain(&recipe, "run").ok();
    let before = folder.read("run/model/model.safetensors");
    let other = folder.recipe_with("seed = 3", "seed = 4");
    folder.pretrain(&other, "run").refused(2, &["run/recipe.toml", "line 3", "`seed = 3`", "`seed = 4`"]);
    assert_eq!(folder.read("run/model/model.safetensors"), before);
}

#[test]
fn a_finished_run_says_the_same_again_and_restores_its_model() {
    let folder = Folder::new();
    let recipe = folder.recipe(TASKS);
    let first = folder.pretrain(&recipe, "run").json();
    let files = ["model/model.safetensors", "model/config.json", "pretrain/metrics.jsonl"];
    let read = || files.map(|file| folder.read(&format!("run/{file}")));
    let before = read();
    assert_eq!(folder.pretrain(&recipe, "run").json(), first);
    assert_eq!(read(), before);
    assert_eq!(folder.names("run/pretrain/checkpoints"), ["step-00000002", "step-00000004"]);
    fs::remove_dir_all(folder.path().join("run/model")).unwrap();
    assert_eq!(folder.pretrain(&recipe, "run").json(), first);
    assert_eq!(read(), before);
    // The loss is that of the metrics.
    let metrics = String::from_utf8(before[2].clone()).unwrap();
    let losses: Vec<f64> =
        metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64().unwrap()).collect();
    assert_eq!(losses.len(), 4);
    assert_eq!(first["loss"].as_f64().unwrap(), losses.iter().sum::<f64>() / 4.0);
    let said = run(["pretrain", &recipe, "--out", &folder.at("run"), "--quiet"]).ok().out;
    assert!(said.starts_with("4 steps, 1.0 K tokens, loss 5.") && said.contains("run/model"), "{said}");
}

/// A pipe that nobody writes to, in the place of any file of a run, is no file: nothing waits for it.
#[test]
fn pipes_in_the_place_of_files_do_not_hang() {
    let folder = Folder::new();
    let recipe = folder.recipe(TASKS);
    let first = folder.pretrain(&recipe, "run").json();
    let mut refused = Vec::new();
    for path in files_below(&folder.path().join("run")) {
        let name = path.strip_prefix(folder.path().join("run")).unwrap().display().to_string();
        let kept = as_pipe(&path);
        let outcome = folder.pretrain(&recipe, "run");
        // Checkpoints that are not whole are passed over; the model is written again.
        match outcome.code {
            Some(0) => assert_eq!(outcome.json(), first, "{name}"),
            _ => {
                outcome.failed(2, &[&name]);
                refused.push(name);
            }
        }
        if path.exists() && !path.is_file() {
            fs::remove_file(&path).unwrap();
            fs::write(&path, kept).unwrap();
        }
    }
    for name in ["inputs.json", "lock", "pretrain/metrics.jsonl", "recipe.toml"] {
        assert!(refused.contains(&name.to_owned()), "{name}: {refused:?}");
    }
    assert_eq!(folder.pretrain(&recipe, "run").json(), first);
}

#[test]
fn the_precision_of_the_command_line_goes_before_the_recipes() {
    let folder = Folder::new();
    let recipe = folder.recipe(TASKS);
    let model = |out: &str| folder.read(&format!("{out}/model/model.safetensors"));
    let asked = |precision: &str, recipe: &str, out: &str| {
        run(["--precision", precision, "pretrain", recipe, "--out", &folder.at(out), "--quiet"]).ok();
        model(out)
    };
    folder.pretrain(&recipe, "plain").json();
    let plain = model("plain");
    // Where nothing is quantised, the CPU computes in f32.
    assert!(asked("f32", &recipe, "f32") == plain && asked("bf16", &recipe, "bf16") == plain);
    let (fp8, nvfp4) = (asked("fp8", &recipe, "fp8"), asked("nvfp4", &recipe, "nvfp4"));
    assert!(fp8 != plain && nvfp4 != plain && fp8 != nvfp4);
    let recipe = folder.recipe_with("checkpoint_every = 2", "checkpoint_every = 2\nprecision = \"nvfp4\"");
    folder.pretrain(&recipe, "recipe").json();
    assert!(model("recipe") == nvfp4 && asked("fp8", &recipe, "over") == fp8 && asked("f32", &recipe, "none") == plain);
    let recipe =
        folder.recipe_with("checkpoint_every = 2", "checkpoint_every = 2\nprecision = \"fp8\"\nwide_layers = 1.0");
    folder.pretrain(&recipe, "wide").json();
    assert!(model("wide") == plain, "no layer is quantised");
    run(["--precision", "fp16", "inspect", "a"]).failed(2, &["--precision", "fp16", "f32, bf16, fp8 or nvfp4"]);
}

#[test]
fn damaged_checkpoints_are_passed_over_and_half_lines_cut() {
    let folder = Folder::new();
    let recipe = folder.recipe(TASKS);
    let first = folder.pretrain(&recipe, "run").json();
    let files =
        ["model/model.safetensors", "pretrain/metrics.jsonl", "pretrain/checkpoints/step-00000004/state.safetensors"];
    let before = files.map(|file| folder.read(&format!("run/{file}")));
    let damage: [(&str, &dyn Fn()); 4] = [
        ("cut short", &|| {
            let state = "run/pretrain/checkpoints/step-00000004/state.safetensors";
            let bytes = folder.read(state);
            folder.file(state, &bytes[..bytes.len() / 2]);
        }),
        ("changed", &|| {
            let state = "run/pretrain/checkpoints/step-00000004/state.safetensors";
            let mut bytes = folder.read(state);
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            folder.file(state, bytes);
        }),
        ("no manifest", &|| {
            fs::remove_file(folder.path().join("run/pretrain/checkpoints/step-00000004/manifest.json")).unwrap();
        }),
        ("empty", &|| {
            folder.file("run/pretrain/checkpoints/step-00000004/state.json", "");
        }),
    ];
    for (name, damage) in damage {
        damage();
        let mut metrics = folder.read("run/pretrain/metrics.jsonl");
        metrics.extend(b"{\"step\": 4, \"lo");
        folder.file("run/pretrain/metrics.jsonl", metrics);
        let outcome = folder.pretrain(&recipe, "run");
        assert!(outcome.err.contains("step-00000004") && outcome.err.contains("skipped"), "{name}: {outcome:?}");
        assert_eq!(outcome.json(), first, "{name}");
        assert!(files.map(|file| folder.read(&format!("run/{file}"))) == before, "{name}");
    }
    // A line in the middle that is none was not left by a kill.
    folder.file("run/pretrain/metrics.jsonl", "{\"step\": 0}\nrubbish\n{\"step\": 2}\n");
    folder.pretrain(&recipe, "run").refused(2, &["metrics.jsonl", "line 2", "JSON"]);
}

#[test]
fn a_run_that_diverges_says_so_and_keeps_its_checkpoints() {
    let folder = Folder::new();
    let recipe = folder.recipe_with("3e-3\ncheckpoint_every = 2", "1e30\ncheckpoint_every = 1");
    let diverged = ["the loss is NaN at step 1", "diverged", "checkpoints are kept"];
    folder.pretrain(&recipe, "run").refused(1, &diverged);
    assert_eq!(folder.names("run/pretrain/checkpoints"), ["step-00000001"]);
    assert_eq!(String::from_utf8(folder.read("run/pretrain/metrics.jsonl")).unwrap().lines().count(), 1);
    let before = folder.read("run/pretrain/checkpoints/step-00000001/state.safetensors");
    // It goes on from there, and so to the same end.
    folder.pretrain(&recipe, "run").refused(1, &diverged);
    assert_eq!(folder.read("run/pretrain/checkpoints/step-00000001/state.safetensors"), before);
    assert!(!folder.names("run").contains(&"model".into()));
    // Weights that are not even finite never become a checkpoint.
    let recipe = folder.recipe_with("3e-3\ncheckpoint_every = 2", "3e38\nweight_decay = 1e3\ncheckpoint_every = 1");
    folder.pretrain(&recipe, "other").refused(1, &["a weight is", "at step 0", "diverged"]);
    assert_eq!(folder.names("other/pretrain"), ["metrics.jsonl"]);
}

#[test]
fn inputs_are_known_by_the_recipes_names_and_may_not_change() {
    let folder = Folder::new();
    folder.file("a.txt", "small small unknown small ".repeat(40));
    folder.file("words.json", tokenizer(2));
    let text = "kind = \"text\"\npaths = [\"a.txt\", \"a.txt\"]\ntokenizer = \"words.json\"";
    let recipe = folder.recipe(text);
    let first = folder.pretrain(&recipe, "run").json();
    // The same run, from the folder itself.
    let args = ["--threads", "1", "pretrain", "recipe.toml", "--out", "run", "--quiet", "--json"];
    let again = wait(command(args).current_dir(folder.path()).spawn().unwrap()).json();
    assert_eq!(again["loss"], first["loss"]);
    for (name, content) in [("a.txt", "small ".repeat(41)), ("words.json", tokenizer(3))] {
        let before = folder.read(name);
        folder.file(name, content);
        folder.pretrain(&recipe, "run").refused(2, &["inputs.json", name, "changed"]);
        folder.file(name, before);
    }
    folder.pretrain(&recipe, "run").ok();
}

#[test]
fn what_a_killed_process_left_half_built_is_removed_and_nothing_else() {
    let folder = Folder::new();
    let recipe = folder.recipe(TASKS);
    folder.pretrain(&recipe, "run").ok();
    let left = "run/pretrain/checkpoints/.step-00000004.12345-7.tmp";
    fs::create_dir(folder.path().join(left)).unwrap();
    folder.file(&format!("{left}/state.safetensors"), "half");
    folder.file("run/model/.model.safetensors.12345-8.tmp", "half");
    folder.file("run/pretrain/.mine.tmp", "a user's");
    folder.pretrain(&recipe, "run").ok();
    assert_eq!(folder.names("run/pretrain/checkpoints"), ["step-00000002", "step-00000004"]);
    assert_eq!(folder.names("run/pretrain"), [".mine.tmp", "checkpoints", "metrics.jsonl"]);
    assert_eq!(folder.names("run/model"), ["config.json", "model.safetensors"]);
}
