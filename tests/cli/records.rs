//! Texts, records, prompts and tokenizers that are not what they must be.

use std::fs;

use crate::common::{Folder, fixture, run, tokenizer};

#[test]
fn texts_that_are_none_are_refused_and_nothing_is_written() {
    let folder = Folder::new();
    let out = folder.at("out");
    let good = folder.file("good.txt", "some text");
    for (name, content, code, parts) in [
        ("empty.txt", &b""[..], 2, &["empty.txt", "no text"][..]),
        ("blank.txt", b" \n\n", 2, &["blank.txt", "no text"]),
        ("latin1.txt", b"caf\xe9", 2, &["latin1.txt", "byte 3", "0xe9", "UTF-8"]),
        ("empty.jsonl", b"", 2, &["empty.jsonl", "no text"]),
        ("key.jsonl", b"{\"text\": \"a\"}\n{\"txt\": \"b\"}", 2, &["key.jsonl", "line 2", "txt", "\"text\""]),
        ("answer.jsonl", b"{\"prompt\": \"a\"}", 2, &["answer.jsonl", "line 1", "answer", "no such key"]),
        ("type.jsonl", b"{\"text\": 3}", 2, &["type.jsonl", "line 1", "text", "found 3", "a string"]),
        ("half.jsonl", b"{\"text\": \"a\"}\n{\"te", 2, &["half.jsonl", "line 2", "JSON"]),
        ("utf8.jsonl", b"{\"text\": \"\xff\"}", 2, &["utf8.jsonl", "line 1", "0xff", "UTF-8"]),
    ] {
        let bad = folder.file(name, content);
        // After a good one, whose shard must not stay either.
        run(["tokenize", &good, &bad, "--out", &out]).refused(code, parts);
        assert!(!folder.path().join("out").exists(), "{name}");
    }
    run(["tokenize", &folder.at("none.txt"), "--out", &out]).refused(2, &["none.txt", "No such file"]);
    run(["tokenize", &folder.at(""), "--out", &out]).refused(2, &["found a folder, expected a file"]);
    run(["tokenize", &good, "--out", &good]).refused(2, &["good.txt", "found a file, expected a folder"]);
    run(["tokenize", &good, "--out", &out]).ok();
    let before = folder.read("out/shard-00000.bin");
    run(["tokenize", &good, "--out", &out]).refused(2, &["out", ".bin"]);
    assert_eq!(folder.read("out/shard-00000.bin"), before);
}

#[test]
fn records_that_are_wrong_are_refused_by_line() {
    let folder = Folder::new();
    let base = fixture("base");
    for (content, parts) in [
        ("", &["no records"][..]),
        ("\n\n", &["no records"]),
        ("{\"text\": \"a\"}\n\n{\"question\": \"b\"}", &["line 3", "question", "\"prompt\""]),
        ("{\"prompt\": \"a\", \"answer\": \"\"}", &["line 1", "answer", "an empty string"]),
        ("{\"prompt\": \"a\", \"choices\": [\"b\"], \"answer\": 0}", &["line 1", "choices", "at least two"]),
        ("{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}", &["line 1", "answer", "0 to 1"]),
        ("{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"b\"}", &["line 1", "answer", "\"b\""]),
        ("{\"prompt\": \"a\", \"choices\": \"bc\", \"answer\": 0}", &["line 1", "choices", "list"]),
        ("[1]", &["line 1", "JSON object"]),
    ] {
        let data = folder.file("records.jsonl", content);
        run(["evaluate", &base, "--data", &data]).refused(2, &[&["records.jsonl"], parts].concat());
    }
    run(["evaluate", &base, "--data", &folder.at("none")]).refused(2, &["none", "No such file"]);
    let words = folder.file("words.json", tokenizer(300));
    let data = folder.file("records.jsonl", "{\"prompt\": \"small\", \"answer\": \"small big\"}");
    let outcome = run(["evaluate", &base, "--data", &data, "--tokenizer", &words]);
    outcome.refused(2, &["records.jsonl", "line 1", "token id 300", "vocabulary of 256"]);
    let data = folder.file("records.jsonl", "{\"prompt\": \"\", \"answer\": \"small\"}");
    let outcome = run(["evaluate", &base, "--data", &data, "--tokenizer", &words]);
    outcome.refused(2, &["records.jsonl", "line 1", "0 tokens of prompt"]);
}

#[test]
fn prompts_and_tokenizers_that_do_not_fit_are_refused() {
    let folder = Folder::new();
    let base = fixture("base");
    let words = folder.file("words.json", tokenizer(300));
    let generate = |more: &[&str]| run(["generate", &base, "--max-tokens", "2"].iter().chain(more));
    generate(&["--prompt", "big", "--tokenizer", &words]).refused(2, &["\"big\"", "300", "vocabulary of 256"]);
    generate(&["--prompt", "", "--tokenizer", &words]).refused(2, &["prompt without tokens"]);
    // Bytes begin every text with a token of their own.
    generate(&["--prompt", ""]).ok();
    generate(&["--prompts", &folder.file("empty.txt", "")]).refused(2, &["empty.txt", "no text"]);
    generate(&["--prompts", &folder.file("bad.txt", b"a\n\xff")]).refused(2, &["bad.txt", "byte 2", "UTF-8"]);
    generate(&["--prompts", &folder.at("none")]).refused(2, &["none", "No such file"]);
    for content in ["", "{}", "[1]", "no JSON"] {
        let bad = folder.file("bad.json", content);
        generate(&["--prompt", "a", "--tokenizer", &bad]).refused(2, &["bad.json", "tokenizer.json"]);
        run(["tokenize", &folder.file("a.txt", "a"), "--out", &folder.at("o"), "--tokenizer", &bad])
            .refused(2, &["bad.json"]);
    }
    generate(&["--prompt", "a", "--tokenizer", &folder.at("none")]).refused(2, &["none", "No such file"]);
    // The model's own folder holds it.
    let model = folder.model("model");
    fs::write(folder.path().join("model/tokenizer.json"), "{}").unwrap();
    run(["generate", &model, "--prompt", "a"]).refused(2, &["model/tokenizer.json"]);
    fs::write(folder.path().join("model/tokenizer.json"), tokenizer(2)).unwrap();
    fs::write(folder.path().join("model/tokenizer_config.json"), "{\"eos_token\": \"</s>\"}").unwrap();
    run(["generate", &model, "--prompt", "a"]).refused(2, &["tokenizer_config.json", "eos_token", "</s>"]);
    fs::remove_file(folder.path().join("model/tokenizer_config.json")).unwrap();
    // Its vocabulary is smaller than the model's, as where one is padded: ids beyond it have no text.
    let answer = run(["generate", &model, "--prompt", "small", "--max-tokens", "8", "--json"]).json();
    assert!(answer[0]["tokens"].as_array().unwrap().iter().any(|id| id.as_u64() > Some(2)), "{answer}");
}
