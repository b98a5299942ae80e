//! The command, on a model of five layers for a few steps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{Folder, Outcome, run};

const SPACE: &str = "hidden_size = [64, 56, 48, 32]\n[mamba]\nheads = [8, 4]\n[moe]\nexperts = [8, 4]\n\
                     intermediate = [48, 40, 16, 0]\nshared_intermediate = [80, 64, 40]\n";

fn setting(limits: &str) -> Folder {
    let folder = Folder::new();
    folder.model("base");
    let recipe = folder.compression("base", SPACE, limits);
    let long = "steps = 12\nsequences = 4\nlength = 32";
    let [search, recover] = [5, 7].map(|seed| format!("steps = 3\nsequences = 2\nlength = 64\nseed = {seed}"));
    let text = fs::read_to_string(&recipe).unwrap();
    let text = text.replacen(long, &search, 1).replacen(long, &recover, 1);
    let text = text.replace("examples = 2\nsequences = 2", "examples = 2\nsequences = 4");
    folder.file("recipe.toml", text + "\n[minitron]\nmost = 2\nsteps = 2\nscored_steps = 1\n");
    folder
}

fn study(folder: &Folder, options: &[&str]) -> Outcome {
    let (recipe, out) = (folder.at("recipe.toml"), folder.at("run"));
    run(["--threads", "1", "study", &recipe, "--out", &out].iter().chain(options))
}

/// All `result.json` below a folder, by path.
fn results(folder: &Path) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(results(&path));
        } else if path.ends_with("result.json") {
            let name = path.to_str().unwrap().split_once("/study/").unwrap().1.to_owned();
            found.insert(name, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap());
        }
    }
    found
}

fn without_seconds(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.remove("seconds");
            map.values_mut().for_each(|v| *v = without_seconds(v.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|v| *v = without_seconds(v.take())),
        _ => {}
    }
    value
}

/// What each unit says, and that the arms of a seed are recovered on the same batches.
fn check_unit(name: &str, unit: &Value) {
    let number = |key: &str| unit[key].as_f64().unwrap_or_else(|| panic!("{name}: {key} of {unit}"));
    let rho = unit["rho_of_target"]["memory"].as_f64().unwrap();
    assert!(rho <= 1.0 && rho > 0.5 && unit["rho"]["memory"].as_f64().unwrap() <= rho, "{name}: {unit}");
    for key in ["held_out_before", "held_out", "recovery", "task_mean", "parameters", "active_parameters"] {
        assert!(number(key) >= 0.0, "{name}: {unit}");
    }
    assert_eq!(number("recovery_tokens"), 3.0 * 2.0 * 64.0, "{name}");
    let screened = name.contains("/minitron/");
    assert_eq!(unit.get("screening").is_some(), screened, "{name}");
    if screened {
        let outcome = &unit["screening"];
        let (candidates, scores) = (outcome["candidates"].as_u64().unwrap(), outcome["scores"].as_array().unwrap());
        assert_eq!(scores.len() as u64, candidates.min(2), "{name}: {unit}");
        let first_losses = if candidates > 2 { candidates } else { 0 };
        assert_eq!(outcome["tokens"], 2 * 64 * (first_losses + 2 * candidates.min(2)), "{name}: {unit}");
    }
    let searched = !(screened || name.contains("/random/") || name.contains("/uniform/"));
    assert_eq!(unit["search"].is_object(), searched, "{name}");
    if searched {
        // From random logits a search may settle before its last step.
        let steps = unit["search"]["steps"].as_u64().unwrap();
        assert!(steps == 3 || unit["search"]["converged"] == true, "{name}: {unit}");
        assert_eq!(unit["search"]["tokens"], steps * 2 * 64, "{name}");
        assert!(unit["search"]["distillation_gradient_norm"].as_f64().unwrap() > 0.0, "{name}: {unit}");
        // Of the study's space: 8 experts, or the first 4.
        let tokens = &unit["search"]["expert_tokens"];
        assert_eq!(tokens["removable_if_even"], 0.5, "{name}: {unit}");
        for key in ["removable", "removable_at_end"] {
            assert!((0.0..1.0).contains(&tokens[key].as_f64().unwrap()), "{name}: {unit}");
        }
        assert!(tokens["busiest"].as_f64().unwrap() >= 1.0, "{name}: {unit}");
        assert!(unit["search"]["rho_before"]["memory"].is_number(), "{name}: {unit}");
    }
}

#[test]
fn a_study_compares_all_arms_and_goes_on_where_it_was() {
    let folder = setting("memory_of_parent = 0.5");
    let options = ["--shares", "0.85,0.7", "--seeds", "2", "--random", "2", "--uniform", "2", "--ablations"];
    let first = study(&folder, &[&options[..], &["--json"]].concat()).ok();
    assert!(first.err.contains("study 1/32: share 0.85, seed 0, search\n") && first.err.contains(" left"), "{first:?}");
    let told: Value = serde_json::from_str(&first.out).unwrap();
    let units = results(&folder.path().join("run/study"));
    assert_eq!(units.len(), 2 * 2 * (3 + 2 + 2 + 1), "{:?}", units.keys());
    units.iter().for_each(|(name, unit)| check_unit(name, unit));
    for share in ["0.85", "0.7"] {
        // Random architectures and seeds of the search differ, the candidates of the uniform arm do not.
        let of = |path: &str, key: &str| units[&format!("{share}/{path}/result.json")][key].clone();
        let random = ["0/random/0", "0/random/1", "1/random/0", "1/random/1"].map(|path| of(path, "architecture"));
        assert!(random.iter().any(|other| *other != random[0]), "{random:?}");
        assert_eq!(of("0/uniform/1", "architecture"), of("1/uniform/1", "architecture"));
        assert_eq!(of("0/uniform/1", "held_out_before"), of("1/uniform/1", "held_out_before"));
        assert_ne!(of("0/uniform/1", "recovery"), of("1/uniform/1", "recovery"));
        assert!(of("0/uniform/0", "held_out_before").as_f64() <= of("0/uniform/1", "held_out_before").as_f64());
    }
    let norm = |arm: &str| units[&format!("0.7/0/{arm}/result.json")]["search"]["distillation_gradient_norm"].clone();
    assert!(norm("search") != norm("router_init") && norm("search") != norm("score_masking"));
    let removable = |arm: &str| {
        let unit = &units[&format!("0.7/0/{arm}/result.json")];
        unit["search"]["expert_tokens"]["removable"].as_f64().unwrap()
    };
    assert!(removable("score_masking") < removable("search"));
    check_summary(&told, &units);
    assert_eq!(serde_json::from_slice::<Value>(&folder.read("run/study.json")).unwrap(), told);
    check_tables(&folder, &options);

    // A finished study only tells.
    let again = study(&folder, &[&options[..], &["--json"]].concat()).ok();
    assert!(again.out == first.out);
    assert!(!again.err.contains("study "), "{again:?}");
    resumes(&folder, &options, &told);
}

fn check_summary(told: &Value, units: &BTreeMap<String, Value>) {
    let shares = told["shares"].as_array().unwrap();
    assert_eq!(shares.iter().map(|s| s["share"].as_str().unwrap()).collect::<Vec<_>>(), ["0.85", "0.7"]);
    for share in shares {
        let limit = &share["limits"][0];
        assert_eq!((limit["resource"].as_str(), limit["unit"].as_str()), (Some("memory"), Some("MiB")));
        assert!(limit["target"].as_f64().unwrap() <= limit["limit"].as_f64().unwrap());
        let arms = share["arms"].as_array().unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm["arm"].as_str().unwrap()).collect();
        assert_eq!(names, ["search", "router_init", "score_masking", "random", "uniform", "minitron"]);
        let best = |arm: &str, seed: u64| {
            let prefix = format!("{}/{seed}/{arm}/", share["share"].as_str().unwrap());
            let of_arm = units.iter().filter(|(name, _)| name.starts_with(&prefix));
            of_arm.map(|(_, unit)| unit["held_out"].as_f64().unwrap()).fold(f64::MAX, f64::min)
        };
        for (arm, told) in names.iter().zip(arms) {
            let mean = (best(arm, 0) + best(arm, 1)) / 2.0;
            assert!((told["held_out"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12, "{arm}: {told}");
            let wins = (0..2).filter(|seed| best("search", *seed) < best(arm, *seed)).count();
            let expected = if *arm == "search" { Value::Null } else { wins.into() };
            assert_eq!(told["search_wins"], expected, "{arm}");
            // All tokens but the recovery of the architecture that counts: a recovery is 3 steps of 2 × 64.
            let own = told["tokens"]["mean"].as_f64().unwrap() - 3.0 * 2.0 * 64.0;
            assert_eq!(told["search_tokens"]["mean"].as_f64().unwrap(), own, "{arm}");
            assert!(own > 0.0, "{arm}");
            let used = told["budget"]["memory"]["mean"].as_f64().unwrap();
            assert!(used > 0.5 && used <= 1.0, "{arm}: {used}");
        }
    }
}

fn check_tables(folder: &Folder, options: &[&str]) {
    let text = study(folder, options).ok().out;
    for part in [
        "random, best of 2",
        "uniform, best of 2",
        "router_init",
        "score_masking",
        "minitron",
        "Share 0.85: memory ≤ ",
        "memory 9",
        "tokens to removable experts",
        "50.0 % if all experts",
    ] {
        assert!(text.contains(part), "lacks {part:?}: {text}");
    }
    let markdown = String::from_utf8(folder.read("run/study.md")).unwrap();
    let rows: Vec<&str> = markdown.lines().filter(|line| line.starts_with("| 0.")).collect();
    assert_eq!(rows.len(), 2 * 6 + 2 * 3, "{markdown}");
    assert!(rows.iter().all(|row| [10, 13].contains(&row.matches('|').count())), "{markdown}");
    assert_eq!(rows.iter().filter(|row| row.contains("M |")).count(), 2 * 6, "{markdown}");
    check_picture(&String::from_utf8(folder.read("run/study.svg")).unwrap());
}

/// Every seed of every arm, in both shares and all three panels; nothing from elsewhere.
fn check_picture(svg: &str) {
    assert!(
        svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 400 ") && svg.ends_with("</svg>\n")
    );
    assert!(svg.contains("prefers-color-scheme:dark") && !svg.contains("href") && !svg.contains("url("), "{svg}");
    assert_eq!(svg.matches("<circle class=\"dot").count(), 3 * 2 * 6 * 2, "{svg}");
    assert_eq!(svg.matches("<circle class=\"dot first\"").count(), 3 * 2 * 2, "{svg}");
    assert_eq!(svg.matches("class=\"mean\"").count(), 3 * 2 * 6, "{svg}");
    for name in ["search", "random, best of 2", "minitron", "share 0.85", "share 0.7"] {
        assert_eq!(
            svg.matches(&format!(">{name}</text>")).count(),
            3 * if name.starts_with("share") { 1 } else { 2 },
            "{name}"
        );
    }
    for title in ["Held-out KL after recovery", "KD loss, last 25 steps of recovery", "Task mean", "the parent"] {
        assert!(svg.contains(title), "{title}");
    }
    assert!(!svg.contains("NaN") && svg.matches("<text").count() == svg.matches("</text>").count());
}

/// After a deleted result, and after a kill: the same numbers.
fn resumes(folder: &Folder, options: &[&str], told: &Value) {
    let unit = folder.path().join("run/study/0.7/1/search/result.json");
    fs::remove_file(&unit).unwrap();
    fs::remove_file(folder.path().join("run/study/0.85/uniform.json")).unwrap();
    let again = study(folder, &[options, &["--json"]].concat()).ok();
    assert!(again.err.contains("study 32/32: share 0.7, seed 1, search  "), "{again:?}");
    let again: Value = serde_json::from_str(&again.out).unwrap();
    assert!(without_seconds(again) == without_seconds(told.clone()));
    // More of an arm adds to what is there.
    let wider = ["--shares", "0.7", "--seeds", "2", "--random", "3", "--uniform", "2"];
    let wider = study(folder, &[&wider[..], &["--json"]].concat()).ok();
    assert_eq!(wider.err.matches("study ").count(), 2, "{wider:?}");
    damaged(folder);
    stages_have_a_way_out(folder);
    let some = ["--shares", "0.7", "--seeds", "1", "--arms", "minitron,search", "--json"];
    let some: Value = serde_json::from_str(&study(folder, &some).ok().out).unwrap();
    let arms: Vec<&Value> = some["shares"][0]["arms"].as_array().unwrap().iter().map(|arm| &arm["arm"]).collect();
    assert_eq!(arms, ["search", "minitron"]);
    let alone = study(folder, &["--shares", "0.7", "--seeds", "1", "--arms", "minitron", "--json"]).ok();
    let alone: Value = serde_json::from_str(&alone.out).unwrap();
    assert_eq!(alone["shares"][0]["arms"][0]["search_wins"], Value::Null);
    // Units of another cost table, of other times, are not mixed in.
    let (recipe, out) = (folder.at("recipe.toml"), folder.at("run"));
    run(["run", &recipe, "--out", &out, "--quiet", "--from", "profile", "--until", "profile"]).ok();
    study(folder, &["--quiet"]).refused(2, &["study/inputs.json", "cost/", "has changed", "remove"]);
}

/// What the first stages left is made again as the study says, by the study itself.
fn stages_have_a_way_out(folder: &Folder) {
    let options = ["--shares", "0.7", "--seeds", "1", "--random", "0", "--uniform", "1", "--quiet", "--json"];
    let before = study(folder, &options).ok().out;
    let importance = folder.read("run/rank/importance.json");
    folder.file("run/rank/importance.json", "{}");
    let way = format!("delete {}, and `study` makes it again", folder.at("run/rank"));
    study(folder, &options).refused(2, &["rank/importance.json", "as `rank` left it", &way]);
    fs::remove_dir_all(folder.at("run/rank")).unwrap();
    assert!(study(folder, &options).ok().out == before && folder.read("run/rank/importance.json") == importance);
    folder.file("run/stages/rank.json", "{");
    let way = format!("delete {}, and `study` makes it again", folder.at("run/stages/rank.json"));
    study(folder, &options).refused(2, &["stages/rank.json", &way]);
    fs::remove_file(folder.at("run/stages/rank.json")).unwrap();
    assert!(study(folder, &options).ok().out == before && folder.read("run/rank/importance.json") == importance);
}

/// Results that are not what a study left name themselves and the way out, which works.
fn damaged(folder: &Folder) {
    let options = ["--shares", "0.7", "--seeds", "1", "--random", "0", "--uniform", "1", "--quiet", "--json"];
    let before = study(folder, &options).ok().out;
    for name in ["0.7/0/minitron/result.json", "0.7/0/search/result.json", "0.7/uniform.json", "parent.json"] {
        let path = format!("run/study/{name}");
        let whole = folder.read(&path);
        for damage in [whole[..whole.len() / 2].to_vec(), b"[1, {}]".to_vec(), Vec::new()] {
            folder.file(&path, damage);
            study(folder, &options).refused(2, &[&path, "delete the file, and it is made again"]);
        }
        fs::remove_file(folder.path().join(&path)).unwrap();
        let after = study(folder, &options).ok().out;
        let of = |text: &str| without_seconds(serde_json::from_str(text).unwrap());
        assert!(of(&after) == of(&before), "{name}");
        folder.file(&path, whole);
    }
    // Of another unit.
    let path = "run/study/0.7/0/search/result.json";
    let whole = folder.read(path);
    folder.file(path, folder.read("run/study/0.7/1/search/result.json"));
    study(folder, &options).refused(2, &[path, "unit", "delete the file"]);
    folder.file(path, whole);
}

#[test]
fn options_and_limits_that_cannot_be_are_refused() {
    let folder = setting("memory_mib = 100");
    study(&folder, &["--seeds", "0"]).refused(2, &["--seeds", "found 0", "from 1"]);
    for share in ["0", "1.5", "-0.5", "nan", "inf"] {
        study(&folder, &["--shares", share]).refused(2, &["--shares", "above 0, at most 1"]);
    }
    study(&folder, &["--shares", "0.5,0.5"]).refused(2, &["--shares", "0.5 twice"]);
    study(&folder, &["--arms", "search,minitron,search"]).refused(2, &["--arms", "search twice"]);
    study(&folder, &["--arms", "search,maxitron"]).failed(2, &["--arms", "maxitron", "minitron"]);
    study(&folder, &["--shares", "half"]).failed(2, &["--shares", "half"]);
    assert!(!folder.names("").contains(&"run".into()));
    study(&folder, &["--quiet", "--shares", "0.0001"])
        .refused(2, &["share 0.0001: ", "contract.toml: limits.memory_mib", "at most 0.01 MiB", "architecture"]);
    let text = String::from_utf8(folder.read("recipe.toml")).unwrap();
    folder.file("recipe.toml", text.replace("steps = 3", "steps = 0"));
    study(&folder, &[]).refused(2, &["recipe.toml", "steps"]);
}
