use std::path::{Path, PathBuf};

use super::output;
use crate::cost::{Contract, Format, Precision};
use crate::export::{ExportOptions, all_linear, export};
use crate::run::{is_run, verify};
use crate::{Error, Result};

/// Write a model's weights in the formats of a deployment, as vLLM, SGLang and TensorRT-LLM read them, and each tensor's error.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("format").required(true).args(["weights", "contract"]))]
pub struct Args {
    /// A model's folder, or a run directory, whose recovered student is meant.
    model: PathBuf,
    /// One format for the weights of all linear layers, the head too.
    #[arg(long, value_name = "FORMAT", value_parser = ["fp8", "nvfp4"])]
    weights: Option<String>,
    /// A contract whose [precision] says the format of each component.
    #[arg(long, value_name = "FILE")]
    contract: Option<PathBuf>,
    /// The folder: a new or an empty one, or an earlier export.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Most MiB of one file of weights.
    #[arg(long, default_value_t = 4768, value_parser = clap::value_parser!(u32).range(1..))]
    max_shard_mib: u32,
    /// Print JSON: the error of every tensor.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let model = if is_run(&args.model) { recovered(&args.model)? } else { args.model };
    let precision = match (&args.contract, args.weights.as_deref()) {
        (Some(file), _) => of_contract(file)?,
        (None, Some("fp8")) => all_linear(Format::Fp8),
        _ => all_linear(Format::Nvfp4),
    };
    let options = ExportOptions { precision, max_shard_bytes: u64::from(args.max_shard_mib) << 20 };
    let report = export(&model, &args.out, &options)?;
    if args.json { output::json(&report) } else { output::line(&report.text()) }
}

/// The recovered student of a run directory, as it was left.
fn recovered(run: &Path) -> Result<PathBuf> {
    match verify(run, "recover") {
        Ok(true) => Ok(run.join("recovered")),
        Ok(false) => Err(Error::input(run, "recovered", "no recovered student in this run", "one: `recover` makes it")),
        Err(Error::Input { file, at, found, expected }) => {
            Err(Error::Input { file, at, found, expected: format!("{expected}; `run --from recover` makes it again") })
        }
        Err(error) => Err(error),
    }
}

fn of_contract(file: &Path) -> Result<Precision> {
    let precision = Contract::from_file(file)?.precision;
    if precision.weights().iter().all(|(_, format)| *format == Format::F32) {
        return Err(Error::input(file, "precision", "f32", "a format below f32 for some component"));
    }
    Ok(precision)
}
