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
}

impl RunDir {
    /// True where `stage` was completed from inputs of this digest. A stage done from other inputs is not done.
    pub fn is_complete(&self, stage: &str, digest: &str) -> Result<bool> {
        let path = self.marker(stage)?;
        if !path.exists() {
            return Ok(false);
        }
        let text = files::read_text(&path)?;
        let marker: Marker = serde_json::from_str(&text).map_err(|error| {
            Error::input(&path, format!("line {}", error.line()), error.to_string(), "a stage's marker")
        })?;
        Ok(marker.stage == stage && marker.digest == digest)
    }

    /// Marks `stage` complete; its outputs must be in place by then.
    pub fn mark_complete(&self, stage: &str, digest: &str) -> Result<()> {
        let path = self.marker(stage)?;
        self.folder("stages")?;
        let marker = Marker { stage: stage.into(), digest: digest.into() };
        let text = serde_json::to_string(&marker).map_err(|error| Error::io(&path, "write")(error.into()))?;
        files::write_atomic(&path, |file| writeln!(file, "{text}"))
    }

    fn marker(&self, stage: &str) -> Result<PathBuf> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if stage.is_empty() || !stage.chars().all(fits) {
            return Err(Error::contract("run", "stage", stage, "letters, digits, - and _"));
        }
        Ok(self.path().join("stages").join(format!("{stage}.json")))
    }
}
