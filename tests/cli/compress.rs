//! The main job: its stages, their order, what is skipped, what a kill leaves, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::{Folder, Outcome, command, run};

const RECIPE: &str = r#"
parent = "PARENT"
space = "space.toml"
contract = "contract.toml"

[data]
kind = "tasks"

[rank]
sequences = 4
length = 64

[profile]
repeats = 1
starts = 1
held_out = 1
held_out_repeats = 1

[search]
draws = 2
alpha = 3.0
slack = "binding"

[search.training]
steps = 12
sequences = 4
length = 32
learning_rate = 1e-3
checkpoint_every = 2

[recover.training]
steps = 12
sequences = 4
length = 32
learning_rate = 1e-3
checkpoint_every = 2

[evaluate]
examples = 2
sequences = 2
length = 64

[measure]
repeats = 1
"#;

const SPACE: &str = "hidden_size = [128, 96, 64]\n[mamba]\nheads = [16, 8]\n\
                     [moe]\nexperts = [16, 8]\nintermediate = [64, 32, 0]\nshared_intermediate = [128, 64, 0]\n";

/// Memory is counted, so it is the same in every run; the time is limited where nothing reaches.
const CONTRACT: &str = "device = \"cpu\"\nengine = \"builtin\"\nprecision = \"f32\"\nthreads = 1\n\
                        [workload]\nbatch = 1\ninput_tokens = 16\noutput_tokens = 4\nprefill_chunk = 16\n\
                        [limits]\nlatency_ms = 60000\nmemory_of_parent = 0.6\n";

/// The recipe and what it reads, the parent being the shipped one.
fn job(folder: &Folder) -> String {
    let parent = concat!(env!("CARGO_MANIFEST_DIR"), "/presets/parents/tiny");
    folder.file("space.toml", SPACE);
    folder.file("contract.toml", CONTRACT);
    folder.file("recipe.toml", RECIPE.replace("PARENT", parent))
}

fn compress(args: &[&str]) -> Outcome {
    run(["--threads", "1"].iter().chain(args))
}

/// What must be the same however often the run was stopped: all but timings.
fn results(run: &Path) -> Vec<(String, Vec<u8>)> {
    let files = [
        "rank/importance.json",
        "search/search.json",
        "search/metrics.jsonl",
        "student/model.safetensors",
        "recover/recover.json",
        "recover/metrics.jsonl",
        "recovered/config.json",
        "recovered/model.safetensors",
        "evaluate/evaluate.json",
    ];
    let read = |name: &str| fs::read(run.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    files.iter().map(|name| ((*name).to_owned(), read(name))).collect()
}

/// A new run directory that holds the ranking's and the profile's outputs of another.
fn with_profile_of(whole: &Path, new: &Path) {
    fs::create_dir_all(new.join("stages")).unwrap();
    for file in ["recipe.toml", "inputs.json", "stages/profile.json"] {
        fs::copy(whole.join(file), new.join(file)).unwrap();
    }
    fs::create_dir(new.join("cost")).unwrap();
    for entry in fs::read_dir(whole.join("cost")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, new.join("cost").join(path.file_name().unwrap())).unwrap();
    }
}

/// Starts the run and kills it soon after `stage` was begun. Returns whether the stage was still incomplete.
fn kill_in(stage: &str, recipe: &str, out: &Path) -> bool {
    let out_text = out.to_str().unwrap();
    let mut child = command(["--threads", "1", "run", recipe, "--out", out_text, "--quiet"]).spawn().unwrap();
    let marker = out.join(format!("stages/{stage}.json"));
    let started = Instant::now();
    while !marker.exists() && child.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_micros(200));
    }
    // A moment that nobody chose, within the shortest stages.
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    std::thread::sleep(Duration::from_micros(u64::from(clock % 20_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    let text = fs::read_to_string(&marker).unwrap_or_default();
    serde_json::from_str::<Value>(&text).is_ok_and(|marker| marker["seconds"].is_null())
}

#[test]
fn a_run_killed_in_every_stage_ends_with_the_same_bits() {
    let folder = Folder::new();
    let recipe = job(&folder);
    let whole = folder.path().join("whole");
    let report = compress(&["run", &recipe, "--out", whole.to_str().unwrap(), "--quiet", "--json"]).json();
    assert_eq!(report["limits"].as_array().unwrap().len(), 2);
    assert!(report["met"].as_bool().unwrap(), "{}", report["limits"]);
    assert!(report["student"]["parameters"].as_u64() < report["parent"]["parameters"].as_u64());

    let killed = folder.path().join("killed");
    with_profile_of(&whole, &killed);
    let mut met = 0;
    for stage in ["rank", "search", "search", "extract", "recover", "recover", "evaluate", "measure", "report"] {
        met += usize::from(kill_in(stage, &recipe, &killed));
    }
    assert!(met >= 3, "only {met} kills met a stage at work");
    run(["--threads", "2", "run", &recipe, "--out", killed.to_str().unwrap(), "--quiet"]).ok();
    for ((name, before), (_, after)) in results(&whole).into_iter().zip(results(&killed)) {
        assert!(before == after, "{name} differs");
    }

    // A profile that was killed goes on, and a finished run is only told.
    let profiled = folder.path().join("profiled");
    kill_in("profile", &recipe, &profiled);
    let lines = || fs::read_to_string(profiled.join("cost/runs.jsonl")).unwrap_or_default();
    let before = lines();
    let done = compress(&["run", &recipe, "--out", profiled.to_str().unwrap(), "--quiet", "--until", "profile"]).ok();
    assert!(done.out.contains("cost/table.csv"), "{done:?}");
    let whole_lines = before.rfind('\n').map_or(0, |end| end + 1);
    assert!(lines().starts_with(&before[..whole_lines]));
}

#[test]
fn what_is_complete_is_skipped_and_what_follows_a_change_is_done_again() {
    let folder = Folder::new();
    let recipe = job(&folder);
    let out = folder.at("run");
    compress(&["search", &recipe, "--out", &out]).refused(2, &["search", "rank", "not complete"]);
    for stage in ["rank", "profile", "search", "extract", "recover"] {
        compress(&[stage, &recipe, "--out", &out, "--quiet"]).ok();
    }
    compress(&["evaluate", &recipe, "--out", &out]).ok();
    compress(&["measure", &recipe, "--out", &out]).ok();
    compress(&["report", &recipe, "--out", &out, "--quiet"]).ok();
    let modified = |name: &str| fs::metadata(Path::new(&out).join(name)).unwrap().modified().unwrap();
    let names = ["search/search.json", "recover/recover.json", "report.json"];
    let before = names.map(modified);
    compress(&["run", &recipe, "--out", &out, "--quiet"]).ok();
    assert_eq!(names.map(modified), before);
    compress(&["run", &recipe, "--out", &out, "--quiet", "--from", "recover"]).ok();
    let after = names.map(modified);
    assert!(after[0] == before[0] && after[1] > before[1] && after[2] > before[2]);
    // A stage whose inputs are others now is done again, from its beginning.
    let table = PathBuf::from(&out).join("cost/table.csv");
    let text = fs::read_to_string(&table).unwrap();
    fs::write(&table, text.replacen("prefill,0,128,rest,", "prefill,0,128,rest,1", 1)).unwrap();
    compress(&["recover", &recipe, "--out", &out]).refused(2, &["recover", "extract", "not complete"]);
    compress(&["run", &recipe, "--out", &out, "--quiet", "--until", "search"]).ok();
    assert!(modified("search/search.json") > after[0]);

    let validated = compress(&["validate", &recipe, "--out", &out, "--architectures", "3", "--repeats", "1", "--json"]);
    assert_eq!(validated.json()["points"].as_array().unwrap().len(), 3);
}

#[test]
fn another_recipe_or_a_changed_input_is_refused() {
    let folder = Folder::new();
    let recipe = job(&folder);
    let out = folder.at("run");
    compress(&["rank", &recipe, "--out", &out, "--quiet"]).ok();
    let text = fs::read_to_string(&recipe).unwrap();
    let other = folder.file("other.toml", text.replace("alpha = 3.0", "alpha = 4.0"));
    compress(&["run", &other, "--out", &out]).refused(2, &["recipe.toml", "alpha = 3.0", "alpha = 4.0"]);
    folder.file("contract.toml", CONTRACT.replace("0.6", "0.7"));
    compress(&["run", &recipe, "--out", &out]).refused(2, &["inputs.json", "contract", "changed"]);
}

#[test]
fn broken_recipes_are_refused_before_any_work() {
    let folder = Folder::new();
    let recipe = job(&folder);
    let original = fs::read_to_string(&recipe).unwrap();
    let refused = |file: &str, text: String, parts: &[&str]| {
        let before = fs::read_to_string(folder.at(file)).unwrap();
        folder.file(file, text);
        compress(&["run", &recipe, "--out", &folder.at("run")]).refused(2, parts);
        assert!(!folder.path().join("run").exists(), "{parts:?}: something was made");
        folder.file(file, before);
    };
    let recipe_with = |from: &str, to: &str| {
        assert!(original.contains(from), "{from}");
        original.replacen(from, to, 1)
    };
    let in_recipe = |from: &str, to: &str, parts: &[&str]| refused("recipe.toml", recipe_with(from, to), parts);
    in_recipe("alpha = 3.0", "alhpa = 3.0", &["recipe.toml", "`alhpa = 3.0`", "did you mean `alpha`?"]);
    in_recipe("[recover.training]", "[recovery.training]", &["unknown field `recovery`", "did you mean `recover`?"]);
    in_recipe("space = \"space.toml\"\n", "", &["missing field `space`"]);
    in_recipe("slack = \"binding\"", "slack = \"bindings\"", &["bindings", "`each`", "`binding`"]);
    in_recipe("draws = 2", "draws = 3", &["search.draws", "3", "divisor of search.training.sequences = 4"]);
    in_recipe("alpha = 3.0", "alpha = -1.0", &["alpha", "-1"]);
    in_recipe("alpha = 3.0", "temperature = 0.0", &["search.temperature", "above 0"]);
    in_recipe("steps = 12", "steps = 0", &["search.training.steps", "0 steps"]);
    in_recipe("examples = 2", "examples = 0", &["evaluate.examples", "from 1 to"]);
    in_recipe("length = 64", "length = 9223372036854775807", &["rank.length", "from 1 to"]);
    in_recipe("slack = \"binding\"", "router = { width = 9223372036854775807 }", &["search.router.width", "from 1 to"]);
    in_recipe("kind = \"tasks\"", "kind = \"task\"", &["\"task\"", "tasks"]);
    let in_space = |from: &str, to: &str, parts: &[&str]| {
        assert!(SPACE.contains(from), "{from}");
        refused("space.toml", SPACE.replacen(from, to, 1), parts);
    };
    in_space("[128, 96, 64]", "[256, 128]", &["space.toml", "hidden_size", "256", "at most 128, the parent's size"]);
    in_space("heads = [16, 8]", "heads = [16, 7]", &["mamba.heads", "7", "n_groups"]);
    in_space("experts = [16, 8]", "experts = [16, 1]", &["moe.experts", "1", "num_experts_per_tok = 2"]);
    in_space("intermediate = [64, 32, 0]", "intermediat = [64]", &["did you mean `intermediate`?"]);
    let in_contract = |from: &str, to: &str, parts: &[&str]| {
        assert!(CONTRACT.contains(from), "{from}");
        refused("contract.toml", CONTRACT.replacen(from, to, 1), parts);
    };
    in_contract("latency_ms = 60000\nmemory_of_parent = 0.6\n", "", &["limits", "no limit", "at least one"]);
    in_contract("memory_of_parent = 0.6", "memory_of_parent = -1", &["limits.memory_of_parent", "above 0"]);
    in_contract("latency_ms = 60000", "memory_mib = 3", &["limits.memory_mib", "memory_of_parent", "one of the two"]);
    in_contract("threads = 1", "threds = 1", &["did you mean `threads`?"]);
    // A user's own folder that happens to hold a recipe is no run directory.
    let own = folder.path().to_str().unwrap();
    compress(&["run", &recipe, "--out", own]).refused(2, &["run directory", "a folder without"]);
    assert!(!folder.path().join("lock").exists());
    fs::write(folder.at("plain"), "a file").unwrap();
    compress(&["run", &recipe, "--out", &folder.at("plain/run")]).refused(1, &["plain/run", "Not a directory"]);
    compress(&["run", &folder.at("none.toml"), "--out", &folder.at("run")]).refused(1, &["none.toml", "read"]);
    compress(&["run", &recipe, "--out", &folder.at("run"), "--until", "serch"]).failed(2, &["serch", "search"]);
    compress(&["run", &recipe, "--out", &folder.at("run"), "--from", "report", "--until", "rank"])
        .refused(2, &["--from"]);
}

#[test]
fn limits_that_nothing_meets_are_told_with_the_smallest_cost() {
    let folder = Folder::new();
    let recipe = job(&folder);
    folder.file("contract.toml", CONTRACT.replace("memory_of_parent = 0.6", "memory_mib = 0.01"));
    let refused = compress(&["run", &recipe, "--out", &folder.at("run"), "--quiet"]);
    refused.refused(2, &["memory", "found at least", "\"hidden_size\":64", "expected at most"]);
    assert!(!folder.path().join("run/search").exists());
}
