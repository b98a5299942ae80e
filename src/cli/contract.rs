use std::path::{Path, PathBuf};

use super::output;
use crate::cost::{Contract, Finding};
use crate::model::Config;
use crate::stages::compress::Recipe;
use crate::supernet::{SearchSpace, Space};
use crate::{Error, Result};

/// Contracts: what they mean, and whether they can be fulfilled.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Explain a contract in words, and find what contradicts itself, the device or the parent. Exit code 2 if anything does. What
    /// rests on estimated times is told as an estimate.
    #[command(after_help = super::help::CONTRACT_CHECK)]
    Check {
        /// A contract (TOML).
        file: PathBuf,
        /// A model's folder or its config.json, instead of the parent that the contract names.
        #[arg(long)]
        parent: Option<PathBuf>,
        /// A search space, instead of the one that the contract names.
        #[arg(long)]
        space: Option<PathBuf>,
        /// A recipe whose parent and space are meant.
        #[arg(long, conflicts_with_all = ["parent", "space"])]
        recipe: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: Command) -> Result<()> {
    let Command::Check { file, mut parent, mut space, recipe, json } = command;
    let contract = Contract::from_file(&file)?;
    if let Some(recipe) = recipe.map(|path| Recipe::from_file(&path)).transpose()? {
        (parent, space) = (Some(recipe.parent), Some(recipe.space));
    }
    let parent = parent.or_else(|| contract.search.parent.clone()).map(|path| config(&path)).transpose()?;
    let space = match (space.or_else(|| contract.search.space.clone()), &parent) {
        (Some(path), Some(parent)) => Some(SearchSpace::new(&Space::from_file(&path)?, parent)?),
        (Some(path), None) => {
            let path = path.display();
            return Err(Error::Usage(format!(
                "{path}: a search space without the parent that it is of; give --parent"
            )));
        }
        (None, _) => None,
    };
    let explanation = contract.explain(parent.as_ref(), space.as_ref())?;
    if json {
        output::json(&explanation)?;
    } else {
        let mut lines = explanation.words.clone();
        for f in &explanation.findings {
            let word = match f {
                Finding { contradiction: true, .. } => "contradiction",
                Finding { estimate: true, .. } => "estimate",
                _ => "note",
            };
            lines.push(format!("{word}: {}: found {}, expected {}", f.at, f.found, f.expected));
        }
        if explanation.findings.iter().all(|finding| !finding.contradiction) {
            let beside =
                if explanation.findings.iter().any(|finding| finding.estimate) { "; mind the estimates" } else { "" };
            lines.push(format!("No contradiction found{beside}."));
        }
        output::line(&lines.join("\n"))?;
    }
    explanation.refuse(&contract)
}

/// A model's configuration: of a folder, or of a bare `config.json`.
pub fn config(path: &Path) -> Result<Config> {
    if path.is_dir() { Config::from_file(&path.join("config.json")) } else { Config::from_file(path) }
}
