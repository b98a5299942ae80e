use std::path::PathBuf;

use super::{compress, output};
use crate::cost::{Contract, MIB, Measurement, measure};
use crate::model::checkpoint::MtpChoice;
use crate::model::{Lm, load};
use crate::stages::compress::Stage;
use crate::{Error, Result};

/// Latency, throughput and memory of models served under a contract, request by request in turn. With --out, a stage of a run.
#[derive(clap::Args)]
pub struct Args {
    /// Models' folders; with --out, a recipe.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// The contract whose workload to serve.
    #[arg(long, value_name = "FILE", required_unless_present = "out")]
    contract: Option<PathBuf>,
    /// Requests of each model; the medians are told.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// The run directory whose student to measure beside its parent, as its recipe says.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["contract", "repeats"])]
    out: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let mut models = args.models;
    if let Some(out) = args.out {
        if models.len() > 1 {
            return Err(Error::Usage("measure --out: found several paths, expected one recipe".into()));
        }
        return compress::stage(Stage::Measure, compress::StageArgs::new(models.remove(0), out, args.json));
    }
    let contract = Contract::from_file(&args.contract.unwrap_or_default())?;
    let loaded: Vec<Lm> = models.iter().map(|dir| Ok(load(dir, MtpChoice::Drop)?.lm)).collect::<Result<_>>()?;
    let measured = measure(&loaded.iter().collect::<Vec<_>>(), &contract, args.repeats as usize)?;
    if args.json {
        let entry = |(dir, m): (&PathBuf, &Measurement)| serde_json::json!({ "model": dir, "measured": m, "tokens_per_second": m.throughput(&contract) });
        return output::json(&models.iter().zip(&measured).map(entry).collect::<Vec<_>>());
    }
    output::line(&table(&models, &measured, &contract))
}

fn table(models: &[PathBuf], measured: &[Measurement], contract: &Contract) -> String {
    let mut lines = vec![format!(
        "{:>11} {:>10} {:>11} {:>12} {:>10}  model",
        "request", "prefill", "decode", "throughput", "memory"
    )];
    for (dir, m) in models.iter().zip(measured) {
        lines.push(format!(
            "{:>8.2} ms {:>7.2} ms {:>8.3} ms {:>8.0} t/s {:>6.2} MiB  {}",
            1e3 * m.request.median,
            1e3 * m.prefill_seconds,
            1e3 * m.decode_step_seconds,
            m.throughput(contract),
            m.peak_bytes as f64 / MIB,
            dir.display()
        ));
    }
    lines.join("\n")
}
