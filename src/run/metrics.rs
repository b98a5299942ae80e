//! Metrics as JSON lines, one for each step.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::{Error, Result, files};

/// An append-only file of JSON lines. Each is an object; those of a step hold it under `step`.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    file: File,
}

impl Metrics {
    /// Opens `path`, or makes it.
    ///
    /// What a resumed run will write again is cut: everything from the first line on whose `step` `keep_while` rejects.
    /// A last line that a kill left half-written is cut too; any other line that is no JSON object is an error.
    pub fn open(path: &Path, keep_while: impl Fn(u64) -> bool) -> Result<Metrics> {
        let mut file = files::open_to_change(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
        let kept = kept_length(path, &bytes, keep_while)?;
        file.set_len(kept).and_then(|()| file.seek(SeekFrom::Start(kept))).map_err(Error::io(path, "cut"))?;
        Ok(Metrics { path: path.to_path_buf(), file })
    }

    /// Appends one line, in one write. A number that is not finite is written as null, as JSON has no such number.
    pub fn write(&mut self, record: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(record).map_err(|error| Error::io(&self.path, "write")(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::io(&self.path, "write"))
    }

    /// The numbers under `key` in the last lines that have it, at most `count`, in the file's order. They are read back
    /// from the file, so that they are the same for the process that wrote them and for a later one.
    pub fn last(&self, key: &str, count: usize) -> Result<Vec<f64>> {
        let bytes = files::read(&self.path)?;
        let number = |line: &[u8]| serde_json::from_slice::<Value>(line).ok()?.get(key)?.as_f64();
        let mut last: Vec<f64> = bytes.rsplit(|&byte| byte == b'\n').filter_map(number).take(count).collect();
        last.reverse();
        Ok(last)
    }

    /// Waits until all lines are on the disk; do it before a checkpoint that says they are.
    pub fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(Error::io(&self.path, "sync"))
    }
}

/// All lines of a finished file.
///
/// # Errors
/// [`Error::Io`]; [`Error::Input`] naming the line that is no JSON.
pub fn read_lines(path: &Path) -> Result<Vec<Value>> {
    let line = |(i, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| Error::input(path, format!("line {}", i + 1), error.to_string(), "a JSON object"))
    };
    files::read_text(path)?.lines().enumerate().map(line).collect()
}

const LINES: &str = "one on every line; without this line a stopped run goes on";

/// Bytes of the lines to keep.
fn kept_length(path: &Path, bytes: &[u8], keep_while: impl Fn(u64) -> bool) -> Result<u64> {
    let mut kept = 0;
    for (i, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let is_last = kept + line.len() == bytes.len();
        match serde_json::from_slice::<Value>(line) {
            Ok(Value::Object(record)) if line.ends_with(b"\n") => match record.get("step").and_then(Value::as_u64) {
                Some(step) if !keep_while(step) => break,
                _ => kept += line.len(),
            },
            _ if is_last => break,
            _ => return Err(Error::input(path, format!("line {}", i + 1), "no JSON object", LINES)),
        }
    }
    Ok(kept as u64)
}
