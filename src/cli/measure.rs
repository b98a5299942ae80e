use std::path::PathBuf;

use super::{Outcome, compress, output};
use crate::cost::{Contract, MIB, Measurement, measure};
use crate::device::MeasuredOn;
use crate::model::checkpoint::MtpChoice;
use crate::model::{Lm, load};
use crate::report::precise;
use crate::stages::compress::Stage;
use crate::stages::compress::measure::{Held, hold};
use crate::{Error, Result};

/// Latency, throughput and memory of models served under a contract, request by request in turn. With --out, a stage of a run.
#[derive(clap::Args)]
pub struct Args {
    /// Models' folders: of several, the first is the parent that shares are of, and the others are held to the limits. With
    /// --out, a recipe.
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

pub fn run(args: Args) -> Result<Outcome> {
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
    let held = held(&measured, &contract);
    let on = MeasuredOn::current();
    let met = held.iter().any(Option::is_some).then(|| held.iter().flatten().flatten().all(|limit| limit.met));
    if args.json {
        let entry = |((dir, m), held): ((&PathBuf, &Measurement), &Option<Vec<Held>>)| {
            serde_json::json!({
                "model": dir,
                "measured_on": on,
                "measured": m,
                "tokens_per_second": m.throughput(&contract),
                "limits": held,
                "met": held.as_ref().map(|limits| limits.iter().all(|limit| limit.met)),
            })
        };
        output::json(&models.iter().zip(&measured).zip(&held).map(entry).collect::<Vec<_>>())?;
    } else {
        if !on.is_cpu() {
            output::line(&format!("On {on}"))?;
        }
        output::line(&table(&models, &measured, &contract))?;
        output::line(&verdicts(&models, &held))?;
    }
    Ok(Outcome::of(met))
}

/// Each model's limits. Of several, the first is the parent: the others are held beside it, itself it is not. One alone is
/// held to what is no share of a parent's; `None` where nothing is left.
fn held(measured: &[Measurement], contract: &Contract) -> Vec<Option<Vec<Held>>> {
    let of = |(i, model)| match (i, measured.len()) {
        (0, 1) => Some(hold(contract, None, model)).filter(|limits| !limits.is_empty()),
        (0, _) => None,
        _ => Some(hold(contract, Some(&measured[0]), model)),
    };
    measured.iter().enumerate().map(of).collect()
}

fn verdicts(models: &[PathBuf], held: &[Option<Vec<Held>>]) -> String {
    let mut lines = Vec::new();
    for (dir, held) in models.iter().zip(held) {
        for Held { resource, unit, at_least, limit, measured, met, .. } in held.iter().flatten() {
            let (sign, verdict) = (if *at_least { "≥" } else { "≤" }, if *met { "met" } else { "NOT MET" });
            let (measured, limit) = (precise(*measured), precise(*limit));
            lines.push(format!("{resource} {measured} {unit} {sign} {limit} {unit}: {verdict}  {}", dir.display()));
        }
    }
    if lines.is_empty() {
        lines.push("no limit held: limits that are shares of the parent's need the parent before the student".into());
    }
    lines.join("\n")
}

fn table(models: &[PathBuf], measured: &[Measurement], contract: &Contract) -> String {
    let mut lines = vec![format!(
        "{:>11} {:>10} {:>11} {:>12} {:>10}  model",
        "request", "prefill", "decode", "throughput", "memory"
    )];
    let generates = contract.workload.output_tokens > 0;
    let generated = |text: String| if generates { text } else { "-".into() };
    for (dir, m) in models.iter().zip(measured) {
        lines.push(format!(
            "{:>8.2} ms {:>7.2} ms {:>11} {:>12} {:>6.2} MiB  {}",
            1e3 * m.request.median,
            1e3 * m.prefill_seconds,
            generated(format!("{:.3} ms", 1e3 * m.decode_step_seconds)),
            generated(format!("{:.0} t/s", m.throughput(contract))),
            m.peak_bytes as f64 / MIB,
            dir.display()
        ));
    }
    lines.join("\n")
}
