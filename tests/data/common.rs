//! What the tests share.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use autocompress::data::pack::{Documents, PackedSource};
use autocompress::data::shards::ShardWriter;
use autocompress::data::tasks::TaskSource;
use autocompress::data::{Batch, Boundaries, IGNORE, Source, Split, TasksConfig};

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Solves a prompt by other means than the generator's.
pub fn solve(prompt: &str) -> String {
    let body = &prompt[1..prompt.len() - 1];
    match &prompt[..1] {
        "C" => body.into(),
        "R" => body.chars().rev().collect(),
        "S" => {
            let count = |symbol| body.matches(symbol).count();
            ('0'..='z').flat_map(|symbol| std::iter::repeat_n(symbol, count(symbol))).collect()
        }
        "M" => {
            let modulus = TasksConfig::default().modular_addition.modulus;
            let sum: usize = body.split('+').map(|term| term.parse::<usize>().unwrap()).sum();
            format!("{:0width$}", sum % modulus, width = (modulus - 1).to_string().len())
        }
        "K" => {
            let (pairs, query) = body.split_once('?').unwrap();
            let value = |key| pairs[pairs.find(key).unwrap() + 1..].chars().next().unwrap();
            query.chars().map(value).collect()
        }
        "B" => {
            // Matched pairs are erased until none is left; what remains is closed backwards.
            let mut rest = body.to_string();
            while let Some(at) = ["()", "[]", "{}", "<>"].iter().find_map(|pair| rest.find(pair)) {
                rest.replace_range(at..at + 2, "");
            }
            let close = HashMap::from([('(', ')'), ('[', ']'), ('{', '}'), ('<', '>')]);
            rest.chars().rev().map(|bracket| close[&bracket]).collect()
        }
        "N" => body[2..].matches(&body[..1]).count().to_string(),
        "P" => {
            let shown: Vec<char> = body.chars().collect();
            let repeats = |period: &usize| (*period..shown.len()).all(|at| shown[at] == shown[at - period]);
            let period = (1..).find(repeats).unwrap();
            let mut all = shown.clone();
            for at in shown.len()..shown.len() + TasksConfig::default().induction.continuation {
                all.push(all[at - period]);
            }
            all[shown.len()..].iter().collect()
        }
        other => panic!("tag {other}"),
    }
}

/// What every batch promises.
pub fn check_batch(batch: &Batch) {
    let total = batch.sequences * batch.length;
    assert_eq!((batch.tokens.len(), batch.targets.len()), (total, total));
    assert_eq!((batch.segments[0], *batch.segments.last().unwrap()), (0, total));
    assert!(batch.segments.windows(2).all(|pair| pair[0] < pair[1]));
    for row in 0..batch.sequences {
        assert!(batch.segments.contains(&(row * batch.length)), "row {row} starts a segment");
        assert_eq!(batch.targets[(row + 1) * batch.length - 1], IGNORE, "row {row} ends without a target");
    }
    for (at, &target) in batch.targets.iter().enumerate() {
        assert!(target == IGNORE || target == batch.tokens[at + 1]);
    }
}

/// Documents of distinct tokens: BOS, then numbers that occur once in all of them.
pub fn numbered(lengths: &[usize]) -> (Vec<Vec<u32>>, Documents) {
    let mut next = 10;
    let mut all = Documents::default();
    let mut list = Vec::new();
    for &length in lengths {
        let document: Vec<u32> = (next..next + length as u32).collect();
        next += length as u32;
        all.push(&document);
        list.push(document);
    }
    (list, all)
}

pub fn sources() -> Vec<(&'static str, Arc<dyn Source>)> {
    let (_, all) = numbered(&[5, 9, 3, 7, 31, 2]);
    vec![
        ("tasks", Arc::new(TaskSource::new(TasksConfig::default(), Split::Train).unwrap())),
        ("packed", Arc::new(PackedSource::from_documents(all, Boundaries::Apart).unwrap())),
    ]
}

pub fn write_shard(path: &Path, vocab: usize, documents: &[&[u32]]) {
    let mut writer = ShardWriter::create(path, vocab).unwrap();
    documents.iter().for_each(|document| writer.push(document).unwrap());
    writer.commit().unwrap();
}

pub fn file(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

pub const WORDS: &str = r#"{
    "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
    "padding": null, "normalizer": null, "decoder": null,
    "added_tokens": [{"id": 9, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "red": 1, "green": 2, "blue": 5, "</s>": 9}, "unk_token": "<unk>"}
}"#;
