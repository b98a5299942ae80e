//! Which stages are done, and for what.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::RunDir;
use crate::{Error, Result, files};

#[derive(Serialize, Deserialize)]
struct Marker {
    stage: String,
    /// Of all that the stage read.
    digest: String,
    /// `None` until the stage is complete.
    seconds: Option<f64>,
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
            _ => self.write_marker(stage, digest, None)?,
        }
        Ok(true)
    }

    /// Marks `stage` complete, `seconds` of work after it was begun or resumed; its outputs must be in place by then.
    pub fn mark_complete(&self, stage: &str, digest: &str, seconds: f64) -> Result<()> {
        self.write_marker(stage, digest, Some(seconds))
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
        let path = self.marker_path(stage)?;
        if !path.exists() {
            return Ok(None);
        }
        let marker: Marker = files::read_json(&path, "a stage's marker")?;
        Ok((marker.stage == stage).then_some(marker))
    }

    fn write_marker(&self, stage: &str, digest: &str, seconds: Option<f64>) -> Result<()> {
        let path = self.marker_path(stage)?;
        self.folder("stages")?;
        files::write_json(&path, &Marker { stage: stage.into(), digest: digest.into(), seconds })
    }

    fn marker_path(&self, stage: &str) -> Result<PathBuf> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if stage.is_empty() || !stage.chars().all(fits) {
            return Err(Error::contract("run", "stage", stage, "letters, digits, - and _"));
        }
        Ok(self.path().join("stages").join(format!("{stage}.json")))
    }
}
