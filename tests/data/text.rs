//! Documents and records from files; errors name file, line and key.

use autocompress::Error;
use autocompress::data::text::{Record, Records, Separation, documents, read_text};

use crate::common::file;

#[test]
fn text_files_are_split_by_choice() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "a.txt", "\n\none\ntwo\r\n\r\n  \nthree\n");
    assert_eq!(read_text(&path, Separation::File).unwrap(), ["\n\none\ntwo\r\n\r\n  \nthree\n"]);
    assert_eq!(read_text(&path, Separation::BlankLine).unwrap(), ["one\ntwo", "three"]);
    for empty in ["", " \n\n", "\u{feff}"] {
        let path = file(folder.path(), "empty.txt", empty);
        for separation in [Separation::File, Separation::BlankLine] {
            let message = read_text(&path, separation).unwrap_err().to_string();
            let expected = format!("{}: whole file: found no text, expected at least one document", path.display());
            assert_eq!(message, expected);
        }
    }
    let path = file(folder.path(), "latin.txt", b"caf\xe9");
    let message = read_text(&path, Separation::File).unwrap_err().to_string();
    assert_eq!(message, format!("{}: byte 3: found byte 0xe9, expected UTF-8 text", path.display()));
    assert!(matches!(read_text(folder.path().join("none"), Separation::File), Err(Error::Io { .. })));
}

#[test]
fn records_of_three_kinds_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let content = r#"{"text": "é", "id": 3}

        {"prompt": "1+1=", "answer": "2"}
        {"prompt": "sky?", "choices": ["red", "blue"], "answer": 1}"#;
    let path = file(folder.path(), "a.jsonl", content);
    let records: Vec<Record> = Records::open(&path).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(
        records,
        [
            Record::Text("é".into()),
            Record::Completion { prompt: "1+1=".into(), answer: "2".into() },
            Record::Choice { prompt: "sky?".into(), choices: vec!["red".into(), "blue".into()], answer: 1 },
        ]
    );
    let message = documents(&path, Separation::File).unwrap_err().to_string();
    assert!(message.contains("line 4: choices: found a multiple-choice record"), "{message}");
    let path =
        file(folder.path(), "b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\"}\n{\"prompt\": \"b\", \"answer\": \"c\"}\n");
    assert_eq!(documents(&path, Separation::File).unwrap(), ["a", "bc"]);
}

#[test]
fn record_errors_name_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let choice = |rest: &str| format!(r#"{{"prompt": "p", "choices": {rest}}}"#);
    for (line, expected) in [
        (r#"{"text": 3}"#.into(), "line 2: text: found 3, expected a string"),
        (r#"{"text""#.into(), "line 2: found EOF while parsing"),
        ("[1]".into(), "line 2: found invalid type: sequence"),
        (r#"{"txt": "a", "b": 1}"#.into(), "line 2: found keys [txt, b], expected \"text\", or"),
        (r#"{"prompt": "a"}"#.into(), "line 2: answer: found no such key, expected a string"),
        (r#"{"prompt": null, "answer": "b"}"#.into(), "line 2: prompt: found null, expected a string"),
        (r#"{"prompt": "a", "answer": ""}"#.into(), "line 2: answer: found an empty string, expected"),
        (choice(r#"["a"], "answer": 0"#), "line 2: choices: found [\"a\"], expected a list of at least two"),
        (choice(r#""ab", "answer": 0"#), "line 2: choices: found \"ab\", expected a list of at least two"),
        (choice(r#"["a", 4], "answer": 0"#), "line 2: choices[1]: found 4, expected a string with text"),
        (choice(r#"["a", "b"], "answer": 2"#), "line 2: answer: found 2, expected an index from 0 to 1"),
        (choice(r#"["a", "b"], "answer": "b""#), "line 2: answer: found \"b\", expected an index from 0 to 1"),
        (choice(r#"["a", "b"]"#), "line 2: answer: found no such key, expected an index from 0 to 1"),
    ] {
        let path = file(folder.path(), "a.jsonl", format!("{{\"text\": \"fine\"}}\n{line}\n"));
        let error = documents(&path, Separation::File).unwrap_err();
        assert!(matches!(error, Error::Input { .. }));
        let expected = format!("{}: {expected}", path.display());
        assert!(error.to_string().starts_with(&expected), "{error}\nis not\n{expected}");
    }
    let path = file(folder.path(), "a.jsonl", b"{\"text\": \"\xff\"}");
    let message = documents(&path, Separation::File).unwrap_err().to_string();
    assert!(message.ends_with("line 1: found byte 0xff, expected UTF-8 text"), "{message}");
    let path = file(folder.path(), "a.jsonl", "\n\n");
    assert!(documents(&path, Separation::File).unwrap_err().to_string().contains("found no text"));
}
