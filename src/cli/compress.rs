use std::path::{Path, PathBuf};

use super::{Outcome, output};
use crate::cost::{MIB, Validation};
use crate::device::MeasuredOn;
use crate::report::{self, Report};
use crate::stages::compress::profile::Basis;
use crate::stages::compress::{Compression, Stage, extract, profile, quickstart};
use crate::{Error, Result};

/// Compress a parent to a measured student within a contract's limits: all stages, skipping what is complete.
#[derive(clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Do the stages from this one to --until again. Later ones follow when their inputs have changed.
    #[arg(long, value_name = "STAGE")]
    from: Option<Stage>,
    /// Stop after this stage: rank, profile, search, extract, recover, evaluate, measure or report [default: the last that can be
    /// done here: report, or evaluate for a deployment with vLLM].
    #[arg(long, value_name = "STAGE")]
    until: Option<Stage>,
}

/// A recipe and where its run lives.
#[derive(clap::Args)]
pub struct StageArgs {
    /// A TOML recipe: parent, space, contract, [data], [search], [recover].
    pub recipe: PathBuf,
    /// The run directory. A run that was stopped goes on where it was.
    #[arg(long)]
    pub out: PathBuf,
    /// No progress on the terminal.
    #[arg(long)]
    pub quiet: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

impl StageArgs {
    pub fn new(recipe: PathBuf, out: PathBuf, json: bool) -> StageArgs {
        StageArgs { recipe, out, quiet: false, json }
    }
}

/// The first run: compress the embedded tiny parent to half of its measured latency and half of its memory.
#[derive(clap::Args)]
pub struct QuickstartArgs {
    /// A folder for the recipe, what it reads, and the run.
    #[arg(long, default_value = "quickstart")]
    out: PathBuf,
    /// No progress on the terminal.
    #[arg(long)]
    quiet: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Hold a run's cost model against complete architectures drawn by a seed and measured now.
#[derive(clap::Args)]
pub struct ValidateArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Architectures, the parent and the student among them.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    architectures: u32,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Requests of each, interleaved.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
}

pub fn run(args: RunArgs) -> Result<Outcome> {
    let StageArgs { recipe, out, quiet, json } = args.stage;
    check_order(args.from, args.until)?;
    let compression = Compression::open(&recipe, &out, quiet)?;
    let until = args.until.unwrap_or(compression.last());
    check_order(args.from, Some(until))?;
    compression.run(args.from, until)?;
    end(&compression, until, json)
}

/// Refuses a first stage that comes after the last.
pub fn check_order(from: Option<Stage>, until: Option<Stage>) -> Result<()> {
    match (from, until) {
        (Some(from), Some(until)) if from > until => Err(Error::Usage("--from is a later stage than --until".into())),
        _ => Ok(()),
    }
}

/// One stage alone. One that reads what others made makes no run directory.
pub fn stage(stage: Stage, args: StageArgs) -> Result<Outcome> {
    let open = if stage.reads().is_empty() { Compression::open } else { Compression::open_existing };
    let compression = open(&args.recipe, &args.out, args.quiet)?;
    compression.only(stage)?;
    end(&compression, stage, args.json)
}

pub fn quickstart(args: QuickstartArgs) -> Result<Outcome> {
    let recipe = quickstart::unpack(&args.out)?;
    let compression = Compression::open(&recipe, &args.out.join(quickstart::RUN), args.quiet)?;
    compression.run(None, Stage::Report)?;
    end(&compression, Stage::Report, args.json)
}

/// Tells what `stage`, the last that was done, left; where it had the student measured, whether that is within the limits.
pub fn end(compression: &Compression, stage: Stage, json: bool) -> Result<Outcome> {
    let out = compression.run.path();
    let met = if stage >= Stage::Measure { compression.met()? } else { None };
    if stage >= Stage::Profile && compression.is_complete(Stage::Profile)? {
        let profile = profile::read(compression)?;
        match &profile.basis {
            // An interpreter's times are no times at all.
            Basis::Here { measured_on, validation, .. } if !measured_on.simulated => {
                if let Some(disturbed) = validation.disturbed() {
                    output::note(&format!("note: {disturbed}"));
                }
            }
            Basis::Here { .. } => {}
            Basis::Elsewhere => {
                let (times, estimates) = profile.table.times();
                output::note(&format!("note: {estimates} of the cost table's {times} times are estimates"));
            }
        }
    }
    if stage == Stage::Report { show(out, json) } else { done(compression, stage, met, json) }?;
    Ok(Outcome::of(met))
}

pub fn validate(args: ValidateArgs) -> Result<()> {
    let StageArgs { recipe, out, quiet, json } = args.stage;
    let compression = Compression::open_existing(&recipe, &out, quiet)?;
    if !compression.is_complete(Stage::Profile)? {
        return Err(Error::Usage(format!(
            "{}: found no complete profile, expected `profile` done first",
            out.display()
        )));
    }
    let (choices, validation) =
        profile::validate(&compression, args.architectures as usize, args.seed, args.repeats as usize)?;
    let on = MeasuredOn::current();
    if !json {
        if !on.is_cpu() {
            output::line(&format!("On {on}"))?;
        }
        return output::line(&validation_table(&validation));
    }
    let points: Vec<serde_json::Value> = (choices.iter().zip(&validation.points))
        .map(|(choice, (predicted, measured))| {
            Ok(serde_json::json!({
                "architecture": compression.space.choice_to_json(choice)?,
                "predicted": { "request_seconds": predicted.request_seconds, "memory_bytes": predicted.memory_bytes },
                "measured": measured,
            }))
        })
        .collect::<Result<_>>()?;
    let Validation { request, request_less_drift, drift, memory, prefill, decode_step, .. } = validation;
    output::json(&serde_json::json!({
        "measured_on": on,
        "points": points,
        "drift": drift,
        "errors": { "request": request, "request_less_drift": request_less_drift, "prefill": prefill, "decode_step": decode_step, "memory": memory },
    }))
}

fn validation_table(validation: &Validation) -> String {
    let mut lines =
        vec![format!("{:>14} {:>12} {:>12} {:>14} {:>14}", "", "predicted", "measured", "predicted", "measured")];
    for (i, (predicted, measured)) in validation.points.iter().enumerate() {
        lines.push(format!(
            "{:>14} {:>9.2} ms {:>9.2} ms {:>10.3} MiB {:>10.3} MiB",
            if i == 0 { "parent".into() } else { i.to_string() },
            1e3 * predicted.request_seconds,
            1e3 * measured.request.median,
            predicted.memory_bytes / MIB,
            measured.peak_bytes as f64 / MIB,
        ));
    }
    let drift = format!("latency, predictions times {:.3}", validation.drift);
    let errors = [
        ("latency".to_owned(), validation.request),
        (drift, validation.request_less_drift),
        ("memory".to_owned(), validation.memory),
    ];
    for (name, errors) in errors {
        let percent = |share: f64| 100.0 * share;
        lines.push(format!(
            "{name} error: median {:.2} %, 95th percentile {:.2} %, worst {:.2} %",
            percent(errors.median),
            percent(errors.q95),
            percent(errors.worst)
        ));
    }
    lines.join("\n")
}

fn show(out: &Path, json: bool) -> Result<()> {
    let report: Report = report::read(&out.join("report.json"))?;
    if json {
        return output::json(&report);
    }
    output::line(&report::text(&report))?;
    output::line(&format!("{}", out.join("report.html").display()))
}

/// What is predicted of a student whose deployment is not at hand; nothing before there is one.
fn predicted(compression: &Compression, stage: Stage) -> Result<Vec<extract::Predicted>> {
    if compression.contract.is_served_here() || stage < Stage::Extract {
        Ok(vec![])
    } else {
        extract::predicted(compression)
    }
}

fn done(compression: &Compression, stage: Stage, met: Option<bool>, json: bool) -> Result<()> {
    let out = compression.run.path();
    let outputs: Vec<PathBuf> = stage.outputs().iter().map(|output| out.join(output)).collect();
    let predicted = predicted(compression, stage)?;
    if json {
        let mut told = serde_json::json!({ "stage": stage.name(), "outputs": outputs });
        if let Some(met) = met {
            told["met"] = met.into();
        }
        if !predicted.is_empty() {
            told["predicted"] = serde_json::json!(predicted);
        }
        return output::json(&told);
    }
    for limit in &predicted {
        output::line(&limit.to_string())?;
    }
    let list: Vec<String> = outputs.iter().map(|path| path.display().to_string()).collect();
    let verdict = match met {
        Some(true) => ": every limit is met",
        Some(false) => ": a limit is not met",
        None => "",
    };
    output::line(&format!("{stage} → {}{verdict}", list.join(", ")))
}
