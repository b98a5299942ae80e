//! TOML files of a user: what is wrong with one is said with its line and key.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::{Error, Result, files};

/// Reads the TOML file `path`; `whole` says what it should be, for faults that have no better word for it.
///
/// # Errors
/// [`Error::Io`] where it cannot be read, [`Error::Input`] where it is not UTF-8, no TOML, or lacks a key, has an unknown
/// one (the known ones are named, the nearest first) or one of another type.
pub fn read<T: DeserializeOwned>(path: &Path, whole: &str) -> Result<T> {
    parse(path, &files::read_input_text(path)?, whole)
}

/// Parses `text`; `path` is for error messages only.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str, whole: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        fault(path, text, start, error.message(), whole)
    })
}

/// The fault that the parser tells in `message` of the place `start`.
fn fault(path: &Path, text: &str, start: usize, message: &str, whole: &str) -> Error {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let line = text.get(..start).unwrap_or_default().matches('\n').count();
    // The place of a fault inside a tagged table is the table's beginning, and the message has the key.
    let line = quoted(message).and_then(|key| line_of_key(&lines, line, key)).unwrap_or(line);
    let at = match lines.get(line) {
        // A key that the whole file lacks is told of its first line.
        Some(content) if content.starts_with('#') => "file".to_owned(),
        Some(content) if !content.is_empty() => format!("line {}, `{}`", line + 1, brief(content)),
        _ => format!("line {}", line + 1),
    };
    let message = message.trim_end().replace('\n', ", ");
    let (found, expected) = match (message.split_once(", expected "), message.strip_prefix("wanted ")) {
        (Some(parts), _) => parts,
        (None, Some(wanted)) => ("a value of another type", wanted),
        (None, None) => (&*message, whole),
    };
    match quoted(found).filter(|_| found.starts_with("unknown")).and_then(|name| nearest(name, expected)) {
        Some(near) => Error::input(path, at, found, format!("{expected}: did you mean `{near}`?")),
        None => Error::input(path, at, found, expected),
    }
}

/// Of the names in backticks, the one that a slip of the pen turns into `name`.
fn nearest<'t>(name: &str, names: &'t str) -> Option<&'t str> {
    let near = |known: &&str| strsim::damerau_levenshtein(name, known);
    let known = names.split('`').skip(1).step_by(2).min_by_key(near)?;
    (near(&known) <= 1 + name.chars().count() / 3).then_some(known)
}

/// The first word in backticks, up to its first dot.
fn quoted(message: &str) -> Option<&str> {
    message.split('`').nth(1)?.split('.').next()
}

/// The line that sets `key` in the table whose header is at `header`.
fn line_of_key(lines: &[&str], header: usize, key: &str) -> Option<usize> {
    lines.get(header).filter(|line| line.starts_with('['))?;
    let table = lines.iter().enumerate().skip(header + 1).take_while(|(_, line)| !line.starts_with('['));
    let sets = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(['=', '.']));
    table.into_iter().find(|(_, line)| sets(line)).map(|(number, _)| number)
}

fn brief(line: &str) -> String {
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
