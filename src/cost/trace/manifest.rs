//! `manifest.json`: what a folder of traces is about.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::PlanOptions;
use crate::cost::contract::Contract;
use crate::cost::table::part_name;
use crate::model::Config;
use crate::model::config::Layer;
use crate::{Error, Result, files, run};

/// The version of the folder's form.
const FORMAT: u32 = 1;

/// A short model to be traced.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedModel {
    pub name: String,
    pub hidden_size: usize,
    /// Those measured here first come after the ones that every model has.
    pub layers: Vec<Layer>,
    /// How many configurations no model before it has.
    pub fresh: usize,
}

impl TracedModel {
    /// Its configuration, a model like `parent`.
    pub fn config(&self, parent: &Config) -> Config {
        Config { hidden_size: self.hidden_size, layers: self.layers.clone(), mtp: None, ..parent.clone() }
    }
}

/// The plan's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Of the contract and all models.
    pub digest: String,
    pub device: String,
    pub engine: String,
    pub starts: usize,
    pub models: Vec<ManifestModel>,
}

/// One model of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestModel {
    pub name: String,
    pub hidden_size: usize,
    /// The table's names of its layers, in order.
    pub layers: Vec<String>,
}

impl Manifest {
    pub fn new(
        models: &[TracedModel],
        contract: &Contract,
        options: &PlanOptions,
        contract_digest: String,
    ) -> Manifest {
        let entry = |model: &TracedModel| ManifestModel {
            name: model.name.clone(),
            hidden_size: model.hidden_size,
            layers: model.layers.iter().map(part_name).collect(),
        };
        let models: Vec<ManifestModel> = models.iter().map(entry).collect();
        let text = format!("{FORMAT} {contract_digest} {models:?}");
        Manifest {
            format: FORMAT,
            digest: run::digest_bytes(text.as_bytes()),
            device: contract.device.name(),
            engine: contract.vllm().map_or_else(|_| String::new(), |vllm| format!("vllm {}", vllm.version)),
            starts: options.starts,
            models,
        }
    }

    /// # Errors
    /// [`Error::Input`] where it is no manifest or of another form.
    pub fn from_file(path: &Path) -> Result<Manifest> {
        let manifest: Manifest = files::read_json(path, "a manifest of profile plan")?;
        if manifest.format != FORMAT {
            return Err(Error::input(path, "format", manifest.format.to_string(), format!("{FORMAT}: plan it again")));
        }
        Ok(manifest)
    }
}
