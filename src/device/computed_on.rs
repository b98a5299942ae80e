//! What the bits of a training belong to.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Place, Precision};
use crate::{Error, Result};

/// The device that a training computes on, and what its products are in. Begun on one and resumed on another, it would end
/// with the bits of neither.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputedOn {
    /// `cpu`, or the GPU's name.
    pub device: String,
    pub precision: Precision,
}

impl ComputedOn {
    /// Of a training at `place` (`None`: on the CPU) that asks for `precision`.
    pub fn of(place: Option<&Place>, precision: Option<Precision>) -> ComputedOn {
        match place {
            Some(place) => {
                ComputedOn { device: place.gpu.name.clone(), precision: precision.unwrap_or(place.precision) }
            }
            // It has no bf16.
            None => {
                let precision = precision.filter(|precision| *precision != Precision::Bf16);
                ComputedOn { device: "cpu".into(), precision: precision.unwrap_or(Precision::F32) }
            }
        }
    }

    /// Refuses to go on here with what `file` says was begun elsewhere.
    ///
    /// # Errors
    /// [`Error::Input`] naming both, and the `folder` without which the work begins again.
    pub fn check_begun(&self, begun: &ComputedOn, file: &Path, folder: &Path) -> Result<()> {
        if begun == self {
            return Ok(());
        }
        let expected = format!(
            "{self}, where this would go on: give the --device and --precision that it began with, or remove {} to begin again",
            folder.display()
        );
        Err(Error::input(file, "computed_on", format!("work begun on {begun}"), expected))
    }
}

impl fmt::Display for ComputedOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.device, self.precision.name())
    }
}
