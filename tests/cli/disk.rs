//! A full disk, and output that nobody takes.

use std::fs::{self, File};
use std::process::Stdio;

use crate::common::{Folder, command, fixture, run, run_on_full_disk, wait};

#[test]
fn a_full_disk_ends_training_and_keeps_what_was_there() {
    let folder = Folder::new();
    let recipe = folder.recipe("kind = \"tasks\"");
    let whole = folder.pretrain(&recipe, "whole").json();
    let model = folder.read("whole/model/model.safetensors");
    assert!(model.len() > 110_000, "the limit would not be met");
    // At the first checkpoint.
    let args = ["pretrain", &recipe, "--out", &folder.at("run"), "--quiet", "--json"];
    run_on_full_disk(args).refused(1, &["state.safetensors", "cannot write", "File too large"]);
    assert_eq!(folder.names("run/pretrain/checkpoints"), [""; 0]);
    assert!(!folder.names("run").contains(&"model".into()));
    let after = run(args).json();
    assert_eq!(after["loss"], whole["loss"]);
    assert!(folder.read("run/model/model.safetensors") == model);
    // At the model, which is there from before.
    run_on_full_disk(args).refused(1, &["run/model/model.safetensors", "cannot write", "File too large"]);
    assert!(folder.read("run/model/model.safetensors") == model);
    assert_eq!(folder.names("run/pretrain/checkpoints"), ["step-00000002", "step-00000004"]);
    assert_eq!(folder.names("run"), ["inputs.json", "lock", "model", "pretrain", "recipe.toml"]);
    assert_eq!(run(args).json(), after);
}

#[test]
fn a_full_disk_leaves_no_shards() {
    let folder = Folder::new();
    let text = folder.file("a.txt", "x".repeat(200_000));
    let args = ["tokenize", &text, "--out", &folder.at("out")];
    run_on_full_disk(args).refused(1, &["shard-00000.bin", "cannot write", "File too large"]);
    assert!(!folder.path().join("out").exists());
    run(args).ok();
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_reader_that_left_is_none() {
    let folder = Folder::new();
    let base = fixture("base");
    let recipe = folder.recipe("kind = \"tasks\"");
    let text = folder.file("a.txt", "some text");
    let (run, shards) = (folder.at("run"), folder.at("shards"));
    let commands: [&[&str]; 5] = [
        &["inspect", &base, "--json"],
        &["evaluate", &base, "--examples", "2", "--json"],
        &["generate", &base, "--prompt", "a", "--max-tokens", "4", "--json"],
        &["pretrain", &recipe, "--out", &run, "--json"],
        &["tokenize", &text, "--out", &shards, "--json"],
    ];
    for args in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let outcome = wait(command(args).stdout(full).spawn().unwrap());
        assert!(outcome.err.lines().last().unwrap().starts_with("error: standard output: cannot write"), "{outcome:?}");
        outcome.failed(1, &["No space left"]);
        let _ = fs::remove_dir_all(&shards);
        // Both pipes closed by their reader, as in `2>&1 | head -1`; then standard error alone.
        let mut child = command(args).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        wait(child).ok();
        let _ = fs::remove_dir_all(&shards);
        let mut child = command(args).spawn().unwrap();
        drop(child.stderr.take());
        wait(child).json();
    }
    // An error that nobody reads is an error still.
    let mut child = command(["inspect", "/none"]).stdout(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(wait(child).code, Some(2));
}
