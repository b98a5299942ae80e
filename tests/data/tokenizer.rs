//! Bytes and `tokenizer.json`.

use autocompress::Error;
use autocompress::data::{BOS, EOS, PAD, Tokenizer};

use crate::common::{WORDS, file};

#[test]
fn bytes_go_there_and_back() {
    let tokenizer = Tokenizer::open("bytes").unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.eos()), (256, Some(EOS)));
    let ids = tokenizer.encode("aé").unwrap();
    assert_eq!(ids, [0x61, 0xc3, 0xa9]);
    assert_eq!(tokenizer.encode_document("aé").unwrap(), [BOS, 0x61, 0xc3, 0xa9, EOS]);
    assert_eq!(tokenizer.decode(&[BOS, 0x61, 0xc3, 0xa9, EOS, PAD]).unwrap(), "aé");
    assert_eq!(tokenizer.decode(&[0x61, 0xc3]).unwrap(), "a\u{fffd}");
    let message = tokenizer.decode(&[97, 256]).unwrap_err().to_string();
    assert_eq!(message, "decode: ids: found 256, expected below 256");
}

#[test]
fn a_tokenizer_file_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "tokenizer.json", WORDS);
    let tokenizer = Tokenizer::from_file(&path).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.eos()), (10, None));
    // The file's truncation to two tokens would lose the third.
    assert_eq!(tokenizer.encode("red blue green pink").unwrap(), [1, 5, 2, 0]);
    assert_eq!(tokenizer.decode(&[1, 5, 9]).unwrap(), "red blue");
    assert!(tokenizer.decode(&[10]).is_err());

    for token in [r#""</s>""#, r#"{"content": "</s>"}"#] {
        file(folder.path(), "tokenizer_config.json", format!("{{\"eos_token\": {token}}}"));
        let tokenizer = Tokenizer::from_dir(folder.path()).unwrap();
        assert_eq!(tokenizer.encode_document("red").unwrap(), [1, 9]);
        assert_eq!(tokenizer.encode_document("red </s>").unwrap(), [1, 9], "not ended twice");
    }
    let config = file(folder.path(), "tokenizer_config.json", r#"{"eos_token": "<end>"}"#);
    let message = Tokenizer::from_dir(folder.path()).err().unwrap().to_string();
    let expected = format!("{}: eos_token: found \"<end>\", expected a token of tokenizer.json", config.display());
    assert_eq!(message, expected);

    file(folder.path(), "tokenizer.json", "{\"model\": 3}");
    let error = Tokenizer::from_file(&path).err().unwrap();
    assert!(error.to_string().ends_with("expected a Hugging Face tokenizer.json"), "{error}");
    assert!(matches!(Tokenizer::from_file(folder.path().join("none")), Err(Error::Io { .. })));
}
