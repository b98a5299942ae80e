//! Typed reading of JSON keys, with errors that name the file and the key.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{Error, Result};

/// Larger than any model's size, and small enough that sums of products of two fit in 64 bits.
pub const LARGEST: usize = 1 << 28;

/// A JSON object, its file, and its place in the file.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    pub file: &'a Path,
    pub map: &'a Map<String, Value>,
    /// Prefix of key names in errors, such as `block_configs[3].`; empty at the top.
    pub within: &'a str,
}

impl<'a> Keys<'a> {
    /// The first of `names` that is there and not null.
    pub fn get(&self, names: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        names.iter().find_map(|&name| match self.map.get(name) {
            None | Some(Value::Null) => None,
            Some(value) => Some((name, value)),
        })
    }

    pub fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    pub fn error(&self, key: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
        Error::input(self.file, format!("{}{key}", self.within), found, expected)
    }

    /// A size of at least 1.
    pub fn size(&self, names: &[&'static str]) -> Result<usize> {
        self.optional_size(names)?
            .ok_or_else(|| self.error(&names.join(" or "), "no such key", "a positive whole number"))
    }

    pub fn optional_size(&self, names: &[&'static str]) -> Result<Option<usize>> {
        match self.count(names)? {
            Some(0) => Err(self.error(self.get(names).map_or(names[0], |found| found.0), "0", "at least 1")),
            size => Ok(size),
        }
    }

    /// A number of at least 0; `None` where it is missing or null.
    pub fn count(&self, names: &[&'static str]) -> Result<Option<usize>> {
        let Some((name, value)) = self.get(names) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if number <= LARGEST as u64 => Ok(Some(number as usize)),
            _ => Err(self.error(name, show(value), format!("a whole number from 0 to {LARGEST}"))),
        }
    }

    pub fn flag(&self, names: &[&'static str], default: bool) -> Result<bool> {
        match self.get(names) {
            None => Ok(default),
            Some((_, Value::Bool(flag))) => Ok(*flag),
            Some((name, value)) => Err(self.error(name, show(value), "true or false")),
        }
    }

    /// A finite number.
    pub fn number(&self, names: &[&'static str], default: f32) -> Result<f32> {
        let Some((name, value)) = self.get(names) else { return Ok(default) };
        match float(value) {
            Some(number) if number.is_finite() => Ok(number),
            _ => Err(self.error(name, show(value), "a finite number")),
        }
    }

    pub fn text(&self, names: &[&'static str]) -> Result<Option<&'a str>> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((name, value)) => Err(self.error(name, show(value), "a text")),
        }
    }

    pub fn list(&self, names: &[&'static str]) -> Result<Option<(&'static str, &'a [Value])>> {
        match self.get(names) {
            None => Ok(None),
            Some((name, Value::Array(list))) => Ok(Some((name, list))),
            Some((name, value)) => Err(self.error(name, show(value), "a list")),
        }
    }

    /// A pair of numbers, lower then upper; either may be infinite.
    pub fn range(&self, names: &[&'static str], default: (f32, f32)) -> Result<(f32, f32)> {
        let Some((name, list)) = self.list(names)? else { return Ok(default) };
        let ends: Option<Vec<f32>> = list.iter().map(float).collect();
        match ends.as_deref() {
            Some(&[low, high]) => Ok((low, high)),
            _ => Err(self.error(name, show(&list.into()), "two numbers")),
        }
    }

    /// Token ids: a number, a list of numbers, or null.
    pub fn ids(&self, name: &'static str) -> Result<Vec<u32>> {
        let one = |value: &Value| {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| self.error(name, show(value), "a token id"))
        };
        match self.get(&[name]) {
            None => Ok(Vec::new()),
            Some((_, Value::Array(list))) => list.iter().map(one).collect(),
            Some((_, value)) => Ok(vec![one(value)?]),
        }
    }

    pub fn id(&self, name: &'static str) -> Result<Option<u32>> {
        match self.ids(name)?[..] {
            [] => Ok(None),
            [id] => Ok(Some(id)),
            _ => Err(self.error(name, "several", "one token id")),
        }
    }
}

/// A number, or the forms that infinities take in JSON: `{"__float__": "Infinity"}` (transformers) and `"Infinity"`.
fn float(value: &Value) -> Option<f32> {
    let text = match value {
        Value::Number(number) => return number.as_f64().map(|number| number as f32),
        Value::String(text) => text,
        Value::Object(map) if map.len() == 1 => map.get("__float__")?.as_str()?,
        _ => return None,
    };
    match text {
        "Infinity" => Some(f32::INFINITY),
        "-Infinity" => Some(f32::NEG_INFINITY),
        _ => None,
    }
}

/// A value for an error message, cut to a readable length.
pub fn show(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
