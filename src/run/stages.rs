//! Which stages are done, for what, and what they left.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::checkpoints::list_files;
use super::{RunDir, digest_file};
use crate::{Error, Result, files};

/// Bytes up to which a file's content is always read to see whether it is still what a stage left. Of larger ones, weights,
/// size and time of the last change are enough where both are the same.
const ALWAYS_READ: u64 = 64 << 20;

/// A model's card, which later stages write again and people edit: no stage reads it.
const REWRITTEN: &str = "/README.md";

#[derive(Serialize, Deserialize)]
struct Marker {
    stage: String,
    /// Of all that the stage read.
    digest: String,
    /// `None` until the stage is complete.
    seconds: Option<f64>,
    /// What it left, by path in the run directory.
    #[serde(default)]
    files: BTreeMap<String, LeftFile>,
}

/// A file as a stage left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LeftFile {
    bytes: u64,
    /// Nanoseconds since 1970; `None` where the system does not tell.
    modified: Option<u64>,
    sha256: String,
}

impl RunDir {
    /// True where `stage` was completed from inputs of this digest. A stage done from other inputs is not done.
    pub fn is_complete(&self, stage: &str, digest: &str) -> Result<bool> {
        Ok(self.marker(stage)?.is_some_and(|marker| marker.digest == digest && marker.seconds.is_some()))
    }

    /// Marks `stage` begun from inputs of this digest. False, and nothing marked, where it had been begun from others: what
    /// it left belongs to them, and must go, then [`RunDir::forget`] it.
    pub fn begin(&self, stage: &str, digest: &str) -> Result<bool> {
        match self.marker(stage)? {
            Some(marker) if marker.digest != digest => return Ok(false),
            Some(marker) if marker.seconds.is_none() => {}
            _ => self.write_marker(stage, digest, None, BTreeMap::new())?,
        }
        Ok(true)
    }

    /// Marks `stage` complete, `seconds` of work after it was begun or resumed. `outputs`, files and folders in the run
    /// directory, must be in place by then: their digests are kept, but for models' cards.
    pub fn mark_complete(&self, stage: &str, digest: &str, seconds: f64, outputs: &[&str]) -> Result<()> {
        let mut files = BTreeMap::new();
        for output in outputs {
            let mut names = vec![(*output).to_owned()];
            if self.path().join(output).is_dir() {
                names.clear();
                list_files(&self.path().join(output), &format!("{output}/"), &mut names)?;
                names.retain(|name| !name.ends_with(REWRITTEN));
            }
            for name in names {
                let path = self.path().join(&name);
                let metadata = path.metadata().map_err(Error::io(&path, "read"))?;
                let (bytes, modified) = (metadata.len(), modified(&metadata));
                files.insert(name, LeftFile { bytes, modified, sha256: digest_file(&path)? });
            }
        }
        self.write_marker(stage, digest, Some(seconds), files)
    }

    /// The digests of what `stage` left, by path in the run directory; none unless it is complete.
    pub fn outputs(&self, stage: &str) -> Result<BTreeMap<String, String>> {
        let files = self.marker(stage)?.map(|marker| marker.files).unwrap_or_default();
        Ok(files.into_iter().map(|(name, file)| (name, file.sha256)).collect())
    }

    /// Refuses what is not as `stage` left it.
    ///
    /// # Errors
    /// [`Error::Input`] naming the first file that is missing, has another size or another content.
    pub fn verify(&self, stage: &str) -> Result<()> {
        verify(self.path(), stage).map(drop)
    }

    /// Forgets `stage`.
    pub fn forget(&self, stage: &str) -> Result<()> {
        let path = self.marker_path(stage)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&path, "remove")(error)),
            _ => Ok(()),
        }
    }

    /// What completing `stage` took.
    pub fn seconds(&self, stage: &str) -> Result<Option<f64>> {
        Ok(self.marker(stage)?.and_then(|marker| marker.seconds))
    }

    fn marker(&self, stage: &str) -> Result<Option<Marker>> {
        marker(self.path(), stage)
    }

    fn write_marker(
        &self,
        stage: &str,
        digest: &str,
        seconds: Option<f64>,
        files: BTreeMap<String, LeftFile>,
    ) -> Result<()> {
        let path = self.marker_path(stage)?;
        self.folder("stages")?;
        files::write_json(&path, &Marker { stage: stage.into(), digest: digest.into(), seconds, files })
    }

    fn marker_path(&self, stage: &str) -> Result<PathBuf> {
        marker_path(self.path(), stage)
    }
}

/// Refuses what is not as `stage` left it in the run directory `run`, which may be in use: of a program that reads alone.
/// Returns whether the stage is complete.
///
/// # Errors
/// [`Error::Input`] naming the first file that is missing, has another size or another content.
pub fn verify(run: &Path, stage: &str) -> Result<bool> {
    let Some(marker) = marker(run, stage)?.filter(|marker| marker.seconds.is_some()) else { return Ok(false) };
    for (name, left) in marker.files {
        let path = run.join(name);
        let fault = |found: String, expected: String| {
            Err(Error::input(&path, "file", found, format!("{expected}, as `{stage}` left it")))
        };
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return fault("no such file".into(), format!("{} bytes", left.bytes));
            }
            Err(error) => return Err(Error::io(&path, "read")(error)),
        };
        if metadata.len() != left.bytes {
            return fault(format!("{} bytes", metadata.len()), left.bytes.to_string());
        }
        let untouched = left.modified.is_some() && modified(&metadata) == left.modified;
        if left.bytes > ALWAYS_READ && untouched {
            continue;
        }
        let digest = digest_file(&path)?;
        if digest != left.sha256 {
            return fault(format!("digest {digest}"), left.sha256);
        }
    }
    Ok(true)
}

fn marker(run: &Path, stage: &str) -> Result<Option<Marker>> {
    let path = marker_path(run, stage)?;
    if !path.exists() {
        return Ok(None);
    }
    let marker: Marker = files::read_json(&path, "a stage's marker")?;
    Ok((marker.stage == stage).then_some(marker))
}

fn marker_path(run: &Path, stage: &str) -> Result<PathBuf> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if stage.is_empty() || !stage.chars().all(fits) {
        return Err(Error::contract("run", "stage", stage, "letters, digits, - and _"));
    }
    Ok(run.join("stages").join(format!("{stage}.json")))
}

fn modified(metadata: &Metadata) -> Option<u64> {
    u64::try_from(metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}
