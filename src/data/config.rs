//! A source of data as a user describes it.

use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::data::build::shards_in;
use crate::data::pack::{Documents, PackedSource, Part};
use crate::data::source::{Boundaries, Source};
use crate::data::tasks::{Split, TaskSource, TasksConfig};
use crate::data::text::{Separation, documents};
use crate::data::tokenizer::Tokenizer;
use crate::{Error, Result};

/// Where training sequences come from: the `[data]` table of a recipe.
///
/// ```toml
/// [data]
/// kind = "tasks"
/// copy = { weight = 2.0, max_length = 16 }
/// sort = { weight = 0 }
/// ```
///
/// ```toml
/// [data]
/// kind = "text"
/// paths = ["corpus.txt", "more.jsonl"]
/// separate_by = "blank_line"
/// tokenizer = "path/to/model"
/// ```
///
/// ```toml
/// [data]
/// kind = "shards"
/// paths = ["path/to/folder", "one.bin"]
/// documents = "joined"
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a run has one or two of these")]
pub enum DataConfig {
    Tasks(TasksConfig),
    Text(TextConfig),
    Shards(ShardsConfig),
}

/// Text and JSONL files, tokenized into memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    pub paths: Vec<PathBuf>,
    #[serde(default)]
    pub documents: Boundaries,
    /// What a document is in a plain text file.
    #[serde(default)]
    pub separate_by: Separation,
    /// `"bytes"`, a model's folder, or a `tokenizer.json`.
    #[serde(default = "bytes")]
    pub tokenizer: String,
}

fn bytes() -> String {
    "bytes".into()
}

/// Token shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardsConfig {
    /// Shards, and folders of which all `.bin` files are read.
    pub paths: Vec<PathBuf>,
    #[serde(default)]
    pub documents: Boundaries,
}

/// By hand, so that a fault is told with its key: what serde makes of a tagged enum forgets where it is.
impl<'de> Deserialize<'de> for DataConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = toml::Table::deserialize(deserializer)?;
        let kind = table.remove("kind").ok_or_else(|| D::Error::missing_field("kind"))?;
        let table = toml::Value::Table(table);
        let read = match kind.as_str() {
            Some("tasks") => TasksConfig::deserialize(table).map(Self::Tasks),
            Some("text") => TextConfig::deserialize(table).map(Self::Text),
            Some("shards") => ShardsConfig::deserialize(table).map(Self::Shards),
            _ => {
                return Err(D::Error::custom(format!(
                    "`kind`: {kind}, expected one of \"tasks\", \"text\", \"shards\""
                )));
            }
        };
        read.map_err(|error| {
            // The message, and on a second line "in `the.key`" where there is one.
            let text = error.to_string();
            let key = text.lines().nth(1).and_then(|line| line.strip_prefix("in "));
            D::Error::custom(key.map_or(error.message().into(), |key| format!("{key}: {}", error.message())))
        })
    }
}

impl Default for DataConfig {
    fn default() -> Self {
        Self::Tasks(TasksConfig::default())
    }
}

impl DataConfig {
    /// Opens the training data for a model of `vocab_size` tokens, reading and checking all of it.
    ///
    /// # Errors
    /// [`Error::Usage`] where a value is out of range: its key within the table, or "found …"; see [`Error::within_table`].
    /// [`Error::Io`] where a path cannot be read, [`Error::Input`] where a file is not what it must be or has an id outside
    /// the vocabulary.
    pub fn source(&self, vocab_size: usize) -> Result<Box<dyn Source>> {
        match self {
            Self::Tasks(tasks) => Ok(Box::new(task_source(tasks, Split::Train, vocab_size)?)),
            Self::Text(_) | Self::Shards(_) => Ok(Box::new(self.packed(vocab_size)?)),
        }
    }

    /// Opens data that all of a model's scores are taken on: the tasks' held-out examples, or everything in the files.
    ///
    /// # Errors
    /// As [`DataConfig::source`].
    pub fn held_out(&self, vocab_size: usize) -> Result<Box<dyn Source>> {
        match self {
            Self::Tasks(tasks) => Ok(Box::new(task_source(tasks, Split::HeldOut, vocab_size)?)),
            Self::Text(_) | Self::Shards(_) => self.source(vocab_size),
        }
    }

    /// Opens the data in two parts, the one to train on and the one to hold out; of text and shards see [`Part`].
    ///
    /// # Errors
    /// As [`DataConfig::source`]; [`Error::Usage`] too where there is too little to hold any of it out.
    pub fn split(&self, vocab_size: usize) -> Result<[Box<dyn Source>; 2]> {
        match self {
            Self::Tasks(_) => Ok([self.source(vocab_size)?, self.held_out(vocab_size)?]),
            Self::Text(_) | Self::Shards(_) => {
                let all = self.packed(vocab_size)?;
                Ok([Box::new(all.part(Part::Train)?), Box::new(all.part(Part::HeldOut)?)])
            }
        }
    }

    /// Text and shards.
    fn packed(&self, vocab_size: usize) -> Result<PackedSource> {
        match self {
            Self::Tasks(_) => unreachable!("tasks are made, not packed"),
            Self::Text(text) => PackedSource::from_documents(text.load(vocab_size)?, text.documents),
            Self::Shards(shards) => PackedSource::from_shards(&shards.files()?, vocab_size, shards.documents),
        }
    }

    /// The files that the data are read from; none for the built-in tasks.
    pub fn input_files(&self) -> Result<Vec<PathBuf>> {
        match self {
            Self::Tasks(_) => Ok(Vec::new()),
            Self::Text(text) => Ok(text.paths.iter().cloned().chain(Tokenizer::files(&text.tokenizer)).collect()),
            Self::Shards(shards) => shards.files(),
        }
    }

    /// Makes relative paths relative to `folder`, the one of the file that this configuration was read from.
    pub fn relative_to(mut self, folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        if let Self::Text(TextConfig { tokenizer, .. }) = &mut self
            && tokenizer != "bytes"
        {
            *tokenizer = folder.join(&tokenizer).to_string_lossy().into_owned();
        }
        if let Self::Text(TextConfig { paths, .. }) | Self::Shards(ShardsConfig { paths, .. }) = &mut self {
            // Joining an absolute path replaces the folder.
            paths.iter_mut().for_each(|path| *path = folder.join(&path));
        }
        self
    }
}

fn task_source(tasks: &TasksConfig, split: Split, vocab_size: usize) -> Result<TaskSource> {
    if vocab_size < 128 {
        let expected = "at least 128 for tasks in ASCII";
        return Err(Error::Usage(format!("found a vocabulary of {vocab_size}, expected {expected}")));
    }
    TaskSource::new(tasks.clone(), split)
}

impl TextConfig {
    fn load(&self, vocab_size: usize) -> Result<Documents> {
        check_paths(&self.paths)?;
        let tokenizer = Tokenizer::open(&self.tokenizer)?;
        let mut all = Documents::default();
        for path in &self.paths {
            for (number, document) in documents(path, self.separate_by)?.iter().enumerate() {
                let ids = tokenizer.encode_document(document)?;
                if let Some(at) = ids.iter().position(|&id| id as usize >= vocab_size) {
                    let place = format!("document {number}, token {at}");
                    let expected = format!("below the vocabulary size {vocab_size}");
                    return Err(Error::input(path, place, format!("id {}", ids[at]), expected));
                }
                all.push(&ids);
            }
        }
        Ok(all)
    }
}

impl ShardsConfig {
    /// The shards, folders replaced by what is in them.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        check_paths(&self.paths)?;
        let mut files = Vec::new();
        for path in &self.paths {
            if !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            let inside = shards_in(path)?;
            if inside.is_empty() {
                return Err(Error::input(path, "folder", "no .bin files", "at least one token shard"));
            }
            files.extend(inside);
        }
        Ok(files)
    }
}

fn check_paths(paths: &[PathBuf]) -> Result<()> {
    if paths.is_empty() {
        return Err(Error::Usage("paths: found an empty list, expected at least one path".into()));
    }
    Ok(())
}
