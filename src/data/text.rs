//! Documents and evaluation records from plain text and JSONL files.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{Error, Result, files};

/// What a document is in a plain text file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Separation {
    /// The whole file.
    #[default]
    File,
    /// A block of lines between blank ones.
    BlankLine,
}

/// One line of a JSONL file. Other keys on the line are left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// `{"text": …}`.
    Text(String),
    /// `{"prompt": …, "answer": "…"}`.
    Completion { prompt: String, answer: String },
    /// `{"prompt": …, "choices": […], "answer": index}`, the index from 0.
    Choice { prompt: String, choices: Vec<String>, answer: usize },
}

/// The documents of a plain text file, without empty ones.
///
/// # Errors
/// [`Error::Io`] where it cannot be read; [`Error::Input`] where it is not UTF-8, or holds no text.
pub fn read_text(path: impl AsRef<Path>, separation: Separation) -> Result<Vec<String>> {
    let path = path.as_ref();
    let bytes = files::read_input(path)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let found = format!("byte {:#04x}", error.as_bytes()[at]);
        Error::input(path, format!("byte {at}"), found, "UTF-8 text")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(Error::input(path, "whole file", "no text", "at least one document"));
    }
    Ok(match separation {
        Separation::File => vec![text.to_owned()],
        Separation::BlankLine => blocks(text),
    })
}

fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block = String::new();
    for line in text.lines() {
        if !line.trim().is_empty() {
            if !block.is_empty() {
                block.push('\n');
            }
            block.push_str(line);
        } else if !block.is_empty() {
            blocks.push(std::mem::take(&mut block));
        }
    }
    if !block.is_empty() {
        blocks.push(block);
    }
    blocks
}

/// The records of a JSONL file one by one; blank lines are passed over.
pub struct Records {
    path: PathBuf,
    reader: BufReader<File>,
    /// From 1, of the line last read.
    line: usize,
}

impl Records {
    /// # Errors
    /// [`Error::Io`] where the file cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let file = files::open_input(&path)?;
        Ok(Self { reader: BufReader::new(file), path, line: 0 })
    }

    /// The number of the line last read, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    fn error(&self, key: &str, found: impl Into<String>, expected: &str) -> Error {
        let line = self.line;
        let at = if key.is_empty() { format!("line {line}") } else { format!("line {line}: {key}") };
        Error::input(&self.path, at, found, expected)
    }

    fn parse(&self, line: &[u8]) -> Result<Record> {
        let text = std::str::from_utf8(line)
            .map_err(|error| self.error("", format!("byte {:#04x}", line[error.valid_up_to()]), "UTF-8 text"))?;
        let object: Map<String, Value> = serde_json::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|error| self.error("", error.to_string(), "a JSON object"))?;
        if object.contains_key("text") {
            return Ok(Record::Text(self.string(&object, "text")?));
        }
        if !object.contains_key("prompt") {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            let expected = "\"text\", or \"prompt\" and \"answer\"";
            return Err(self.error("", format!("keys [{}]", keys.join(", ")), expected));
        }
        let prompt = self.string(&object, "prompt")?;
        if object.contains_key("choices") {
            let (choices, answer) = self.choices(&object)?;
            return Ok(Record::Choice { prompt, choices, answer });
        }
        let answer = self.string(&object, "answer")?;
        if answer.is_empty() {
            return Err(self.error("answer", "an empty string", "text to be predicted"));
        }
        Ok(Record::Completion { prompt, answer })
    }

    fn string(&self, object: &Map<String, Value>, key: &str) -> Result<String> {
        match object.get(key) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(self.error(key, brief(other), "a string")),
            None => Err(self.error(key, "no such key", "a string")),
        }
    }

    fn choices(&self, object: &Map<String, Value>) -> Result<(Vec<String>, usize)> {
        let list = object.get("choices").and_then(Value::as_array);
        let Some(list) = list.filter(|list| list.len() >= 2) else {
            return Err(self.error("choices", brief(&object["choices"]), "a list of at least two strings"));
        };
        let mut choices = Vec::with_capacity(list.len());
        for (index, choice) in list.iter().enumerate() {
            match choice.as_str().filter(|text| !text.is_empty()) {
                Some(text) => choices.push(text.to_owned()),
                None => return Err(self.error(&format!("choices[{index}]"), brief(choice), "a string with text")),
            }
        }
        let answer = object.get("answer").and_then(Value::as_u64);
        match answer.and_then(|answer| usize::try_from(answer).ok()).filter(|&answer| answer < choices.len()) {
            Some(answer) => Ok((choices, answer)),
            None => {
                let found = object.get("answer").map_or("no such key".into(), brief);
                Err(self.error("answer", found, &format!("an index from 0 to {}", choices.len() - 1)))
            }
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        loop {
            line.clear();
            match self.reader.read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(_) => self.line += 1,
                Err(error) => return Some(Err(Error::io(&self.path, "read")(error))),
            }
            if !line.trim_ascii().is_empty() {
                return Some(self.parse(&line));
            }
        }
    }
}

/// A value in an error message: whole where short.
fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The documents of a file as texts to train on: JSONL by its ending (a completion is its prompt and answer in a row),
/// plain text otherwise.
///
/// # Errors
/// As [`read_text`] and [`Records`]; [`Error::Input`] where a JSONL file has no text, or a multiple-choice record.
pub fn documents(path: impl AsRef<Path>, separation: Separation) -> Result<Vec<String>> {
    let path = path.as_ref();
    if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("jsonl")) {
        return read_text(path, separation);
    }
    let mut records = Records::open(path)?;
    let mut documents = Vec::new();
    while let Some(record) = records.next() {
        let document = match record? {
            Record::Text(text) => text,
            Record::Completion { prompt, answer } => prompt + &answer,
            Record::Choice { .. } => {
                return Err(records.error("choices", "a multiple-choice record", "\"text\" to train on"));
            }
        };
        if !document.trim().is_empty() {
            documents.push(document);
        }
    }
    if documents.is_empty() {
        return Err(Error::input(path, "whole file", "no text", "at least one document"));
    }
    Ok(documents)
}
