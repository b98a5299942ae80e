//! Options that cannot be.

use crate::common::{Folder, fixture, run};

#[test]
fn options_out_of_range_are_refused_by_name() {
    let base = fixture("base");
    let generate = |more: &[&str]| run(["generate", &base, "--prompt", "a", "--max-tokens", "2"].iter().chain(more));
    generate(&["--temperature", "-1"]).refused(2, &["temperature -1", "0 or more"]);
    generate(&["--temperature", "nan"]).refused(2, &["temperature NaN"]);
    generate(&["--top-p", "0"]).refused(2, &["top-p 0", "above 0"]);
    generate(&["--top-p", "-0.5"]).refused(2, &["top-p -0.5"]);
    generate(&["--top-p", "1.5"]).refused(2, &["top-p 1.5"]);
    generate(&["--prefill-chunk", "0"]).refused(2, &["--prefill-chunk 0", "at least 1"]);
    generate(&["--stop", "256"]).refused(2, &["--stop 256", "vocabulary of 256"]);
    generate(&["--threads", "0"]).refused(2, &["--threads 0", "expected 1 to"]);
    generate(&["--threads", "100000000"]).refused(2, &["--threads 100000000", "expected 1 to"]);
    generate(&["--device", "cuda"]).refused(2, &["--device cuda", "--device cpu"]);
    generate(&["--device", "gpu0"]).refused(2, &["--device gpu0"]);
    for (option, value) in [("--threads", "two"), ("--stop", "-1"), ("--seed", "x"), ("--temperature", "warm")] {
        generate(&[option, value]).failed(2, &[option, value]);
    }
    for tokens in ["99999999999999", "18446744073709551615"] {
        let outcome = run(["generate", &base, "--prompt", "a", "--max-tokens", tokens]);
        outcome.refused(1, &["caches", "GiB of memory"]);
    }
    let none = run(["generate", &base, "--prompt", "a", "--max-tokens", "0", "--json"]).json();
    assert_eq!(none[0]["tokens"], serde_json::json!([]));

    let evaluate = |more: &[&str]| run(["evaluate", &base].iter().chain(more));
    evaluate(&["--examples", "0"]).failed(2, &["--examples", "0"]);
    evaluate(&["--examples", "4294967295"]).failed(2, &["--examples", "4294967295"]);
    evaluate(&["--data", "a", "--tasks", "b"]).failed(2, &["--data", "--tasks"]);
    evaluate(&["--tokenizer", "bytes"]).failed(2, &["--data"]);
    // Of records all are scored, in their order.
    evaluate(&["--data", "a", "--examples", "5"]).failed(2, &["--data", "--examples"]);
    evaluate(&["--data", "a", "--seed", "5"]).failed(2, &["--data", "--seed"]);
    let folder = Folder::new();
    let text = folder.file("a.txt", "a");
    run(["tokenize", &text, "--out", &folder.at("out"), "--tokens-per-shard", "0"]).failed(2, &["--tokens-per-shard"]);
    for out in ["a.txt", "a.txt/below"] {
        let parts = ["a.txt: path: found a file, expected a folder"];
        run(["tokenize", &text, "--out", &folder.at(out)]).refused(2, &parts);
    }
    assert_eq!((folder.names(""), folder.text("a.txt")), (vec!["a.txt".into()], "a".into()));
}

#[test]
fn command_lines_that_say_nothing_are_refused() {
    run(["compress"]).failed(2, &["compress", "--help"]);
    run(["inspect"]).failed(2, &["<MODEL>"]);
    run(["inspect", "a", "b"]).failed(2, &["b"]);
    run(["generate", &fixture("base")]).failed(2, &["--prompt"]);
    run(["pretrain", "recipe.toml"]).failed(2, &["--out"]);
    run(["tokenize", "--out", "o"]).failed(2, &["<FILES>"]);
    run::<&str>([]).failed(2, &["inspect", "pretrain", "evaluate", "generate", "tokenize"]);
    let help = run(["--help"]).ok().out;
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands: Vec<&str> = {
        // Continued descriptions are indented further.
        let named = commands.lines().filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
        named.filter_map(|line| line.split(' ').next()).collect()
    };
    assert!(help.contains("Exit codes") && commands.contains(&"quickstart") && commands.len() > 15, "{help}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        match command {
            "kernels" => ["list", "check"].iter().for_each(|of| help_is_whole(&[command, of])),
            "baseline" => help_is_whole(&[command, "minitron"]),
            "contract" => help_is_whole(&[command, "check"]),
            _ => help_is_whole(&[command]),
        }
    }
    ["plan", "ingest", "estimate"].iter().for_each(|of| help_is_whole(&["profile", of]));
}

/// What a command's help says: what it writes, how it tells programs, and an example of itself.
#[track_caller]
fn help_is_whole(command: &[&str]) {
    let help = run(command.iter().chain(&["--help"])).ok().out;
    let example = format!("  autocompress {} ", command.join(" "));
    for part in ["--json", "Writes: ", "Example:\n", &example] {
        assert!(help.contains(part), "lacks {part:?}: {help}");
    }
}
