use std::path::PathBuf;

use super::{compress, contract, output};
use crate::cost::roofline::{self, halves};
use crate::cost::trace::{PlanOptions, ingest, write_plan};
use crate::cost::{Contract, CostModel, Errors, Table};
use crate::stages::compress::Stage;
use crate::stages::compress::profile::measured_elsewhere;
use crate::supernet::{SearchSpace, Space};
use crate::{Error, Result};

/// Stage of a run: measure the cost table of the search space on the deployment. For vLLM: plan traces, ingest them, or
/// estimate.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    stage: Option<compress::StageArgs>,
}

impl Args {
    /// Whether models are measured here.
    pub fn is_stage(&self) -> bool {
        self.stage.is_some()
    }
}

#[derive(clap::Subcommand)]
enum Command {
    /// Write short models of random weights that fill a contract's cost table, and the script that serves and traces them.
    #[command(after_help = super::help::PROFILE_PLAN)]
    Plan {
        /// A contract (TOML) of a deployment with vLLM that names a parent and a space.
        #[arg(long, value_name = "FILE")]
        contract: PathBuf,
        /// The folder. Called again, what is complete is kept.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Layers of a model.
        #[arg(long, default_value_t = PlanOptions::default().layers_per_model, value_name = "N")]
        layers: usize,
        /// How often each model is started: the memory reserve is the largest over the starts.
        #[arg(long, default_value_t = PlanOptions::default().starts as u32, value_parser = clap::value_parser!(u32).range(1..=1000))]
        starts: u32,
        /// Leave the weights to the engine's own dummies.
        #[arg(long)]
        no_weights: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read the traces of a planned folder into its table.csv.
    #[command(after_help = super::help::PROFILE_INGEST)]
    Ingest {
        /// The folder.
        dir: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Estimate a contract's cost table from arithmetic, calibrated by measured rows where there are some.
    #[command(after_help = super::help::PROFILE_ESTIMATE)]
    Estimate {
        /// A contract (TOML) that names a parent and a space.
        #[arg(long, value_name = "FILE")]
        contract: PathBuf,
        /// A measured table. Its rows stay; the others are estimates, with 0 repeats.
        #[arg(long, value_name = "CSV")]
        table: Option<PathBuf>,
        /// Where to write the table.
        #[arg(long, value_name = "CSV")]
        out: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args) -> Result<()> {
    match (args.command, args.stage) {
        (Some(Command::Plan { contract, out, layers, starts, no_weights, json }), _) => {
            let options = PlanOptions { layers_per_model: layers, starts: starts as usize, weights: !no_weights };
            let (contract, space) = deployment(&contract)?;
            let summary = write_plan(&space, &contract, &options, &out)?;
            if json {
                return output::json(&summary);
            }
            output::line(&format!(
                "{} models ({} kept), {} layer configurations, {} of weights → {}",
                summary.models,
                summary.kept,
                summary.configurations,
                output::bytes(summary.weight_bytes as f64),
                out.join("run.sh").display()
            ))
        }
        (Some(Command::Ingest { dir, json }), _) => {
            let ingested = ingest(&dir)?;
            let path = dir.join("table.csv");
            ingested.table.save(&path)?;
            if json {
                return output::json(&ingested);
            }
            let requests: usize = ingested.traces.iter().map(|trace| trace.requests).sum();
            let mut lines = vec![format!(
                "{} rows of {} requests in {} traces → {}",
                ingested.table.rows.len(),
                requests,
                ingested.traces.len(),
                path.display()
            )];
            if let Some(bytes) = ingested.reserve_bytes {
                lines.push(format!(
                    "ε {:.1} MiB, the largest residual: engine.reserve_mib of the contract",
                    bytes / crate::cost::MIB
                ));
            }
            if !ingested.missing.is_empty() {
                lines.push(format!("not traced yet: {}", ingested.missing.join(", ")));
            }
            output::line(&lines.join("\n"))
        }
        (Some(Command::Estimate { contract, table, out, json }), _) => estimate(&contract, table, out, json),
        (None, Some(stage)) => compress::stage(Stage::Profile, stage).map(drop),
        (None, None) => Err(Error::Usage("profile: expected a recipe and --out, or plan, ingest or estimate".into())),
    }
}

/// A contract with the space that it names.
fn deployment(file: &std::path::Path) -> Result<(Contract, SearchSpace)> {
    let contract = Contract::from_file(file)?;
    let missing = |key: &str| Error::input(file, format!("search.{key}"), "no such key", "a path");
    let parent = contract.search.parent.clone().ok_or_else(|| missing("parent"))?;
    let space = contract.search.space.clone().ok_or_else(|| missing("space"))?;
    let space = SearchSpace::new(&Space::from_file(&space)?, &contract::config(&parent)?)?;
    Ok((contract, space))
}

fn estimate(file: &std::path::Path, table: Option<PathBuf>, out: Option<PathBuf>, json: bool) -> Result<()> {
    let (contract, space) = deployment(file)?;
    let measured = measured_elsewhere(table.as_deref(), &contract)?;
    let (table, calibration) = roofline::estimate(&space, &contract, &measured)?;
    if let Some(out) = &out {
        let is_link = out.is_symlink() && !out.exists();
        if is_link || out.exists() && Table::from_file(out).is_err() {
            let found = if is_link { "a link to nothing" } else { "a file that is no cost table" };
            return Err(Error::input(out, "--out", found, "a cost table to replace, or nothing"));
        }
        table.save(out)?;
    }
    let (times, estimates) = table.times();
    let held_out = held_out(&space, &contract, &measured)?;
    let parent = CostModel::new(&space, &contract, &table)?.predict(&space.parent_choice())?;
    if json {
        return output::json(&serde_json::json!({
            "rows": table.rows.len(),
            "times": times,
            "estimates": estimates,
            "fits": calibration.fits().into_iter().map(|(name, fit)| serde_json::json!({
                "of": name, "rows": fit.rows, "coefficients": fit.coefficients, "median_error": fit.median_error,
            })).collect::<Vec<_>>(),
            "held_out": held_out,
            "parent": {
                "prefill_seconds": parent.prefill_seconds, "decode_step_seconds": parent.decode_step_seconds,
                "request_seconds": parent.request_seconds, "memory_bytes": parent.memory_bytes, "estimate": estimates > 0,
            },
        }));
    }
    let mut lines = vec![format!("{} rows: {estimates} of {times} times are estimates", table.rows.len())];
    for (name, fit) in calibration.fits() {
        lines.push(format!(
            "  {name:<18} {:>4} measured rows, median error {:.1} %",
            fit.rows,
            100.0 * fit.median_error
        ));
    }
    if let Some(errors) = held_out {
        lines.push(format!(
            "calibrated on half of the measured rows, the other half is predicted to {:.1} % (median), {:.1} % (95 of 100)",
            100.0 * errors.median,
            100.0 * errors.q95
        ));
    }
    lines.push(format!(
        "parent{}: request {:.1} ms (prefill {:.1} ms, decode step {:.1} µs), memory {}",
        if estimates > 0 { ", estimate" } else { "" },
        1e3 * parent.request_seconds,
        1e3 * parent.prefill_seconds,
        1e6 * parent.decode_step_seconds,
        output::bytes(parent.memory_bytes)
    ));
    output::line(&lines.join("\n"))
}

/// How far estimates by one half of the measured rows are from the other half; `None` where there is nothing to halve.
fn held_out(space: &SearchSpace, contract: &Contract, measured: &Table) -> Result<Option<Errors>> {
    let (known, other) = halves(measured, 0);
    let errors = roofline::held_out(space, contract, &known, &other)?;
    Ok((!errors.is_empty()).then(|| Errors::of(&errors)))
}
