//! Checkpoints of a job in progress, newest last, the oldest removed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::digest_file;
use crate::{Error, Result, files};

const MANIFEST: &str = "manifest.json";

/// The checkpoints in one folder: `step-00000123/`, each a folder of files that the job chooses, and a manifest of their
/// sizes and digests.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCheckpoint {
    pub step: u64,
    pub path: PathBuf,
}

/// The newest checkpoint that is whole, and what was skipped on the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latest {
    pub found: Option<FoundCheckpoint>,
    /// Newer folders that are not whole, each with the reason.
    pub skipped: Vec<(PathBuf, String)>,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    step: u64,
    files: Vec<ManifestFile>,
}

#[derive(Serialize, Deserialize)]
struct ManifestFile {
    name: String,
    bytes: u64,
    sha256: String,
}

impl Checkpoints {
    /// Checkpoints in `folder`, which is made with the first one. At least the last is kept.
    pub fn new(folder: &Path, keep: usize) -> Checkpoints {
        Checkpoints { folder: folder.to_path_buf(), keep: keep.max(1) }
    }

    /// Saves the checkpoint after `step`, atomically: `write` puts its files into the folder it is given.
    ///
    /// Then removes all but the last few, and those of later steps (left from before a resume at an earlier one).
    pub fn save(&self, step: u64, write: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.folder.join(format!("step-{step:08}"));
        files::replace_dir(
            &path,
            |_| false,
            |temporary| {
                write(temporary)?;
                write_manifest(step, temporary)
            },
        )?;
        let mut steps = self.list()?;
        let later = steps.split_off(steps.partition_point(|found| found.step <= step));
        let outdated = steps.len().saturating_sub(self.keep);
        for found in later.iter().chain(&steps[..outdated]) {
            files::remove_dir(&found.path)?;
        }
        Ok(path)
    }

    /// The newest whole checkpoint. One that is cut short, changed or without a manifest is skipped, with a warning.
    pub fn latest(&self) -> Result<Latest> {
        let mut skipped = Vec::new();
        for found in self.list()?.into_iter().rev() {
            match verify(&found) {
                Ok(()) => return Ok(Latest { found: Some(found), skipped }),
                Err(error) => {
                    tracing::warn!("checkpoint {} is skipped: {error}", found.path.display());
                    skipped.push((found.path, error.to_string()));
                }
            }
        }
        Ok(Latest { found: None, skipped })
    }

    /// All folders of checkpoints by step, whole or not.
    fn list(&self) -> Result<Vec<FoundCheckpoint>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&self.folder, "read")(error)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::io(&self.folder, "read"))?;
            let step = entry.file_name().to_str().and_then(|name| name.strip_prefix("step-")?.parse().ok());
            all.extend(step.map(|step| FoundCheckpoint { step, path: entry.path() }));
        }
        all.sort_by_key(|found| found.step);
        Ok(all)
    }
}

fn write_manifest(step: u64, folder: &Path) -> Result<()> {
    let mut names = Vec::new();
    list_files(folder, "", &mut names)?;
    names.sort();
    let describe = |name: String| {
        let path = folder.join(&name);
        let bytes = fs::metadata(&path).map_err(Error::io(&path, "read"))?.len();
        Ok(ManifestFile { sha256: digest_file(&path)?, bytes, name })
    };
    let manifest = Manifest { step, files: names.into_iter().map(describe).collect::<Result<_>>()? };
    files::write_json(&folder.join(MANIFEST), &manifest)
}

/// Names of all files below `folder`, with `/` between parts.
pub(super) fn list_files(folder: &Path, within: &str, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "read"))? {
        let entry = entry.map_err(Error::io(folder, "read"))?;
        let name = format!("{within}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            list_files(&entry.path(), &format!("{name}/"), names)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
}

fn verify(found: &FoundCheckpoint) -> Result<()> {
    let path = found.path.join(MANIFEST);
    let manifest: Manifest = files::read_json(&path, "a manifest")?;
    if manifest.step != found.step {
        return Err(Error::input(&path, "step", manifest.step.to_string(), found.step.to_string()));
    }
    for file in &manifest.files {
        let path = found.path.join(&file.name);
        let bytes = fs::metadata(&path).map_err(Error::io(&path, "read"))?.len();
        if bytes != file.bytes {
            return Err(Error::input(&path, "file", format!("{bytes} bytes"), file.bytes.to_string()));
        }
        let digest = digest_file(&path)?;
        if digest != file.sha256 {
            return Err(Error::input(&path, "file", format!("digest {digest}"), &file.sha256));
        }
    }
    Ok(())
}
