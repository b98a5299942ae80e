//! Sources as a user describes them.

use std::fs;

use autocompress::data::{DataConfig, Source, TasksConfig, Tokenizer};

use crate::common::{WORDS, check_batch, file, write_shard};

fn config(toml: &str) -> DataConfig {
    toml::from_str(toml).unwrap()
}

#[test]
fn configurations_are_read_from_toml() {
    let tasks = config("kind = \"tasks\"\ncopy = { weight = 2, max_length = 16 }\nsort.weight = 0.0");
    let DataConfig::Tasks(tasks) = tasks else { panic!("tasks") };
    assert_eq!((tasks.copy.weight, tasks.copy.max_length, tasks.sort.weight), (2.0, 16, 0.0));
    assert_eq!(tasks.reverse, TasksConfig::default().reverse);
    assert_eq!(config("kind = \"tasks\""), DataConfig::default());
    for whole in [
        DataConfig::default(),
        config("kind = \"text\"\npaths = [\"a\"]\nseparate_by = \"blank_line\"\ntokenizer = \"t\""),
        config("kind = \"shards\"\npaths = [\"a\"]\ndocuments = \"joined\""),
    ] {
        assert_eq!(config(&toml::to_string(&whole).unwrap()), whole);
    }
    for (toml, word) in [
        ("kind = \"tasks\"\ncopi = 3", "copi"),
        ("kind = \"tasks\"\ncopy.size = 3", "size"),
        ("kind = \"text\"\npaths = []\nfoo = 1", "foo"),
        ("kind = \"shards\"\npaths = []\ntokenizer = \"bytes\"", "tokenizer"),
        ("kind = \"shards\"", "paths"),
        ("kind = \"web\"", "web"),
        ("kind = \"shards\"\npaths = []\ndocuments = \"glued\"", "glued"),
    ] {
        let error = toml::from_str::<DataConfig>(toml).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn sources_are_opened_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let here = |toml: &str| config(toml).relative_to(folder.path());
    let open = |toml: &str, vocab| here(toml).source(vocab).map(drop).map_err(|error| error.to_string());
    file(folder.path(), "a.txt", "one\n\ntwo é");
    file(folder.path(), "b.jsonl", "{\"text\": \"three\"}");
    let text = "kind = \"text\"\npaths = [\"a.txt\", \"b.jsonl\"]\nseparate_by = \"blank_line\"";
    let batch = here(text).source(256).unwrap().batch(0, 0, 1, 5 + 8 + 7).unwrap();
    check_batch(&batch);
    assert_eq!(batch.segments.len(), 4, "three documents");
    let mut found: Vec<String> = batch
        .segments
        .windows(2)
        .map(|pair| Tokenizer::Bytes.decode(&batch.tokens[pair[0]..pair[1]]).unwrap())
        .collect();
    found.sort();
    assert_eq!(found, ["one", "three", "two é"]);
    let message = open(text, 128).unwrap_err();
    assert!(message.ends_with("a.txt: document 1, token 5: found id 195, expected below the vocabulary size 128"));

    file(folder.path(), "tokenizer.json", WORDS);
    open("kind = \"text\"\npaths = [\"a.txt\"]\ntokenizer = \"tokenizer.json\"", 10).unwrap();
    let message = open("kind = \"text\"\npaths = [\"a.txt\"]\ntokenizer = \"gone.json\"", 10).unwrap_err();
    assert!(message.contains("gone.json: cannot read"), "{message}");

    let shards = "kind = \"shards\"\npaths = [\"s\"]";
    assert!(open(shards, 256).unwrap_err().contains("cannot read"));
    fs::create_dir(folder.path().join("s")).unwrap();
    assert!(open(shards, 256).unwrap_err().ends_with("folder: found no .bin files, expected at least one token shard"));
    write_shard(&folder.path().join("s/a.bin"), 1000, &[&[1, 2, 300]]);
    open(shards, 301).unwrap();
    assert!(open(shards, 300).unwrap_err().ends_with("token 2: found id 300, expected below the vocabulary size 300"));

    for kind in ["text", "shards"] {
        let message = open(&format!("kind = \"{kind}\"\npaths = []"), 256).unwrap_err();
        assert_eq!(message, "paths: found an empty list, expected at least one path");
        assert!(
            open(&format!("kind = \"{kind}\"\npaths = [\"none\"]"), 256).unwrap_err().contains("none: cannot read")
        );
    }
    open("kind = \"tasks\"", 128).unwrap();
    assert!(open("kind = \"tasks\"", 127).unwrap_err().contains("found a vocabulary of 127, expected at least 128"));
}
