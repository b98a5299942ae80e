//! The main job: its stages, their order, what is skipped, what a kill leaves, and what is refused.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use autocompress::run::digest_file;
use serde_json::{Value, json};

use super::common::{Folder, Outcome, as_pipe, command, contract, files_below, run, tokenizer};

const SPACE: &str = "hidden_size = [128, 96, 64]\n[mamba]\nheads = [16, 8]\n\
                     [moe]\nexperts = [16, 8]\nintermediate = [64, 32, 0]\nshared_intermediate = [128, 64, 0]\n";

/// Memory is counted, so it is the same in every run; the time is limited where nothing reaches.
const LIMITS: &str = "latency_ms = 60000\nmemory_of_parent = 0.6";

/// The recipe and what it reads, the parent being the shipped one.
fn job(folder: &Folder) -> String {
    let parent = concat!(env!("CARGO_MANIFEST_DIR"), "/presets/parents/tiny");
    folder.compression(parent, SPACE, LIMITS)
}

/// The same with a parent of its own, which has a tokenizer and a card.
fn job_with_companions(folder: &Folder) -> String {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets/parents/tiny");
    fs::create_dir(folder.at("parent")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(shipped.join(file), folder.path().join("parent").join(file)).unwrap();
    }
    folder.file("parent/tokenizer.json", tokenizer(2));
    folder.file("parent/chat_template.jinja", "{{ messages }}");
    folder.file("parent/README.md", "---\nlicense: cc-by-4.0\n---\n# A parent\n");
    folder.compression("parent", SPACE, LIMITS)
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
    let recipe = job_with_companions(&folder);
    let out = folder.at("run");
    compress(&["rank", &recipe, "--out", &out, "--quiet"]).ok();
    compress(&["search", &recipe, "--out", &out]).refused(2, &["search", "profile", "not complete"]);
    for stage in ["rank", "profile", "search", "extract", "recover"] {
        compress(&[stage, &recipe, "--out", &out, "--quiet"]).ok();
    }
    let cards = || ["student", "recovered"].map(|student| folder.text(&format!("run/{student}/README.md")));
    let before_report = cards();
    for (card, part) in before_report.iter().zip(["meant to be recovered before", "recovered by distillation"]) {
        let parts = [part, "before recovery", "| search", "| layer | kind | parent | student |", "≤ 60000 ms"];
        parts.iter().for_each(|part| assert!(card.contains(part), "lacks {part:?}: {card}"));
        assert!(!card.contains("## Scores"), "{card}");
    }
    students_carry_their_companions(&folder);
    compress(&["evaluate", &recipe, "--out", &out]).ok();
    compress(&["measure", &recipe, "--out", &out]).ok();
    compress(&["report", &recipe, "--out", &out, "--quiet"]).ok();
    cards_tell_what_is_known(&cards(), &recipe, &folder.path().join("run/report.json"));
    // A card is nobody's input: an edited or lost one changes nothing.
    folder.file("run/recovered/README.md", "edited");
    fs::remove_file(folder.at("run/student/README.md")).unwrap();
    let modified = |name: &str| fs::metadata(Path::new(&out).join(name)).unwrap().modified().unwrap();
    let names = ["search/search.json", "recover/recover.json", "report.json"];
    let before = names.map(modified);
    compress(&["run", &recipe, "--out", &out, "--quiet"]).ok();
    assert_eq!(names.map(modified), before);
    compress(&["run", &recipe, "--out", &out, "--quiet", "--from", "recover"]).ok();
    let after = names.map(modified);
    assert!(after[0] == before[0] && after[1] > before[1] && after[2] > before[2]);
    damaged_outputs_are_refused(&recipe, &out);
    let after = names.map(modified);
    compress(&["run", &recipe, "--out", &out, "--quiet"]).ok();
    assert_eq!(names.map(modified), after);
    missed_limits_have_an_exit_code(&recipe, &out);
    // What later stages left stays while what it was made from is the same.
    compress(&["run", &recipe, "--out", &out, "--quiet", "--from", "rank", "--until", "rank"]).ok();
    compress(&["run", &recipe, "--out", &out, "--quiet", "--until", "evaluate"]).ok();
    assert_eq!(names.map(modified)[..2], after[..2]);
    // A stage whose inputs are others now is done again, from its beginning: times differ.
    compress(&["run", &recipe, "--out", &out, "--quiet", "--from", "profile", "--until", "profile"]).ok();
    assert_eq!(names.map(modified)[..2], after[..2]);
    compress(&["recover", &recipe, "--out", &out]).refused(2, &["recover", "extract", "not complete"]);
    compress(&["run", &recipe, "--out", &out, "--quiet", "--until", "search"]).ok();
    assert!(modified("search/search.json") > after[0]);

    let validated = compress(&["validate", &recipe, "--out", &out, "--architectures", "3", "--repeats", "1", "--json"]);
    assert_eq!(validated.json()["points"].as_array().unwrap().len(), 3);
}

/// The parent's tokenizer and templates lie beside a student's weights, and beside exported ones.
fn students_carry_their_companions(folder: &Folder) {
    compress(&["export", &folder.at("run"), "--weights", "fp8", "--out", &folder.at("exported")]).ok();
    for student in ["run/student", "run/recovered", "exported"] {
        for file in ["tokenizer.json", "chat_template.jinja"] {
            assert_eq!(folder.read(&format!("{student}/{file}")), folder.read(&format!("parent/{file}")), "{student}");
        }
    }
    let card = folder.text("exported/README.md");
    let parts =
        ["base_model: parent", "license: cc-by-4.0", "- fp8", "## The card of parent, compressed", "#### Deployment"];
    parts.iter().for_each(|part| assert!(card.contains(part), "lacks {part:?}: {card}"));
}

/// After the report: limits as measured beside the parent, scores, trainings, and how to do it again.
fn cards_tell_what_is_known(cards: &[String; 2], recipe: &str, report: &Path) {
    let report: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let parameters = |model: &str| autocompress::report::count(report[model]["parameters"].as_u64().unwrap());
    let sizes = format!("| parameters | {} | {} |", parameters("parent"), parameters("student"));
    let kl = autocompress::report::precise(report["quality"]["held_out_before_recovery"].as_f64().unwrap());
    let layers = report["parent"]["layers"].as_array().unwrap().len();
    for (card, measured) in cards.iter().zip(["as cut out, before recovery", "after recovery, beside the parent"]) {
        assert!(card.starts_with("---\nbase_model: parent\n"), "{card}");
        let recipe = fs::read_to_string(recipe).unwrap();
        let parts = [
            "license: cc-by-4.0",
            "pipeline_tag: text-generation",
            &sizes,
            measured,
            "## Scores",
            "| **mean** |",
            "copy (2 items)",
            &kl[..4],
            recipe.trim_end(),
            "memory_of_parent = 0.6",
            "## Loading",
            "parent/model.safetensors",
        ];
        parts.iter().for_each(|part| assert!(card.contains(part), "lacks {part:?}: {card}"));
        // One row for every layer of the parent.
        let rows = (0..layers).filter(|layer| card.contains(&format!("\n| {layer} | ")));
        assert_eq!(rows.count(), layers, "{card}");
        assert!(!card.contains("/tmp/") && !card.contains(env!("CARGO_MANIFEST_DIR")), "a machine's path: {card}");
    }
    assert!(cards[1].contains("| recovery | 12 | "), "{}", cards[1]);
}

/// A file that is not as its stage left it: edited, cut, flipped, gone.
fn damaged_outputs_are_refused(recipe: &str, out: &str) {
    let run = || compress(&["run", recipe, "--out", out, "--quiet"]);
    type Damage = fn(&mut Vec<u8>);
    let damage: [(&str, &str, Damage); 4] = [
        ("search/search.json", "search", |bytes| bytes.push(b' ')),
        ("search/metrics.jsonl", "search", |bytes| bytes.truncate(100)),
        ("recovered/model.safetensors", "recover", |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("cost/table.csv", "profile", |bytes| bytes.push(b'\n')),
    ];
    for (name, stage, damage) in damage {
        let path = Path::new(out).join(name);
        let before = fs::read(&path).unwrap();
        let mut bytes = before.clone();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let parts = [name, &format!("as `{stage}` left it"), &format!("`run --from {stage}`")];
        run().refused(2, &parts);
        compress(&["report", recipe, "--out", out]).refused(2, &parts);
        fs::remove_file(&path).unwrap();
        if !["search/search.json", "cost/table.csv"].contains(&name) {
            run().refused(2, &[name, "no such file", &format!("`run --from {stage}`")]);
        }
        fs::write(&path, before).unwrap();
    }
    // Nobody writes to a pipe in a file's place, and nothing waits for it.
    for path in files_below(Path::new(out)) {
        let before = as_pipe(&path);
        let outcome = compress(&["report", recipe, "--out", out]);
        if outcome.code != Some(0) {
            outcome.failed(2, &[]);
        }
        if !path.is_file() {
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, before).unwrap();
    }
    let marker = Path::new(out).join("stages/recover.json");
    let before = fs::read(&marker).unwrap();
    fs::write(&marker, "{").unwrap();
    run().refused(2, &["stages/recover.json", "`run --from recover`"]);
    fs::write(&marker, before).unwrap();
    run().ok();
}

/// As if the student had been measured over a limit.
fn missed_limits_have_an_exit_code(recipe: &str, out: &str) {
    let read = |name: &str| fs::read(Path::new(out).join(name)).unwrap();
    let before = ["measure/measure.json", "stages/measure.json"].map(|name| (name, read(name)));
    let mut measured: Value = serde_json::from_slice(&before[0].1).unwrap();
    (measured["met"], measured["limits"][0]["met"]) = (false.into(), false.into());
    let path = Path::new(out).join("measure/measure.json");
    fs::write(&path, measured.to_string()).unwrap();
    let mut marker: Value = serde_json::from_slice(&before[1].1).unwrap();
    let file = &mut marker["files"]["measure/measure.json"];
    (file["bytes"], file["sha256"]) = (measured.to_string().len().into(), digest_file(&path).unwrap().into());
    fs::write(Path::new(out).join("stages/measure.json"), marker.to_string()).unwrap();
    for command in ["run", "report", "measure"] {
        let told = compress(&[command, recipe, "--out", out]);
        assert_eq!(told.code, Some(3), "{told:?}");
        assert!(told.out.contains("not met"), "{told:?}");
        let told = compress(&[command, recipe, "--out", out, "--json"]);
        assert_eq!(told.code, Some(3), "{told:?}");
        assert_eq!(serde_json::from_str::<Value>(&told.out).unwrap()["met"], false);
    }
    // Before it is measured there is nothing to miss.
    compress(&["run", recipe, "--out", out, "--until", "evaluate"]).ok();
    before.into_iter().for_each(|(name, bytes)| fs::write(Path::new(out).join(name), bytes).unwrap());
    compress(&["run", recipe, "--out", out, "--quiet"]).ok();
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
    folder.file("contract.toml", contract(&LIMITS.replace("0.6", "0.7")));
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
    in_recipe("alpha = 3.0", "temperature = 0.0", &["search.temperature", "from 0.01 to 100"]);
    in_recipe("alpha = 3.0", "alpha = 1e9", &["search.alpha", "1000000000", "from 0 to 10000: ", "rounding"]);
    in_recipe("alpha = 3.0", "kappa = [1.0, 1e9]", &["search.kappa[1]", "from 0.01 to 1000: "]);
    in_recipe("alpha = 3.0", "tau = [1.0, 1e-9]", &["search.tau[1]", "from 0.001 to 100: "]);
    in_recipe("alpha = 3.0", "tau = [nan, 0.1]", &["search.tau[0]", "NaN"]);
    in_recipe("alpha = 3.0", "router = { rate = 1e9 }", &["search.router.rate", "from 0 to 10000: "]);
    in_recipe("alpha = 3.0", "delta = 1.0", &["recipe.toml: search.delta", "below 1"]);
    in_recipe("alpha = 3.0", "converged_at = 0.3", &["recipe.toml: search.converged_at", "above 0.5"]);
    in_recipe("kind = \"tasks\"", "kind = \"tasks\"\nsort.weight = -1", &["recipe.toml: data.sort.weight", "-1"]);
    in_recipe("[recover.training]", "[recover]\ntemperature = 1e3\n[recover.training]", &["recover.temperature"]);
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
        let contract = contract(LIMITS);
        assert!(contract.contains(from), "{from}");
        refused("contract.toml", contract.replacen(from, to, 1), parts);
    };
    in_contract("latency_ms = 60000\nmemory_of_parent = 0.6", "", &["limits", "no limit", "at least one"]);
    in_contract("memory_of_parent = 0.6", "memory_of_parent = -1", &["limits.memory_of_parent", "above 0"]);
    in_contract("latency_ms = 60000", "memory_mib = 3", &["limits.memory_mib", "memory_of_parent", "one of the two"]);
    in_contract("threads = 1", "threds = 1", &["did you mean `threads`?"]);
    // A user's own folder that happens to hold a recipe is no run directory.
    let own = folder.path().to_str().unwrap();
    compress(&["run", &recipe, "--out", own]).refused(2, &["run directory", "a folder without"]);
    assert!(!folder.path().join("lock").exists());
    fs::write(folder.at("plain"), "a file").unwrap();
    compress(&["run", &recipe, "--out", &folder.at("plain/run")])
        .refused(2, &["plain: path: found a file, expected a folder"]);
    compress(&["run", &folder.at("none.toml"), "--out", &folder.at("run")]).refused(2, &["none.toml", "read"]);
    compress(&["run", &recipe, "--out", &folder.at("run"), "--until", "serch"]).failed(2, &["serch", "search"]);
    compress(&["run", &recipe, "--out", &folder.at("run"), "--from", "report", "--until", "rank"])
        .refused(2, &["--from"]);
}

#[test]
fn limits_that_nothing_meets_are_told_by_their_key_with_the_smallest_cost() {
    let cases = [
        ("memory_mib = 0.01", ["limits.memory_mib", "found at least", " MiB (", "expected at most 0.01 MiB"]),
        (
            "latency_of_parent = 1e-4",
            ["limits.latency_of_parent", "of the parent's", " ms (", "at most 0.0001 of the parent's"],
        ),
        ("throughput = 1e9", ["limits.throughput", "found at most", " tokens/s (", "at least 1000000000 tokens/s"]),
    ];
    for (limits, parts) in cases {
        let folder = Folder::new();
        let recipe = job(&folder);
        folder.file("contract.toml", contract(limits));
        let refused = compress(&["run", &recipe, "--out", &folder.at("run"), "--quiet"]);
        refused.failed(2, &[&["contract.toml", "\"hidden_size\":"][..], &parts].concat());
        assert!(!folder.path().join("run/search").exists());
    }
}

#[test]
fn a_refused_command_leaves_no_run_directory_behind() {
    let folder = Folder::new();
    let recipe = job(&folder);
    for stage in ["validate", "search", "extract", "recover", "evaluate", "measure", "report"] {
        compress(&[stage, &recipe, "--out", &folder.at("tpyo")]).refused(2, &["tpyo", "found no run"]);
        assert!(!folder.path().join("tpyo").exists(), "{stage}");
    }
    fs::create_dir(folder.path().join("mine")).unwrap();
    folder.file("mine/recipe.toml", "a user's own");
    compress(&["evaluate", &recipe, "--out", &folder.at("mine")]).refused(2, &["mine", "found no run"]);
    assert_eq!(folder.names("mine"), ["recipe.toml"]);
}

#[test]
fn a_refused_quickstart_writes_nothing() {
    let folder = Folder::new();
    let quickstart = |out: &str| compress(&["quickstart", "--out", &folder.at(out)]);
    fs::create_dir_all(folder.path().join("a/run")).unwrap();
    folder.file("a/run/thesis.txt", "a user's own");
    quickstart("a").refused(2, &["a/run", "thesis.txt"]);
    assert_eq!((folder.names("a"), folder.names("a/run")), (vec!["run".into()], vec!["thesis.txt".into()]));
    fs::create_dir_all(folder.path().join("b/recipes")).unwrap();
    folder.file("b/recipes/quickstart.toml", "a user's own");
    quickstart("b").refused(2, &["b/recipes/quickstart.toml", "another content"]);
    assert_eq!(folder.names("b"), ["recipes"]);
}

#[test]
fn sizes_beyond_this_machines_memory_are_refused_before_any_work() {
    let folder = Folder::new();
    let recipe = job(&folder);
    let original = fs::read_to_string(&recipe).unwrap();
    let too_much = |text: String, parts: &[&str]| {
        folder.file("recipe.toml", text);
        let refused = compress(&["run", &recipe, "--out", &folder.at("run")]);
        refused.refused(1, &[parts, &["needs at least", "GiB of memory", "in this machine"]].concat());
        assert!(!folder.path().join("run").exists());
    };
    let (search, recover) = original.split_once("[recover.training]").unwrap();
    let many = |text: &str| text.replacen("sequences = 4\nlength = 32", "sequences = 100000000000\nlength = 32", 1);
    too_much(format!("{}[recover.training]{recover}", many(search)), &["recipe.toml", "search.training.sequences"]);
    too_much(format!("{search}[recover.training]{}", many(recover)), &["recipe.toml", "recover.training.sequences"]);
    let held_out =
        original.replace("examples = 2\nsequences = 2\nlength = 64", "sequences = 16777216\nlength = 1048576");
    too_much(held_out, &["recipe.toml", "evaluate.sequences"]);
    folder.file("contract.toml", contract(LIMITS).replace("batch = 1", "batch = 65536\ncached_tokens = 16777216"));
    too_much(original, &["contract.toml", "workload"]);
}

/// Text, of which a part is held out, and records of two kinds.
#[test]
fn a_users_text_is_held_out_in_part_and_its_records_are_scored_and_shown() {
    let folder = Folder::new();
    let recipe = job(&folder);
    let text: Vec<String> = (0..60).map(|i| format!("paragraph {i} says {}\n\n", "abc ".repeat(i % 7 + 3))).collect();
    folder.file("a.txt", text.concat());
    folder.file("records.jsonl", "{\"text\": \"some text\"}\n{\"prompt\": \"ab\", \"answer\": \"c\"}\n");
    let original = fs::read_to_string(&recipe).unwrap();
    let data = "kind = \"text\"\npaths = [\"a.txt\"]\nseparate_by = \"blank_line\"";
    let with = original.replace("kind = \"tasks\"", data).replace("examples = 2", "records = \"records.jsonl\"");
    folder.file("recipe.toml", &with);
    let report = compress(&["run", &recipe, "--out", &folder.at("run"), "--quiet", "--json"]).json();
    let quality = &report["quality"];
    assert!(quality["held_out_tokens"].as_u64().unwrap() > 60, "{quality}");
    assert_eq!((&quality["losses"][0]["name"], &quality["losses"][0]["items"]), (&json!("text"), &json!(1)));
    assert!(quality["losses"][0]["student"].as_f64().unwrap() > 0.0, "{quality}");
    assert_eq!(quality["tasks"][0]["name"], "exact match");
    let told = compress(&["report", &recipe, "--out", &folder.at("run")]).ok().out;
    assert!(told.lines().any(|line| line.starts_with("text loss, nats per token")), "{told}");
    assert!(String::from_utf8(folder.read("run/report.html")).unwrap().contains("text loss"));

    let refused = |text: &str, parts: &[&str]| {
        folder.file("recipe.toml", text);
        compress(&["run", &recipe, "--out", &folder.at("other")]).refused(2, parts);
        assert!(!folder.path().join("other").exists(), "{parts:?}: something was made");
    };
    folder.file("records.jsonl", "{\"text\": \"fine\"}\n{\"prompt\": \"ab\"}\n");
    refused(&with, &["records.jsonl", "line 2", "answer"]);
    folder.file("a.txt", "a little");
    refused(&original.replace("kind = \"tasks\"", data), &["recipe.toml: data: found 10 tokens", "evaluate.held_out"]);
    let empty = "[evaluate]\nheld_out = { kind = \"text\", paths = [] }";
    refused(&original.replace("[evaluate]", empty), &["recipe.toml: evaluate.held_out.paths", "empty list"]);
    refused(&original.replace("examples = 2\nsequences = 2\nlength = 64", "length = 2"), &["evaluate.length", "2"]);
}
