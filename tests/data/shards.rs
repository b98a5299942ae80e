//! Token shards: format, errors, building all or none.

use std::fs;
use std::path::Path;

use autocompress::Error;
use autocompress::data::pack::PackedSource;
use autocompress::data::shards::{Shard, ShardWriter};
use autocompress::data::{BOS, Boundaries, BuildOptions, EOS, Source, Tokenizer, build_shards};

use crate::common::{numbered, write_shard};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn shards_keep_their_tokens_in_both_widths() {
    let folder = tempfile::tempdir().unwrap();
    for (vocab, dtype, top) in [(65_536, "u16", 65_535), (65_537, "u32", 65_536), (1 << 32, "u32", u32::MAX)] {
        let path = folder.path().join(format!("{vocab}.bin"));
        let documents: [&[u32]; 3] = [&[1, 2, top], &[5], &[6, 7, 8, 0, 9]];
        write_shard(&path, vocab, &documents);
        let shard = Shard::open(&path).unwrap();
        assert_eq!((shard.dtype(), shard.vocab_size()), (dtype, vocab));
        assert_eq!((shard.tokens(), shard.documents()), (9, 3));
        for (number, document) in documents.iter().enumerate() {
            assert_eq!(shard.ids(shard.document(number)).collect::<Vec<_>>(), *document);
        }
        shard.check_tokens(vocab).unwrap();
    }
}

#[test]
fn a_shard_that_is_cut_or_spoilt_says_how() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    write_shard(&path, 100, &[&[1, 2, 3], &[4, 99]]);
    let good = fs::read(&path).unwrap();
    // 64 of header, 5 tokens of 2 bytes padded to 16, 2 offsets.
    assert_eq!(good.len(), 96);
    let error = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = Shard::open(&path).err().unwrap();
        assert!(matches!(error, Error::Input { .. }));
        error.to_string().replace(&path.display().to_string(), "FILE")
    };
    for cut in [0, 1, 63, 64, 70, 95] {
        let message = error(&good[..cut]);
        assert!(message.starts_with(&format!("FILE: length: found {cut} bytes, expected ")), "{message}");
    }
    assert!(error(&good[..95]).ends_with("expected 96 bytes for 5 tokens and 2 documents"));
    assert!(error(&[&good[..], &[0]].concat()).starts_with("FILE: length: found 97 bytes"));
    let spoil = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        error(&bytes)
    };
    assert_eq!(spoil(0, b"XX"), "FILE: first 8 bytes: found XXTOKENS, expected ACTOKENS");
    assert_eq!(spoil(8, &[9]), "FILE: version: found 9, expected 1");
    assert_eq!(spoil(12, &[3]), "FILE: bytes per token: found 3, expected 2 or 4");
    assert!(spoil(24, &[0]).starts_with("FILE: tokens: found 0, expected at least 1"));
    assert!(spoil(24, &[255; 8]).contains("more than the address space"));
    assert!(spoil(32, &[255; 8]).contains("more than the address space"));
    assert!(spoil(80, &[1]).starts_with("FILE: document 0: found offset 1, expected 0 first"));
    assert!(spoil(88, &[0]).starts_with("FILE: document 1: found offset 0, expected"));
    assert!(spoil(88, &[5]).starts_with("FILE: document 1: found offset 5, expected"));

    fs::write(&path, &good).unwrap();
    let shard = Shard::open(&path).unwrap();
    let message = shard.check_tokens(50).unwrap_err().to_string();
    assert_eq!(message, format!("{}: token 4: found id 99, expected below the vocabulary size 50", path.display()));
    let missing = folder.path().join("none.bin");
    assert!(matches!(Shard::open(&missing), Err(Error::Io { action: "read", .. })));
}

#[test]
fn an_unfinished_shard_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    write_shard(&path, 100, &[&[1, 2, 3]]);
    let before = fs::read(&path).unwrap();
    let mut writer = ShardWriter::create(&path, 100).unwrap();
    writer.push(&[4, 5]).unwrap();
    let message = writer.push(&[6, 100]).unwrap_err().to_string();
    assert!(
        message.ends_with("document 1, token 1: found id 100, expected below the vocabulary size 100"),
        "{message}"
    );
    drop(writer);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(names(folder.path()), ["a.bin"]);
    assert!(matches!(ShardWriter::create(&path, 100).unwrap().commit(), Err(Error::Usage(_))));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(matches!(ShardWriter::create(&path, 0), Err(Error::Usage(_))));
    assert!(matches!(ShardWriter::create(folder.path().join("no/a.bin"), 9), Err(Error::Io { .. })));
}

#[test]
fn shards_are_built_from_documents_all_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("shards");
    let options = BuildOptions { vocab_size: 256, tokens_per_shard: 10 };
    let texts = ["hello", "a longer text", "x", "yz", "0123456789"];
    let documents = || texts.iter().map(|text| Ok(text.to_string()));

    let broken = documents().chain([Err(Error::Usage("line 7".into()))]);
    let error = build_shards(broken, &Tokenizer::Bytes, &target, options).unwrap_err();
    assert_eq!(error.to_string(), "line 7");
    assert!(!target.exists());

    let built = build_shards(documents(), &Tokenizer::Bytes, &target, options).unwrap();
    assert_eq!(names(&target), ["shard-00000.bin", "shard-00001.bin"]);
    let total: usize = texts.iter().map(|text| text.len() + 2).sum();
    assert_eq!((built.documents, built.tokens), (5, total));
    let mut decoded = Vec::new();
    for path in &built.shards {
        let shard = Shard::open(path).unwrap();
        for number in 0..shard.documents() {
            let ids: Vec<u32> = shard.ids(shard.document(number)).collect();
            assert_eq!((ids[0], ids[ids.len() - 1]), (BOS, EOS));
            decoded.push(Tokenizer::Bytes.decode(&ids).unwrap());
        }
    }
    assert_eq!(decoded, texts);

    let again = build_shards(documents(), &Tokenizer::Bytes, &target, options).unwrap_err();
    assert!(again.to_string().contains("shard-00000.bin"), "{again}");
    let none = build_shards([], &Tokenizer::Bytes, folder.path().join("other"), options).unwrap_err();
    assert!(none.to_string().ends_with("found no documents, expected at least one"));
}

#[test]
fn shards_and_memory_pack_alike() {
    let folder = tempfile::tempdir().unwrap();
    let (list, all) = numbered(&[5, 9, 3, 7, 31, 2, 1]);
    let paths = [folder.path().join("a.bin"), folder.path().join("b.bin")];
    for (path, part) in paths.iter().zip(list.chunks(4)) {
        write_shard(path, 200, &part.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    let memory = PackedSource::from_documents(all, Boundaries::Apart).unwrap();
    let shards = PackedSource::from_shards(&paths, 200, Boundaries::Apart).unwrap();
    assert_eq!((shards.documents(), shards.tokens()), (7, 58));
    for step in 0..20 {
        assert_eq!(memory.batch(5, step, 2, 13).unwrap(), shards.batch(5, step, 2, 13).unwrap());
    }
}
