//! The command: a run directory as `run`'s, with a screening in place of a search.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{Folder, Outcome, command, run};

const SPACE: &str = "hidden_size = [64, 56, 48, 32]\n[mamba]\nheads = [8, 4]\n[moe]\nexperts = [8, 4]\n\
                     intermediate = [48, 40, 16, 0]\nshared_intermediate = [80, 64, 40, 0]\n";

/// Tokens of a step.
const BATCH: u64 = 2 * 64;

/// A recipe whose baseline is `minitron`.
fn setting(limits: &str, minitron: &str) -> Folder {
    let folder = Folder::new();
    folder.model("base");
    let recipe = folder.compression("base", SPACE, limits);
    let text = fs::read_to_string(&recipe).unwrap();
    let text = text.replace("steps = 12\nsequences = 4\nlength = 32", "steps = 6\nsequences = 2\nlength = 64");
    folder.file("recipe.toml", format!("{text}\n[minitron]\n{minitron}\n"));
    folder
}

fn minitron(folder: &Folder, out: &str, options: &[&str]) -> Outcome {
    let (recipe, out) = (folder.at("recipe.toml"), folder.at(out));
    run(["--threads", "1", "baseline", "minitron", &recipe, "--out", &out, "--quiet"].iter().chain(options))
}

fn search(folder: &Folder, out: &str, options: &[&str]) -> Outcome {
    let (recipe, out) = (folder.at("recipe.toml"), folder.at(out));
    run(["--threads", "1", "run", &recipe, "--out", &out, "--quiet"].iter().chain(options))
}

fn screened(folder: &Folder, out: &str) -> Value {
    serde_json::from_slice(&folder.read(&format!("{out}/screen/screen.json"))).unwrap()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// What a screening of two candidates, four steps each, the last two scored, must say.
fn check_screening(folder: &Folder, out: &str) {
    let told = screened(folder, out);
    let candidates = told["candidates"].as_array().unwrap();
    let trained: Vec<&Value> = candidates.iter().filter(|candidate| candidate["score"].is_number()).collect();
    assert!(candidates.len() > 2, "{told}");
    assert_eq!(trained.len(), 2, "{told}");
    assert_eq!(told["tokens"].as_u64().unwrap(), BATCH * (candidates.len() as u64 + 2 * 4), "{told}");
    // Of all, the two with the least loss before any training.
    let first = |candidate: &Value| candidate["first_loss"].as_f64().unwrap();
    let others = candidates[2..].iter().map(first);
    assert!(others.clone().all(|loss| trained.iter().all(|candidate| first(candidate) <= loss)), "{told}");
    assert!(others.clone().zip(others.skip(1)).all(|(a, b)| a <= b), "{told}");
    for candidate in &trained {
        let losses = numbers(&candidate["losses"]);
        assert_eq!(losses.len(), 4);
        assert!((candidate["score"].as_f64().unwrap() - (losses[2] + losses[3]) / 2.0).abs() < 1e-12, "{candidate}");
        // The loss of the first step is that before any training.
        assert!((losses[0] - first(candidate)).abs() < 1e-5 * losses[0], "{candidate}");
        let metrics = String::from_utf8(folder.read(&format!("{out}/screen/{}/metrics.jsonl", candidate["number"])));
        let steps: Vec<Value> = metrics.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let logged: Vec<f64> = steps.iter().map(|step| step["loss"].as_f64().unwrap()).collect();
        assert_eq!(logged, losses);
        let rho = candidate["rho"]["memory"].as_f64().unwrap();
        assert!((0.8..=1.0).contains(&rho), "{candidate}");
    }
    assert!(trained[0]["score"].as_f64() <= trained[1]["score"].as_f64(), "{told}");
}

#[test]
fn it_ends_with_the_report_of_a_run() {
    let folder = setting("memory_of_parent = 0.7", "floor = 0.8\nmost = 2\nsteps = 4\nscored_steps = 2");
    let report = minitron(&folder, "uniform", &["--json"]).json();
    check_screening(&folder, "uniform");
    assert!(report["met"].as_bool().unwrap() && report.get("search").is_none(), "{report}");
    let told = &report["screening"];
    let best = &screened(&folder, "uniform")["candidates"][0];
    assert_eq!(told["candidates"][0]["losses"], best["losses"]);
    assert!(told["candidates"][0]["chosen"].as_bool().unwrap() && !told["candidates"][1]["chosen"].as_bool().unwrap());
    assert_eq!((&told["steps"], &told["scored_steps"], &told["floor"]), (&4.into(), &2.into(), &0.8.into()));
    assert!(report["reproduce"]["command"].as_str().unwrap().contains("autocompress baseline minitron "));
    assert!(report["reproduce"]["seconds"]["screen"].is_number(), "{}", report["reproduce"]);
    // Of one width: the plain format.
    let config: Value = serde_json::from_slice(&folder.read("uniform/recovered/config.json")).unwrap();
    assert_eq!(config["model_type"], "nemotron_h");
    assert_eq!(config["hidden_size"], best["architecture"]["hidden_size"]);
    let page = String::from_utf8(folder.read("uniform/report.html")).unwrap();
    assert!(page.contains("<h2>Screening</h2>") && !page.contains("<h2>Search</h2>"));
    let columns = |report: &Value| report.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let searched = search(&folder, "run", &["--json"]).json();
    let same = |key: &String| *key != "search" && *key != "screening";
    let of = |report: &Value| columns(report).into_iter().filter(same).collect::<Vec<_>>();
    assert_eq!(of(&report), of(&searched));

    // Done again, it is the same; a finished one is only told.
    let before = folder.read("uniform/screen/screen.json");
    let told = minitron(&folder, "uniform", &["--from", "screen", "--until", "screen"]).ok();
    assert!(told.out.contains("screen/screen.json"), "{told:?}");
    assert!(folder.read("uniform/screen/screen.json") == before);
    assert_eq!(minitron(&folder, "uniform", &["--json"]).json()["screening"], report["screening"]);
    damage(&folder);
    refusals(&folder);
}

fn damage(folder: &Folder) {
    let before = folder.read("uniform/screen/screen.json");
    folder.file("uniform/screen/screen.json", [&before[..], b" "].concat());
    let way = "`baseline minitron --from screen` makes it again";
    minitron(folder, "uniform", &[]).refused(2, &["screen/screen.json", "as `screen` left it", way]);
    folder.file("uniform/screen/screen.json", &before);
    minitron(folder, "uniform", &[]).ok();
    // A screening that was begun elsewhere does not go on here.
    let marker = folder.read("uniform/stages/screen.json");
    fs::remove_file(folder.at("uniform/stages/screen.json")).unwrap();
    let begun = folder.read("uniform/screen/computed_on.json");
    folder.file("uniform/screen/computed_on.json", r#"{"device": "NVIDIA H100", "precision": "bf16"}"#);
    let parts = ["computed_on.json", "found work begun on NVIDIA H100 in bf16", "cpu in f32", way];
    minitron(folder, "uniform", &[]).refused(2, &parts);
    folder.file("uniform/screen/computed_on.json", begun);
    folder.file("uniform/stages/screen.json", marker);
    minitron(folder, "uniform", &[]).ok();
}

/// Another method's directory, another recipe, another input, stages that it does not have.
fn refusals(folder: &Folder) {
    search(folder, "uniform", &[]).refused(2, &["uniform/inputs.json", "`baseline minitron`", "`run`", "--out"]);
    minitron(folder, "run", &[]).refused(2, &["run/inputs.json", "`run`", "`baseline minitron`", "--out"]);
    minitron(folder, "new", &["--like", &folder.at("uniform")]).refused(2, &["uniform", "`run`", "--like"]);
    assert!(!folder.path().join("new").exists(), "nothing is begun by a wrong --like");
    minitron(folder, "uniform", &["--until", "search"]).failed(2, &["\"search\"", "screen, extract"]);
    search(folder, "run", &["--until", "screen"]).failed(2, &["\"screen\"", "search, extract"]);
    let recipe = String::from_utf8(folder.read("recipe.toml")).unwrap();
    for (wrong, key) in [
        ("steps = 0", "minitron.steps"),
        ("steps = 4\nscored_steps = 5", "minitron.scored_steps"),
        ("floor = 1.5", "minitron.floor"),
        ("most = 0", "minitron.most"),
    ] {
        folder.file("recipe.toml", recipe.split("[minitron]").next().unwrap().to_owned() + "[minitron]\n" + wrong);
        minitron(folder, "uniform", &[]).refused(2, &["recipe.toml", key, "expected from"]);
    }
    folder.file("recipe.toml", recipe.replace("most = 2", "most = 3"));
    minitron(folder, "uniform", &[]).refused(2, &["uniform/recipe.toml", "`most = 2`", "`most = 3`"]);
    folder.file("recipe.toml", recipe);
    folder.file("space.toml", SPACE.replace(", 56", ""));
    minitron(folder, "uniform", &[]).refused(2, &["inputs.json", "space", "changed"]);
}

/// The shipped parent, whose steps take a while.
fn slow_setting() -> Folder {
    let folder = Folder::new();
    let parent = concat!(env!("CARGO_MANIFEST_DIR"), "/presets/parents/tiny");
    let space = "hidden_size = [128, 96, 64]\n[moe]\nexperts = [16, 8]\nintermediate = [64, 32, 0]\n";
    let recipe = folder.compression(parent, space, "memory_of_parent = 0.7");
    let text = fs::read_to_string(&recipe).unwrap();
    folder.file("recipe.toml", text + SLOW_SCREENING);
    folder
}

const SLOW_SCREENING: &str = "\n[minitron]\nfloor = 0.5\nmost = 2\nsteps = 12\nscored_steps = 3\n";

/// The checkpoints of candidates that are being distilled.
fn checkpoints(out: &Path) -> Vec<PathBuf> {
    let list = |path: &Path| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    let candidates: Vec<PathBuf> = list(&out.join("screen"));
    candidates.iter().flat_map(|candidate| -> Vec<PathBuf> { list(&candidate.join("checkpoints")) }).collect()
}

/// Starts it, and kills it once `ready`.
fn kill_when(folder: &Folder, out: &str, ready: &dyn Fn() -> bool) {
    let (recipe, out) = (folder.at("recipe.toml"), folder.at(out));
    let args = ["--threads", "1", "baseline", "minitron", &recipe, "--out", &out, "--quiet"];
    let mut child = command(args).spawn().unwrap();
    let started = Instant::now();
    while !ready() && child.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_micros(200));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_and_resumed_it_ends_with_the_same_bits() {
    let folder = slow_setting();
    // A search need not know of the baseline that is held against it later.
    let with_screening = String::from_utf8(folder.read("recipe.toml")).unwrap();
    folder.file("recipe.toml", with_screening.replace(SLOW_SCREENING, ""));
    search(&folder, "run", &["--until", "profile"]).ok();
    folder.file("recipe.toml", with_screening);
    let like = folder.at("run");
    minitron(&folder, "whole", &["--like", &like]).ok();
    assert_eq!(folder.read("whole/cost/table.csv"), folder.read("run/cost/table.csv"));
    assert_eq!(folder.read("whole/rank/importance.json"), folder.read("run/rank/importance.json"));
    // Another table is not mixed in.
    search(&folder, "other", &["--until", "profile"]).ok();
    minitron(&folder, "whole", &["--like", &folder.at("other")]).refused(2, &["whole", "`profile`", "--out"]);

    minitron(&folder, "killed", &["--like", &like, "--until", "profile"]).ok();
    let out = folder.path().join("killed");
    let within = || !checkpoints(&out).is_empty();
    kill_when(&folder, "killed", &within);
    assert!(within() && !out.join("screen/screen.json").exists(), "killed within a candidate");
    let first = checkpoints(&out);
    let further = || checkpoints(&out).iter().any(|path| !first.contains(path));
    kill_when(&folder, "killed", &further);
    let recovers = || out.join("recover/checkpoints").exists();
    kill_when(&folder, "killed", &recovers);
    assert!(!out.join("report.json").exists());
    minitron(&folder, "killed", &[]).ok();
    for name in [
        "screen/screen.json",
        "student/model.safetensors",
        "recover/recover.json",
        "recovered/model.safetensors",
        "evaluate/evaluate.json",
    ] {
        assert!(folder.read(&format!("whole/{name}")) == folder.read(&format!("killed/{name}")), "{name} differs");
    }
    assert!(checkpoints(&out).is_empty(), "checkpoints of candidates stay");
}

/// The number after `word` in a message.
fn number_after(text: &str, word: &str) -> f64 {
    let rest = text.split_once(word).unwrap_or_else(|| panic!("{word:?} in {text}")).1;
    rest.trim_start().split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("a number after {word:?}: {text}"))
}

#[test]
fn limits_that_no_uniform_architecture_meets_are_told_with_the_nearest_one() {
    let folder = setting("memory_mib = 0.001", "");
    let error = minitron(&folder, "run", &[]);
    error.failed(2, &["limits.memory_mib", "found at least"]);
    let smallest = number_after(&error.err, "found at least");
    // A search reaches it, without widths; with one above 0 in all layers nothing does.
    let limit = 1.01 * smallest;
    folder.file("contract.toml", crate::program::contract(&format!("memory_mib = {limit}")));
    let error = minitron(&folder, "uniform", &[]);
    let nearest =
        ["\"hidden_size\":32", "experts\":4", "intermediate\":16", "shared_intermediate\":40", "mamba.heads\":4"];
    let parts =
        ["contract.toml: limits.memory_mib", "no uniform architecture meets the limits", "MiB", "expected at most"];
    error.failed(2, &[&parts[..], &nearest].concat());
    assert!(number_after(&error.err, "found at least") > limit, "{error:?}");
    assert!(number_after(&error.err, "expected at most") <= limit + 1e-3, "{error:?}");
    search(&folder, "searched", &["--until", "profile"]).ok();
}

#[test]
fn a_space_of_its_own_is_the_baselines_alone() {
    let folder = setting(
        "memory_of_parent = 0.7",
        "space = \"uniform.toml\"\nfloor = 0.5\nmost = 1\nsteps = 2\nscored_steps = 1",
    );
    folder.file("uniform.toml", "[mamba]\nheads = [8, 6, 4, 2]\n[moe]\nexperts = [8, 6, 4]\n");
    let text = minitron(&folder, "run", &["--until", "screen"]);
    let text = if text.code == Some(2) { panic!("{text:?}") } else { text.ok() };
    assert!(text.out.contains("screen.json"));
    let architecture = &screened(&folder, "run")["candidates"][0]["architecture"];
    assert!(architecture["mamba.heads"].is_number() && architecture.get("hidden_size").is_none(), "{architecture}");
    // A study prices one space.
    let (recipe, out) = (folder.at("recipe.toml"), folder.at("study"));
    run(["study", &recipe, "--out", &out, "--seeds", "1"]).refused(2, &["recipe.toml", "minitron.space", "one space"]);
}
