//! A recipe whose deployment is not at hand: it runs as far as the recovered student by a table from elsewhere, and says of
//! everything that was not measured that it was not.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::common::{DEPLOYMENTS, preset};

const CONTRACT: &str = "
device = 'rtx-5070'
[engine]
name = 'vllm'
version = '0.27.1'
moe_backend = 'cutlass'
[precision]
[workload]
batch = 4
input_tokens = 256
output_tokens = 64
prefill_chunk = 2048
[limits]
latency_of_parent = 0.7
memory_mib = 18.5
[search]
parent = 'TINY'
space = 'SPACE'
";

const RECIPE: &str = "
parent = 'TINY'
space = 'SPACE'
contract = 'contract.toml'
data = { kind = 'tasks' }
rank = { sequences = 2, length = 32 }
evaluate = { examples = 2, sequences = 2, length = 32 }
[search]
draws = 2
[search.training]
steps = 3
sequences = 2
length = 32
learning_rate = 2e-3
[recover.training]
steps = 2
sequences = 2
length = 32
learning_rate = 2e-3
";

/// The tiny parent as it would be served on a player's GPU.
struct Elsewhere {
    folder: tempfile::TempDir,
}

impl Elsewhere {
    /// `more` is added to the recipe's top.
    fn new(more: &str) -> Elsewhere {
        let elsewhere = Elsewhere { folder: tempfile::tempdir().unwrap() };
        let fill = |text: &str| {
            let at = |path: &str| preset(path).to_str().unwrap().to_owned();
            text.replace("TINY", &at("parents/tiny")).replace("SPACE", &at("spaces/tiny.toml"))
        };
        std::fs::write(elsewhere.path("contract.toml"), fill(CONTRACT)).unwrap();
        std::fs::write(elsewhere.path("recipe.toml"), format!("{more}\n{}", fill(RECIPE))).unwrap();
        elsewhere
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code, standard output, standard error of a command in the folder.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_autocompress"));
        let output = command.args(args).current_dir(self.folder.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let (code, out, err) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        serde_json::from_str(&out).unwrap()
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_run_goes_to_the_recovered_student_by_estimates() {
    let elsewhere = Elsewhere::new("");
    let run = ["run", "recipe.toml", "--out", "run", "--quiet", "--json"];
    let done = elsewhere.json(&run);
    assert_eq!(done["stage"], "evaluate");
    let limits = done["predicted"].as_array().unwrap();
    assert_eq!(limits.len(), 2);
    for limit in limits {
        let [limit, predicted] = ["limit", "predicted"].map(|key| limit[key].as_f64().unwrap());
        assert!(predicted > 0.0 && predicted <= limit, "{limits:?}");
    }
    let profile = read(&elsewhere.path("run/cost/profile.json"));
    assert!(profile["deployment"].as_str().unwrap().contains("vLLM 0.27.1 on NVIDIA GeForce RTX 5070"), "{profile}");
    let [times, estimates] = ["times", "estimates"].map(|key| profile[key].as_u64().unwrap());
    assert!(times > 1000 && estimates == times, "{profile}");
    let (code, out, err) = elsewhere.run(&run[..5]);
    assert!(
        code == 0 && err == format!("note: {estimates} of the cost table's {times} times are estimates\n"),
        "{err}"
    );
    assert!(out.contains("latency: predicted ") && out.contains(", not measured\n"), "{out}");
    let card = std::fs::read_to_string(elsewhere.path("run/recovered/README.md")).unwrap();
    assert!(card.contains(&format!("Predicted by a cost table of which {estimates} of {times} times are estimates")));
    assert!(card.contains("| not measured |") && !card.contains("Measured "), "{card}");

    // The table says what it is of, and is of nothing else.
    let table = "run/cost/table.csv";
    let shown =
        elsewhere.json(&["inspect", "run/recovered", "--contract", "contract.toml", "--table", table, "--json"]);
    assert_eq!(shown["table_measured_on"], format!("rtx-5070, {estimates} of {times} times estimates"));
    let text = std::fs::read_to_string(elsewhere.path("recipe.toml")).unwrap();
    let half = preset("contracts/half.toml");
    std::fs::write(elsewhere.path("here.toml"), text.replace("contract.toml", half.to_str().unwrap())).unwrap();
    let (code, _, err) = elsewhere.run(&["dry-run", "here.toml", "--table", table]);
    assert!(code == 2 && err.contains("a cost table of rtx-5070") && err.contains("own engine"), "{err}");
    // Estimates calibrate nothing.
    let again = ["profile", "estimate", "--contract", "contract.toml", "--table", table];
    let (code, out, _) = elsewhere.run(&again);
    assert!(
        code == 0
            && !out.contains("calibrated")
            && out.contains(&format!("{estimates} of {times} times are estimates")),
        "{out}"
    );

    // What this machine cannot measure is refused, before any work.
    let [tables, students] = ["run/cost/table.csv", "run/recovered/config.json"].map(|file| elsewhere.path(file));
    let before = [&tables, &students].map(|file| std::fs::read(file).unwrap());
    for args in [
        &["run", "recipe.toml", "--out", "run", "--until", "report", "--from", "profile"][..],
        &["run", "recipe.toml", "--out", "other", "--until", "measure"],
        &["validate", "recipe.toml", "--out", "run"],
    ] {
        let (code, _, err) = elsewhere.run(args);
        assert!(code == 2 && err.contains("engine: found vllm, expected \"builtin\""), "{args:?}: {err}");
    }
    assert_eq!(before, [&tables, &students].map(|file| std::fs::read(file).unwrap()));
    assert!(!elsewhere.path("other/rank").exists());
    let (code, _, err) = elsewhere.run(&["run", "recipe.toml", "--out", "run", "--from", "measure"]);
    assert!(code == 2 && err.contains("--from is a later stage"), "{err}");
}

#[test]
fn a_table_from_elsewhere_is_taken_as_it_is() {
    let elsewhere = Elsewhere::new("profile = { table = 'measured.csv' }");
    let (code, _, err) = elsewhere.run(&["profile", "recipe.toml", "--out", "run"]);
    assert!(code == 2 && err.contains("measured.csv"), "{err}");
    assert!(!elsewhere.path("run").exists(), "nothing is begun without the table");

    let estimate = ["profile", "estimate", "--contract", "contract.toml", "--out", "all.csv"];
    assert_eq!(elsewhere.run(&estimate).0, 0);
    // One time of all was measured: a MoE layer of the widest hidden size, ten times what is estimated.
    let all = std::fs::read_to_string(elsewhere.path("all.csv")).unwrap();
    let row = all.lines().find(|row| row.starts_with("prefill,0,128,moe")).unwrap();
    let mut cells: Vec<&str> = row.split(',').collect();
    let slower = (10.0 * cells[4].parse::<f64>().unwrap()).to_string();
    cells.splice(4.., [slower.as_str(), "0", "5"]);
    let measured = cells.join(",");
    let head = all.lines().next().unwrap();
    std::fs::write(elsewhere.path("measured.csv"), format!("{head}\n{measured}\n")).unwrap();
    assert_eq!(elsewhere.run(&["profile", "recipe.toml", "--out", "run", "--quiet"]).0, 0);
    let table = std::fs::read_to_string(elsewhere.path("run/cost/table.csv")).unwrap();
    let taken: Vec<&str> = table.lines().filter(|row| row.ends_with(",5")).collect();
    let key = |row: &str| row.split(',').take(4).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(taken.iter().map(|row| key(row)).collect::<Vec<_>>(), [key(&measured)]);
    let value = |row: &str| row.split(',').nth(4).unwrap().parse::<f64>().unwrap();
    assert_eq!(value(taken[0]), value(&measured));
    assert_eq!(table.lines().count(), all.lines().count());

    // The run belongs to its table.
    std::fs::write(elsewhere.path("measured.csv"), format!("{head}\n{row}\n")).unwrap();
    let (code, _, err) = elsewhere.run(&["profile", "recipe.toml", "--out", "run"]);
    assert!(code == 2 && err.contains("table"), "{err}");
    // What is measured here has no table from elsewhere.
    let here = std::fs::read_to_string(elsewhere.path("recipe.toml")).unwrap();
    let half = preset("contracts/half.toml");
    std::fs::write(elsewhere.path("recipe.toml"), here.replace("contract.toml", half.to_str().unwrap())).unwrap();
    let (code, _, err) = elsewhere.run(&["profile", "recipe.toml", "--out", "here"]);
    assert!(code == 2 && err.contains("profile.table"), "{err}");
}

#[test]
fn a_table_without_times_and_a_contract_that_is_a_pipe_are_refused() {
    let elsewhere = Elsewhere::new("");
    let estimate = ["profile", "estimate", "--contract", "contract.toml", "--out", "all.csv"];
    assert_eq!(elsewhere.run(&estimate).0, 0);
    let all = std::fs::read_to_string(elsewhere.path("all.csv")).unwrap();
    let without = |row: &str| {
        let cells: Vec<&str> = row.split(',').collect();
        let is_time = matches!(cells[0], "prefill" | "decode");
        if is_time { [&cells[..4], &["0", "0", "5"]].concat().join(",") } else { row.to_owned() }
    };
    let rows: Vec<String> = all.lines().map(without).collect();
    std::fs::write(elsewhere.path("none.csv"), rows.join("\n")).unwrap();
    let (code, _, err) = elsewhere.run(&["dry-run", "recipe.toml", "--table", "none.csv", "--quiet"]);
    assert!(code == 2 && err.contains("found a request of 0 seconds"), "{err}");

    std::fs::remove_file(elsewhere.path("contract.toml")).unwrap();
    let made = Command::new("mkfifo").arg(elsewhere.path("contract.toml")).status().unwrap();
    assert!(made.success());
    for args in [&["run", "recipe.toml", "--out", "run"][..], &["dry-run", "recipe.toml"]] {
        let (code, _, err) = elsewhere.run(args);
        assert!(code == 2 && err.contains("found a pipe, expected a file"), "{args:?}: {err}");
    }
}

#[test]
fn limits_that_no_architecture_meets_end_the_profile() {
    let elsewhere = Elsewhere::new("");
    let contract = std::fs::read_to_string(elsewhere.path("contract.toml")).unwrap();
    std::fs::write(elsewhere.path("contract.toml"), contract.replace("0.7", "0.001")).unwrap();
    for args in [&["run", "recipe.toml", "--out", "run", "--quiet"][..], &["dry-run", "recipe.toml", "--quiet"]] {
        let (code, _, err) = elsewhere.run(args);
        assert!(code == 2 && err.contains("limits.latency_of_parent"), "{args:?}: {err}");
    }
}

/// Every preset, from the parent's configuration alone.
#[test]
fn presets_run_dry_on_a_laptop() {
    for name in DEPLOYMENTS {
        let folder = tempfile::tempdir().unwrap();
        // A part of the steps will do: the repair finds what is within the limits.
        let text = std::fs::read_to_string(preset(&format!("recipes/{name}.toml"))).unwrap();
        let at = preset("").to_str().unwrap().to_owned();
        let text = text.replace("\"../", &format!("\"{at}/")).replacen("steps = ", "steps = 2 # ", 1);
        std::fs::write(folder.path().join("recipe.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_autocompress"));
        let output = command.args(["dry-run", "recipe.toml", "--quiet", "--json"]).current_dir(folder.path());
        let output = output.output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["steps"], 2);
        assert!(told["estimates"].as_u64().unwrap() > 0);
        for limit in told["limits"].as_array().unwrap() {
            let rho = limit["rho"].as_array().unwrap();
            assert!(rho.len() == 4 && rho[3].as_f64().unwrap() <= 1.0, "{name}: {limit}");
            let of = |key: &str| limit[key].as_f64().unwrap();
            let within = if limit["at_least"] == true {
                of("architecture") >= of("limit")
            } else {
                of("architecture") <= of("limit")
            };
            assert!(within, "{name}: {limit}");
        }
        assert!(told["parameters"][1].as_u64() <= told["parameters"][0].as_u64(), "{told}");
    }
}
