//! The run directory against second processes, kills, full disks and changed inputs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use autocompress::run::{Checkpoints, Input, Metrics, RunDir, digest_bytes};
use autocompress::{Error, Result, files};
use serde_json::{Value, json};

const RECIPE: &str = "seed = 1\nsteps = 10\n";

fn input(name: &str, content: &str) -> Input {
    Input { name: name.into(), digest: digest_bytes(content.as_bytes()) }
}

fn open(path: &Path) -> Result<RunDir> {
    RunDir::create_or_open(path, RECIPE, &[input("parent", "p"), input("data", "d")])
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
    let text = result.unwrap_err().to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn a_run_is_made_once_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs/first");
    let run = open(&path).unwrap();
    assert!(run.is_new());
    assert_eq!(fs::read_to_string(path.join("recipe.toml")).unwrap(), RECIPE);
    drop(run);
    assert!(!open(&path).unwrap().is_new());
    assert_eq!(names(&path), ["inputs.json", "lock", "recipe.toml"]);
}

#[test]
fn a_second_holder_is_told_the_first_ones_process() {
    let dir = tempfile::tempdir().unwrap();
    let run = open(dir.path()).unwrap();
    match open(dir.path()) {
        Err(Error::Locked { path, pid }) => {
            assert_eq!((path.as_path(), pid), (dir.path(), std::process::id().to_string()));
        }
        other => panic!("{other:?}"),
    }
    drop(run);
    open(dir.path()).unwrap();
}

/// The child of the next test: holds the run directory until it is killed.
#[test]
fn child_that_holds_the_lock() {
    let Ok(path) = std::env::var("AUTOCOMPRESS_TEST_HOLD") else { return };
    let run = open(Path::new(&path)).unwrap();
    fs::write(run.path().join(".half.1-0.tmp"), "half").unwrap();
    fs::write(run.path().join("held"), "").unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_holder_frees_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_holds_the_lock"])
        .env("AUTOCOMPRESS_TEST_HOLD", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !dir.path().join("held").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the child ended early");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    match open(dir.path()) {
        Err(Error::Locked { pid, .. }) => assert_eq!(pid, child.id().to_string()),
        other => panic!("{other:?}"),
    }
    child.kill().unwrap();
    child.wait().unwrap();
    open(dir.path()).unwrap();
    assert!(!dir.path().join(".half.1-0.tmp").exists(), "what the child left half-built is gone");
}

#[test]
fn another_recipe_or_other_inputs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = [input("parent", "p"), input("data", "d")];
    drop(open(dir.path()).unwrap());
    let other = RunDir::create_or_open(dir.path(), "seed = 1\nsteps = 20\n", &inputs);
    refused(other, &["recipe.toml", "line 2", "`steps = 10`", "`steps = 20`", "another recipe"]);
    let longer = RunDir::create_or_open(dir.path(), "seed = 1\nsteps = 10\nmore = 1\n", &inputs);
    refused(longer, &["line 3", "the end", "more = 1"]);
    let changed = RunDir::create_or_open(dir.path(), RECIPE, &[input("parent", "p"), input("data", "other")]);
    refused(changed, &["inputs.json", "data", &digest_bytes(b"d"), &digest_bytes(b"other"), "changed"]);
    refused(RunDir::create_or_open(dir.path(), RECIPE, &inputs[..1]), &["data", "not given"]);
    let more = [inputs[0].clone(), inputs[1].clone(), input("extra", "x")];
    refused(RunDir::create_or_open(dir.path(), RECIPE, &more), &["extra", "no such input"]);
    // Refusals change nothing.
    assert!(!open(dir.path()).unwrap().is_new());
}

#[test]
fn what_is_no_run_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "mine").unwrap();
    refused(open(dir.path()), &["thesis.tex", "recipe.toml"]);
    assert_eq!(names(dir.path()), ["thesis.tex"]);
    // A place that cannot be a folder.
    let under_a_file = dir.path().join("thesis.tex/run");
    refused(open(&under_a_file), &["thesis.tex: path: found a file", "expected a folder"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_before_work() {
    // Not writable even for root.
    refused(open(Path::new("/proc/self/run")), &["/proc/self/run", "cannot create"]);
}

#[test]
fn a_start_that_was_killed_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "1\n").unwrap();
    fs::write(dir.path().join(".recipe.toml.1-0.tmp"), "see").unwrap();
    assert!(open(dir.path()).unwrap().is_new());
    assert_eq!(names(dir.path()), ["inputs.json", "lock", "recipe.toml"]);
}

#[test]
fn stages_are_complete_for_their_inputs_only() {
    let dir = tempfile::tempdir().unwrap();
    let run = open(dir.path()).unwrap();
    assert!(!run.is_complete("rank", "a").unwrap());
    run.mark_complete("rank", "a", 1.5, &[]).unwrap();
    assert!(run.is_complete("rank", "a").unwrap());
    assert!(!run.is_complete("rank", "b").unwrap());
    assert!(!run.is_complete("search", "a").unwrap());
    run.mark_complete("rank", "b", 2.5, &[]).unwrap();
    assert_eq!(run.seconds("rank").unwrap(), Some(2.5));
    // What other inputs left must go before it can be begun from these.
    assert!(!run.begin("rank", "c").unwrap() && run.is_complete("rank", "b").unwrap());
    run.forget("rank").unwrap();
    run.forget("rank").unwrap();
    assert!(run.begin("rank", "c").unwrap() && !run.is_complete("rank", "c").unwrap());
    // Begun from the same, it goes on.
    assert!(run.begin("rank", "c").unwrap());
    assert_eq!(run.seconds("rank").unwrap(), None);
    assert!(matches!(run.is_complete("../rank", "b"), Err(Error::Contract { .. })));
    fs::write(dir.path().join("stages/rank.json"), "{").unwrap();
    refused(run.is_complete("rank", "b"), &["rank.json"]);
}

#[test]
fn what_a_stage_left_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let run = open(dir.path()).unwrap();
    let folder = run.folder("model/deep").unwrap();
    fs::write(folder.join("weights"), "12345").unwrap();
    fs::write(dir.path().join("rank.json"), "{}").unwrap();
    run.begin("rank", "a").unwrap();
    assert!(run.outputs("rank").unwrap().is_empty());
    run.mark_complete("rank", "a", 1.0, &["rank.json", "model"]).unwrap();
    run.verify("rank").unwrap();
    let outputs = run.outputs("rank").unwrap();
    assert_eq!(outputs["model/deep/weights"], digest_bytes(b"12345"));
    assert_eq!(outputs.keys().collect::<Vec<_>>(), ["model/deep/weights", "rank.json"]);
    fs::write(folder.join("other"), "a user's").unwrap();
    run.verify("rank").unwrap();
    fs::write(folder.join("weights"), "12346").unwrap();
    refused(run.verify("rank"), &["weights", &digest_bytes(b"12346"), &digest_bytes(b"12345"), "as `rank` left it"]);
    fs::write(folder.join("weights"), "1234").unwrap();
    refused(run.verify("rank"), &["weights", "4 bytes", "expected 5"]);
    fs::remove_file(folder.join("weights")).unwrap();
    refused(run.verify("rank"), &["weights", "no such file", "5 bytes"]);
    refused(RunDir::open(&dir.path().join("none"), RECIPE, &[]), &["none", "no run"]);
    assert!(!dir.path().join("none").exists());
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn metrics_are_cut_to_the_resumed_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut metrics = Metrics::open(&path, |_| true).unwrap();
    metrics.write(&json!({"note": "start"})).unwrap();
    for step in 1..=5 {
        metrics.write(&json!({"step": step, "loss": 1.0 / step as f64})).unwrap();
    }
    metrics.sync().unwrap();
    drop(metrics);
    let mut metrics = Metrics::open(&path, |step| step <= 3).unwrap();
    metrics.write(&json!({"step": 4, "loss": f64::NAN})).unwrap();
    let lines = lines(&path);
    assert_eq!(
        lines.iter().map(|line| line["step"].as_u64()).collect::<Vec<_>>(),
        [None, Some(1), Some(2), Some(3), Some(4)]
    );
    assert_eq!(lines[4]["loss"], Value::Null);
}

#[test]
fn a_half_written_metrics_line_is_cut_wherever_it_broke() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let (whole, last) = ("{\"step\":1,\"a\":\"é\"}\n", "{\"step\":2,\"a\":\"é\"}\n");
    for length in 0..=last.len() {
        fs::write(&path, [whole.as_bytes(), &last.as_bytes()[..length]].concat()).unwrap();
        Metrics::open(&path, |_| true).unwrap().write(&json!({"step": 3})).unwrap();
        let expected = if length == last.len() { 3 } else { 2 };
        assert_eq!(lines(&path).len(), expected, "{length}");
    }
    // A block of zeros, as some file systems leave after a power cut.
    fs::write(&path, [whole.as_bytes(), &[0; 100]].concat()).unwrap();
    Metrics::open(&path, |_| true).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    // Damage before the end is nobody's to repair.
    fs::write(&path, format!("{whole}damage\n{last}")).unwrap();
    refused(Metrics::open(&path, |_| true), &["metrics.jsonl", "line 2"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{whole}damage\n{last}"));
}

fn put(checkpoints: &Checkpoints, step: u64) -> PathBuf {
    let write = |dir: &Path| {
        fs::create_dir(dir.join("model")).map_err(Error::io(dir, "create"))?;
        fs::write(dir.join("model/weights"), format!("weights {step}")).map_err(Error::io(dir, "write"))?;
        fs::write(dir.join("optimizer"), "moments").map_err(Error::io(dir, "write"))
    };
    checkpoints.save(step, write).unwrap()
}

fn latest_step(checkpoints: &Checkpoints) -> Option<u64> {
    checkpoints.latest().unwrap().found.map(|found| found.step)
}

#[test]
fn the_last_checkpoints_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("checkpoints");
    let checkpoints = Checkpoints::new(&folder, 2);
    assert_eq!(latest_step(&checkpoints), None);
    [5, 100, 123, 123].into_iter().for_each(|step| drop(put(&checkpoints, step)));
    assert_eq!(names(&folder), ["step-00000100", "step-00000123"]);
    let latest = checkpoints.latest().unwrap();
    let found = latest.found.unwrap();
    assert_eq!((found.step, latest.skipped.len()), (123, 0));
    assert_eq!(fs::read_to_string(found.path.join("model/weights")).unwrap(), "weights 123");
    put(&checkpoints, 1_000_000_000);
    assert_eq!(names(&folder), ["step-00000123", "step-1000000000"]);
}

#[test]
fn broken_checkpoints_are_skipped_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(dir.path(), 9);
    let path = |step: u64| dir.path().join(format!("step-{step:08}"));
    (1..=7).for_each(|step| drop(put(&checkpoints, step)));
    fs::write(path(7).join("model/weights"), "weights 8").unwrap(); // same size, other content
    fs::write(path(6).join("model/weights"), "we").unwrap();
    fs::remove_file(path(5).join("optimizer")).unwrap();
    fs::remove_file(path(4).join("manifest.json")).unwrap();
    fs::write(path(3).join("manifest.json"), "{\"step\":").unwrap();
    fs::remove_dir_all(path(1)).unwrap();
    fs::rename(path(2), path(1)).unwrap(); // a whole one under another step's name
    fs::create_dir(dir.path().join(".step-00000009.1-0.tmp")).unwrap();
    put(&Checkpoints::new(&dir.path().join("other"), 1), 1);
    let latest = checkpoints.latest().unwrap();
    assert_eq!(latest.found, None);
    let skipped: Vec<String> = latest.skipped.iter().map(|(path, why)| format!("{} {why}", path.display())).collect();
    for (line, parts) in skipped.iter().zip([
        ["step-00000007", "digest"],
        ["step-00000006", "2 bytes"],
        ["step-00000005", "optimizer"],
        ["step-00000004", "manifest.json"],
        ["step-00000003", "manifest.json"],
        ["step-00000001", "expected 1"],
    ]) {
        parts.iter().for_each(|part| assert!(line.contains(part), "{line:?} lacks {part:?}"));
    }
    assert_eq!(skipped.len(), 6);
}

#[test]
fn a_resume_at_an_earlier_step_does_not_lose_it_to_later_broken_ones() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(dir.path(), 2);
    [10, 20].into_iter().for_each(|step| drop(put(&checkpoints, step)));
    fs::remove_file(dir.path().join("step-00000020/optimizer")).unwrap();
    assert_eq!(latest_step(&checkpoints), Some(10));
    put(&checkpoints, 15);
    assert_eq!(names(dir.path()), ["step-00000010", "step-00000015"]);
}

#[test]
fn a_failed_checkpoint_keeps_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(dir.path(), 1);
    put(&checkpoints, 1);
    let result = checkpoints.save(2, |folder| {
        files::write_atomic(&folder.join("weights"), |file| {
            use std::io::Write;
            file.write_all(b"half")?;
            fs::File::options().write(true).open("/dev/full")?.write_all(b"x")
        })
    });
    refused(result, &["weights", "No space left"]);
    assert_eq!(names(dir.path()), ["step-00000001"]);
    assert_eq!(latest_step(&checkpoints), Some(1));
}

/// The child of the next test: writes a file that is larger than the limit it was given.
#[test]
fn child_that_writes_too_much() {
    let Ok(path) = std::env::var("AUTOCOMPRESS_TEST_WRITE") else { return };
    let path = Path::new(&path);
    let error = files::write_atomic(path, |file| file.write_all(&vec![1; 4 << 20])).unwrap_err();
    assert!(matches!(&error, Error::Io { path: told, .. } if told == path), "{error}");
    assert_eq!(fs::read_to_string(path).unwrap(), "old");
    files::write_atomic(path, |file| file.write_all(b"new")).unwrap();
}

#[test]
fn a_write_that_the_system_stops_midway_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "old").unwrap();
    // The limit's signal ignored, write(2) itself fails part of the way, as on a full disk.
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" --exact child_that_writes_too_much --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env("AUTOCOMPRESS_TEST_WRITE", &path)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(fs::read_to_string(&path).unwrap(), "new", "the same process could write less");
    assert_eq!(names(dir.path()), ["file"]);
}
