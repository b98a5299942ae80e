//! Where a cost table is from. Its rows alone do not tell; the file beside them does.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::contract::Contract;
use super::trace::Manifest;
use crate::device::MeasuredOn;
use crate::{Error, Result, files};

/// A deployment that is not at hand, as `cost/profile.json` of a run tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// In words.
    pub deployment: String,
    /// As contracts name it.
    pub device: String,
    /// Of the table, and how many of them are estimates.
    pub times: usize,
    pub estimates: usize,
}

/// Who measured a cost table, or for what it was estimated.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// This program, in a run.
    Here(MeasuredOn),
    /// A run of a deployment that is not at hand.
    Elsewhere(Elsewhere),
    /// Traces of vLLM, on a device as contracts name it.
    Traces { device: String },
}

impl Origin {
    /// Of the table in a file: `None` where nothing beside it tells.
    ///
    /// # Errors
    /// [`Error::Input`] naming a file beside it that is damaged.
    pub fn of(table: &Path) -> Result<Option<Origin>> {
        let beside = |name: &str| Some(files::parent(table).join(name)).filter(|path| path.is_file());
        if let Some(path) = beside("profile.json") {
            return Origin::of_profile(&path).map(Some);
        }
        let manifest = beside("manifest.json").map(|path| Manifest::from_file(&path)).transpose()?;
        Ok(manifest.map(|manifest| Origin::Traces { device: manifest.device }))
    }

    /// As a run's `cost/profile.json` tells it.
    ///
    /// # Errors
    /// [`Error::Input`] where it is none.
    pub fn of_profile(path: &Path) -> Result<Origin> {
        #[derive(Deserialize)]
        struct Here {
            /// Before it was told, all was measured on the CPU.
            #[serde(default)]
            measured_on: MeasuredOn,
        }
        let expected = "whole models as they were measured, or a deployment";
        let value: serde_json::Value = files::read_json(path, expected)?;
        let has = |key: &str| value.get(key).is_some();
        let (is_elsewhere, is_here) = (has("deployment"), has("parent") || has("measured_on"));
        let fault = |error: serde_json::Error| Error::input(path, "file", error.to_string(), expected);
        match is_elsewhere {
            true => serde_json::from_value(value).map(Origin::Elsewhere).map_err(fault),
            false if is_here => {
                serde_json::from_value(value).map(|here: Here| Origin::Here(here.measured_on)).map_err(fault)
            }
            false => Err(Error::input(path, "file", "neither", expected)),
        }
    }

    /// Refuses the table in a file where what is beside it tells another deployment than the contract's.
    ///
    /// # Errors
    /// [`Error::Input`] naming both.
    pub fn check(table: &Path, contract: &Contract) -> Result<()> {
        let Some(origin) = Origin::of(table)? else { return Ok(()) };
        let device = contract.device.name();
        let is_meant = match &origin {
            Origin::Here(_) => contract.is_served_here(),
            Origin::Elsewhere(Elsewhere { device: of, .. }) | Origin::Traces { device: of } => {
                !contract.is_served_here() && *of == device
            }
        };
        if is_meant {
            return Ok(());
        }
        let engine = if contract.is_served_here() { "this program's own engine" } else { "vLLM" };
        let expected = format!("one of {engine} on {device}, as {} asks for", contract.file.display());
        Err(Error::input(table, "device", format!("a cost table of {origin}"), expected))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Here(on) => write!(f, "{on}"),
            Origin::Elsewhere(Elsewhere { device, estimates, times, .. }) => {
                write!(f, "{device}, {estimates} of {times} times estimates")
            }
            Origin::Traces { device } => f.write_str(device),
        }
    }
}
