//! The same through the program.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;

use super::common::{DEPLOYMENTS, edited, preset};

/// Exit code, standard output, standard error.
fn run<S: AsRef<OsStr>>(args: &[S]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_autocompress")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn path(of: &str) -> String {
    preset(of).to_str().unwrap().to_owned()
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    let (code, out, err) = run(args);
    assert_eq!((code, err.as_str()), (0, ""));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn contracts_are_checked() {
    for name in DEPLOYMENTS {
        let file = path(&format!("contracts/{name}.toml"));
        let (code, out, err) = run(&["contract", "check", &file]);
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        assert!(out.contains("No contradiction found."), "{out}");
        assert!(json(&["contract", "check", &file, "--json"])["findings"].is_array());
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    let text = edited("rtx-5070", "memory_mib = 4096", "memory_mib = 99");
    std::fs::write(&file, text.replace("../", &format!("{}/", preset("").to_str().unwrap()))).unwrap();
    let (code, out, err) = run(&["contract", "check", file.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(out.contains("contradiction: limits.memory_mib") && err.contains("limits.memory_mib"), "{out}{err}");
}

#[test]
fn memory_is_shown_term_by_term() {
    for name in DEPLOYMENTS {
        let contract = path(&format!("contracts/{name}.toml"));
        let model = path(["parents/nano-3-12b.json", "parents/super-120b.json"][usize::from(name == "b200")]);
        let shown = json(&["inspect", &model, "--contract", &contract, "--json"]);
        let terms = shown["terms"].as_object().unwrap();
        let sum: u64 = terms.values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(Some(sum), shown["memory"]["total_bytes"].as_u64());
        let (code, out, _) = run(&["inspect", &model, "--contract", &contract]);
        assert!(code == 0 && terms.keys().all(|term| out.contains(term.as_str())), "{out}");
        assert!(out.contains("conventional") && out.contains("without ε"), "{out}");
    }
    let (code, _, err) =
        run(&["inspect", &path("parents/nano-3-12b.json"), "--contract", &path("contracts/half.toml")]);
    assert!(code == 2 && err.contains("builtin"), "{err}");
}

#[test]
fn estimates_say_that_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("t.csv");
    let (contract, table) = (path("contracts/rtx-5070.toml"), table.to_str().unwrap());
    let (code, out, err) = run(&["profile", "estimate", "--contract", &contract, "--out", table]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("estimate"), "{out}");
    let model = path("parents/nano-3-12b.json");
    let (_, out, _) = run(&["inspect", &model, "--contract", &contract, "--table", table]);
    assert!(out.contains("request") && out.contains("(estimate: 212 of 212 rows)"), "{out}");
    // A table does not tell its device; what a profile or a plan leaves beside it does.
    assert!(out.contains("does not tell the device"), "{out}");
    let device = |files: &[(&str, &str)]| {
        files.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
        let inspect = ["inspect", &model, "--contract", &contract, "--table", table];
        let shown = json(&[&inspect[..], &["--json"]].concat())["table_measured_on"].clone();
        (run(&inspect).1, shown)
    };
    assert_eq!(device(&[]).1, Value::Null);
    let manifest =
        r#"{"format": 1, "digest": "", "device": "NVIDIA GeForce RTX 5070", "engine": "", "starts": 1, "models": []}"#;
    let (out, shown) = device(&[("manifest.json", manifest)]);
    assert!(out.contains("rows of NVIDIA GeForce RTX 5070") && shown == "NVIDIA GeForce RTX 5070", "{out}");
    let profile = r#"{"measured_on": {"device": "NVIDIA H100", "cuda": "12.4", "precision": "bf16"}}"#;
    let (out, shown) = device(&[("profile.json", profile)]);
    assert!(
        out.contains("rows of NVIDIA H100, CUDA 12.4 in bf16") && shown == "NVIDIA H100, CUDA 12.4 in bf16",
        "{out}"
    );
    std::fs::write(dir.path().join("profile.json"), "[").unwrap();
    let (code, _, err) = run(&["inspect", &model, "--contract", &contract, "--table", table]);
    assert!(code == 2 && err.contains("profile.json"), "{err}");
}

#[test]
fn a_plan_for_a_student_is_for_one_of_the_parents_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(preset("parents/nano-3-12b.json")).unwrap();
    let student = dir.path().join("config.json");
    let plan = |vocabulary: &str| {
        std::fs::write(&student, text.replace("\"vocab_size\": 131072", vocabulary)).unwrap();
        let recipe = path("recipes/rtx-5070.toml");
        run(&["plan", &recipe, "--gpus", "8", "--gpu", "h100", "--student", student.to_str().unwrap()])
    };
    assert_eq!(plan("\"vocab_size\": 131072").0, 0);
    let (code, _, err) = plan("\"vocab_size\": 32000");
    assert!(code == 2 && err.contains("vocab_size: found 32000, expected 131072"), "{err}");
}

#[test]
fn recipes_are_planned() {
    for (name, gpu) in [("rtx-5070", "h100"), ("rtx-5080", "h100"), ("h100", "h100"), ("b200", "gb200")] {
        let recipe = path(&format!("recipes/{name}.toml"));
        let plan = json(&["plan", &recipe, "--gpus", "128", "--gpu", gpu, "--json"]);
        let search = &plan["jobs"][0];
        assert_eq!(search["cost"]["tokens_per_step"], 16_777_216);
        assert_eq!(search["fits"], true, "{name}: {}", search["cost"]["bytes"]);
        let (_, out, _) = run(&["plan", &recipe, "--gpus", "128", "--gpu", gpu]);
        println!("{name}\n{out}");
        assert!(out.contains("search") && out.contains("recovery") && out.contains("masters"), "{out}");
    }
    // One GPU holds no joint search; what would make it fit is told.
    let one = json(&["plan", &path("recipes/rtx-5080.toml"), "--gpus", "1", "--gpu", "h100", "--json"]);
    let search = &one["jobs"][0];
    assert_eq!(search["fits"], false);
    let options = search["options"].as_array().unwrap();
    assert!(options.iter().any(|option| option["fits"] == true), "{options:?}");
    let (code, _, err) = run(&["plan", &path("recipes/rtx-5080.toml"), "--gpus", "1", "--gpu", "a100"]);
    assert!(code == 2 && err.contains("a100") && err.contains("h100"), "{err}");
}

#[test]
fn profile_is_still_a_stage() {
    let (code, _, err) = run(&["profile"]);
    assert!(code == 2 && err.contains("<RECIPE>") && err.contains("--out"), "{err}");
    let (code, _, err) = run(&["profile", "missing.toml", "--out", "/dev/null/run"]);
    assert!(code != 0 && err.contains("missing.toml"), "{err}");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("plan");
    let args = ["profile", "plan", "--contract", &path("contracts/rtx-5080.toml"), "--no-weights", "--json", "--out"];
    let planned = json(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert_eq!((&planned["models"], &planned["configurations"]), (&Value::from(48), &Value::from(396)));
    let (code, _, err) = run(&["profile", "ingest", out.to_str().unwrap()]);
    assert!(code == 2 && err.contains("run.sh"), "{err}");
    // A folder without a plan, half of one, or none at all: what to do is said.
    let ingest = |folder: &std::path::Path, missing: &str| {
        let (code, _, err) = run(&["profile", "ingest", folder.to_str().unwrap()]);
        let parts = [missing, "`profile plan --contract FILE --out DIR`", "run.sh"];
        assert!(code == 2 && parts.iter().all(|part| err.contains(part)), "{err}");
    };
    ingest(dir.path(), "found no manifest.json");
    ingest(&dir.path().join("none"), "found no manifest.json");
    std::fs::remove_file(out.join("contract.toml")).unwrap();
    ingest(&out, "found no contract.toml");
}

#[test]
fn a_plan_needs_a_place_for_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let contract = path("contracts/rtx-5070.toml");
    for (out, found) in
        [(std::path::Path::new("/dev/null"), "a device"), (&file, "a file"), (&link, "a link to nowhere")]
    {
        for out in [out.to_path_buf(), out.join("below")] {
            let (code, _, err) =
                run(&["profile", "plan", "--contract", &contract, "--no-weights", "--out", out.to_str().unwrap()]);
            assert!(code == 2 && err.contains(&format!("found {found}")) && err.contains("a folder"), "{err}");
        }
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn files_of_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let contract = path("contracts/rtx-5070.toml");
    let mine = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).to_str().unwrap().to_owned()
    };
    // A plan's folder holds nothing else.
    let folder = dir.path().to_str().unwrap();
    for (name, text) in [("contract.toml", "mine"), ("run.sh", "echo mine"), ("notes", "mine")] {
        let file = mine(name, text);
        let (code, _, err) = run(&["profile", "plan", "--contract", &contract, "--no-weights", "--out", folder]);
        assert!(code == 2 && err.contains(name), "{err}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        std::fs::remove_file(file).unwrap();
    }
    // An estimate replaces tables alone.
    let out = mine("contract.toml", "mine");
    let (code, _, err) = run(&["profile", "estimate", "--contract", &contract, "--out", &out]);
    assert!(code == 2 && err.contains("no cost table"), "{err}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
    // Costs are costs.
    let table = dir.path().join("table.csv");
    let table = table.to_str().unwrap();
    assert_eq!(run(&["profile", "estimate", "--contract", &contract, "--out", table]).0, 0);
    let text = std::fs::read_to_string(table).unwrap();
    let row: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
    for wrong in ["-5", "1e308", "NaN"] {
        let line = [&row[..4], &[wrong], &row[5..]].concat().join(",");
        std::fs::write(table, text.replacen(&row.join(","), &line, 1)).unwrap();
        let (code, _, err) = run(&["profile", "estimate", "--contract", &contract, "--table", table]);
        assert!(code == 2 && err.contains("line 2"), "{wrong}: {err}");
    }
    // A space is of a parent.
    let half = path("contracts/half.toml");
    let (code, _, err) = run(&["contract", "check", &half, "--space", "missing.toml"]);
    assert!(code == 2 && err.contains("--parent"), "{err}");
}
