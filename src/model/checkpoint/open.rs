//! Finding a checkpoint's files.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::header::{InOrder, MappedFile};
use super::{INDEX_FILE, SINGLE_FILE, header};
use crate::model::config::Config;
use crate::{Error, Result, files};

/// An open checkpoint: its configuration and its mapped files, whose headers (and the index) hold. The tensors' names
/// and values are looked at by [`Checkpoint::load`].
#[derive(Debug)]
pub struct Checkpoint {
    pub dir: PathBuf,
    pub config: Config,
    pub(super) files: Vec<MappedFile>,
}

impl Checkpoint {
    /// Opens the folder `dir`: `config.json` with `model.safetensors`, or with `model.safetensors.index.json` and the
    /// shards that it names.
    pub fn open(dir: &Path) -> Result<Checkpoint> {
        if dir.is_file() {
            return Err(Error::input(dir, "model", "a file", "a checkpoint's folder: config.json and weights"));
        }
        let config = Config::from_file(&dir.join("config.json"))?;
        let files = open_files(dir)?.ok_or_else(|| {
            let expected = format!("{SINGLE_FILE} or {INDEX_FILE}");
            Error::input(dir, "weights", "neither file", expected)
        })?;
        Ok(Checkpoint { dir: dir.to_path_buf(), config, files })
    }
}

/// The mapped weight files; `None` where there are none.
pub fn open_files(dir: &Path) -> Result<Option<Vec<MappedFile>>> {
    let (single, index) = (dir.join(SINGLE_FILE), dir.join(INDEX_FILE));
    match (single.is_file(), index.is_file()) {
        (true, true) => {
            Err(Error::input(dir, "weights", format!("both {SINGLE_FILE} and {INDEX_FILE}"), "one of them"))
        }
        (true, false) => Ok(Some(vec![header::open(&single)?])),
        (false, true) => open_shards(dir, &index).map(Some),
        (false, false) => Ok(None),
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: InOrder<String>,
}

fn open_shards(dir: &Path, index: &Path) -> Result<Vec<MappedFile>> {
    let text = files::read_text(index)?;
    let Index { weight_map: InOrder(pairs) } = serde_json::from_str(&text)
        .map_err(|error| Error::input(index, "weight_map", error.to_string(), "an object from tensors to files"))?;
    let mut listed = HashMap::new();
    for (tensor, file) in &pairs {
        if listed.insert(tensor.as_str(), file.as_str()).is_some() {
            return Err(Error::input(index, tensor, "the name twice", "each tensor once"));
        }
        let mut parts = Path::new(file).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(Error::input(index, tensor, format!("the path {file:?}"), "the name of a file in this folder"));
        }
        if !dir.join(file).is_file() {
            return Err(Error::input(index, tensor, format!("{file}, which is not there"), "a file in this folder"));
        }
    }
    let names: BTreeSet<&str> = pairs.iter().map(|(_, file)| file.as_str()).collect();
    let shards: Vec<MappedFile> = names.iter().map(|name| header::open(&dir.join(name))).collect::<Result<_>>()?;
    check_index(index, &listed, &names, &shards)?;
    Ok(shards)
}

/// Every tensor lies in exactly the shard that the index says.
fn check_index(
    index: &Path,
    listed: &HashMap<&str, &str>,
    names: &BTreeSet<&str>,
    shards: &[MappedFile],
) -> Result<()> {
    let mut found: HashMap<&str, &str> = HashMap::new();
    for (shard, name) in shards.iter().zip(names) {
        for entry in &shard.entries {
            if let Some(other) = found.insert(&entry.name, name) {
                return Err(Error::input(&shard.path, &entry.name, format!("it also in {other}"), "each tensor once"));
            }
            if !listed.contains_key(entry.name.as_str()) {
                return Err(Error::input(
                    &shard.path,
                    &entry.name,
                    "a tensor that the index does not list",
                    "none such",
                ));
            }
        }
    }
    let mut listed: Vec<_> = listed.iter().collect();
    listed.sort();
    for (tensor, file) in listed {
        match found.get(tensor) {
            Some(place) if place == file => {}
            Some(place) => {
                return Err(Error::input(index, *tensor, *file, format!("{place}, where it lies")));
            }
            None => {
                return Err(Error::input(index, *tensor, format!("{file}, which lacks it"), "the shard that holds it"));
            }
        }
    }
    Ok(())
}
