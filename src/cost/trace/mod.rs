//! Profiling a serving engine by traces: short models to serve under Nsight Systems, and the rows that its exports hold.
//!
//! [`write_plan`] writes a folder with models of random weights, a script that serves and traces them, and a manifest;
//! [`ingest`] reads the exports back into the table that the built-in engine's profile fills.

mod attribute;
mod events;
mod export;
mod graph;
mod ingest;
mod manifest;
mod models;
mod ranges;
mod script;
mod weights;

pub use attribute::{Step, TraceSummary, read_trace};
pub use ingest::{Ingested, ingest};
pub use manifest::{Manifest, TracedModel};
pub use models::traced_models;
pub use weights::{WeightFile, write_weights};

use std::path::Path;

use super::contract::Contract;
use super::vllm::PagedCaches;
use crate::supernet::SearchSpace;
use crate::{Error, Result, files, run};

/// What is written and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanOptions {
    /// Layers of one model.
    pub layers_per_model: usize,
    /// How often each is started.
    pub starts: usize,
    /// Whether weights are written; else the engine makes them up.
    pub weights: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions { layers_per_model: 10, starts: 3, weights: true }
    }
}

/// What [`write_plan`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PlanSummary {
    pub models: usize,
    /// Models whose files were there already.
    pub kept: usize,
    /// Rows of (d, layer configuration) that the traces will fill.
    pub configurations: usize,
    /// Of all weight files.
    pub weight_bytes: u64,
}

/// Writes the folder `out`: `manifest.json`, `contract.toml`, `run.sh` and `models/NAME/`. Called again, it keeps the models
/// that are complete.
///
/// # Errors
/// [`Error::Input`] where `out` holds another plan; [`Error::Usage`] where its file system has no room for the weights.
pub fn write_plan(space: &SearchSpace, contract: &Contract, options: &PlanOptions, out: &Path) -> Result<PlanSummary> {
    contract.vllm()?;
    files::check_folder_place(out)?;
    let models = traced_models(space, options.layers_per_model)?;
    let contract_text = files::read_text(&contract.file)?;
    let manifest = Manifest::new(&models, contract, options, run::digest_bytes(contract_text.as_bytes()));
    let path = out.join("manifest.json");
    if path.exists() {
        let found = Manifest::from_file(&path)?;
        if found.digest != manifest.digest {
            let expected = format!("the plan {} of this contract and space; use another folder", manifest.digest);
            return Err(Error::input(&path, "digest", found.digest, expected));
        }
    }
    if !path.exists() {
        refuse_foreign(out, &contract_text)?;
    }
    let folder = out.join("models");
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
    let mut summary = PlanSummary { models: models.len(), kept: 0, configurations: 0, weight_bytes: 0 };
    summary.configurations = models.iter().map(|model| model.fresh).sum();
    let mut plans = Vec::new();
    for model in &models {
        let config = model.config(&space.parent);
        let file = WeightFile::of(&config, &contract.precision)?;
        summary.weight_bytes += if options.weights { file.bytes() } else { 0 };
        plans.push((config, file));
    }
    let complete = |name: &str, file: &WeightFile| {
        let path = folder.join(name).join("model.safetensors");
        !options.weights || std::fs::metadata(path).is_ok_and(|meta| meta.len() == file.bytes())
    };
    let missing: u64 = (models.iter().zip(&plans))
        .filter(|(model, (_, file))| options.weights && !complete(&model.name, file))
        .map(|(_, (_, file))| file.bytes())
        .sum();
    room(out, missing)?;
    for (model, (config, file)) in models.iter().zip(&plans) {
        let dir = folder.join(&model.name);
        std::fs::create_dir_all(&dir).map_err(Error::io(&dir, "create"))?;
        let had = dir.join("config.json").exists() && complete(&model.name, file);
        summary.kept += usize::from(had);
        files::write_json(&dir.join("config.json"), &models::config_json(config, contract)?)?;
        if options.weights && !complete(&model.name, file) {
            write_weights(&dir.join("model.safetensors"), file)?;
        }
    }
    files::write_atomic(&out.join("contract.toml"), |f| f.write_all(contract_text.as_bytes()))?;
    let blocks: Vec<u64> = (plans.iter())
        .map(|(config, _)| PagedCaches::of(config, &contract.precision, &contract.workload).blocks())
        .collect();
    script::write(&out.join("run.sh"), &manifest, contract, &blocks)?;
    // Last: a folder with a manifest is complete.
    files::write_json(&path, &manifest)?;
    Ok(summary)
}

/// Refuses a folder that holds what no plan of this contract would have left there, had it been stopped.
fn refuse_foreign(out: &Path, contract_text: &str) -> Result<()> {
    let entries = match std::fs::read_dir(out) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(out, "read")(error)),
    };
    let begun = out.join("models").is_dir();
    for entry in entries {
        let name = entry.map_err(Error::io(out, "read"))?.file_name();
        let own = match name.to_str() {
            Some("models") => begun,
            Some("run.sh") => begun && out.join("contract.toml").exists(),
            Some("contract.toml") => files::read_text(&out.join("contract.toml"))? == contract_text,
            _ => files::is_temporary(&name),
        };
        if !own {
            let expected = "an empty folder, a plan of this contract and space, or nothing";
            return Err(Error::input(out, "folder", format!("{name:?}, which no such plan writes"), expected));
        }
    }
    Ok(())
}

/// Refuses to fill the disk up.
fn room(out: &Path, needed: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(out).map_err(|e| Error::io(out, "read")(e.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if needed < free {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: the models' weights need {:.1} GiB, found {:.1} GiB free; use another folder, or --no-weights with the \
         engine's own dummy weights",
        out.display(),
        needed as f64 / (1u64 << 30) as f64,
        free as f64 / (1u64 << 30) as f64
    )))
}
