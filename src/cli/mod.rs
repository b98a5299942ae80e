//! Argument parsing, one file per subcommand.

mod baseline;
mod compress;
mod contract;
mod dry_run;
mod evaluate;
mod export;
mod generate;
mod help;
mod inspect;
mod inspect_memory;
mod kernels;
mod logits;
mod measure;
mod output;
mod plan;
mod pretrain;
mod profile;
mod study;
mod tokenize;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::device::{Device, Precision, compute_in, compute_on, with_threads};
use crate::stages::compress::Stage;
use crate::{Error, Result};

/// More than any machine has cores for; starting millions would only hang.
const MOST_THREADS: usize = 1024;

/// Options of all commands.
const GLOBAL: &str = "Global options";

/// Shrinks hybrid Mamba-2 / mixture-of-experts / attention language models to fit a measured deployment.
#[derive(Parser)]
#[command(version, about, max_term_width = 100, after_help = help::EXIT_CODES)]
struct Cli {
    /// Threads to compute with [default: all cores]. Results do not depend on it.
    #[arg(long, global = true, value_name = "N", help_heading = GLOBAL)]
    threads: Option<usize>,
    /// Where models compute and are measured: cpu, cuda, cuda:N, or auto, a GPU where there is one [default: cpu; kernels: auto].
    /// It goes before the contract's device, where this program's own engine serves: a cost table holds for the device that it was
    /// measured on.
    #[arg(long, global = true, help_heading = GLOBAL)]
    device: Option<String>,
    /// What search, recover and pretrain compute in, whatever a recipe says: f32, bf16, fp8 or nvfp4 [default: bf16 on a GPU, f32
    /// on the CPU, which has no bf16]. fp8 and nvfp4 quantise the operands of Mamba, MLP and expert products (nvfp4 not in the last
    /// 15 % of the layers); they are emulated, and no faster. Other commands compute in f32 with f32, else in bf16 on a GPU.
    #[arg(long, global = true, value_parser = str::parse::<Precision>, help_heading = GLOBAL)]
    precision: Option<Precision>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(after_help = help::QUICKSTART)]
    Quickstart(compress::QuickstartArgs),
    #[command(after_help = help::RUN)]
    Run(compress::RunArgs),
    /// Stage of a run: order the parent's components by importance.
    #[command(after_help = help::RANK)]
    Rank(compress::StageArgs),
    #[command(after_help = help::PROFILE)]
    Profile(profile::Args),
    /// Stage of a run: search for an architecture within the limits.
    #[command(after_help = help::SEARCH)]
    Search(compress::StageArgs),
    /// Stage of a run: cut the architecture out of the sorted parent, and measure it.
    #[command(after_help = help::EXTRACT)]
    Extract(compress::StageArgs),
    /// Stage of a run: recover the student by distillation.
    #[command(after_help = help::RECOVER)]
    Recover(compress::StageArgs),
    #[command(after_help = help::EVALUATE)]
    Evaluate(evaluate::Args),
    #[command(after_help = help::MEASURE)]
    Measure(measure::Args),
    /// Stage of a run: write report.html and report.json.
    #[command(after_help = help::REPORT)]
    Report(compress::StageArgs),
    #[command(after_help = help::VALIDATE)]
    Validate(compress::ValidateArgs),
    #[command(after_help = help::STUDY)]
    Study(study::Args),
    #[command(subcommand)]
    Baseline(baseline::Command),
    #[command(after_help = help::PLAN)]
    Plan(plan::Args),
    #[command(after_help = help::DRY_RUN)]
    DryRun(dry_run::Args),
    #[command(after_help = help::INSPECT)]
    Inspect(inspect::Args),
    #[command(subcommand)]
    Contract(contract::Command),
    #[command(subcommand)]
    Kernels(kernels::Command),
    #[command(after_help = help::EXPORT)]
    Export(export::Args),
    #[command(after_help = help::LOGITS)]
    Logits(logits::Args),
    #[command(after_help = help::PRETRAIN)]
    Pretrain(pretrain::Args),
    #[command(after_help = help::GENERATE)]
    Generate(generate::Args),
    #[command(after_help = help::TOKENIZE)]
    Tokenize(tokenize::Args),
}

/// How a command ended that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// A measured model is over a limit.
    LimitsMissed,
}

impl Outcome {
    /// Of limits, where any were held.
    fn of(met: Option<bool>) -> Outcome {
        if met == Some(false) { Outcome::LimitsMissed } else { Outcome::Done }
    }

    fn exit_code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::LimitsMissed => 3,
        }
    }
}

/// Runs the program: exit code 0 on success, 3 where all was done but a measured model is over a limit, 2 where the user's
/// input is at fault, 1 where the work failed.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        output::note(&format!("internal error, a bug in autocompress: {info}"));
    }));
    let cli = Cli::parse();
    show_warnings();
    match std::panic::catch_unwind(|| run(cli)) {
        Ok(Ok(outcome)) => ExitCode::from(outcome.exit_code()),
        Ok(Err(error)) => {
            output::note(&format!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
        Err(_) => ExitCode::from(101),
    }
}

/// Warnings of all modules, such as a checkpoint that is passed over, on standard error.
fn show_warnings() {
    let layer = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    // Its own failures to write would be panics where standard error is closed.
    let layer = layer.with_max_level(tracing::Level::WARN).without_time().with_target(false).log_internal_errors(false);
    layer.init();
}

/// Whether a command tells times of models.
fn measures(command: &Command) -> bool {
    match command {
        Command::Profile(args) => args.is_stage(),
        Command::Quickstart(_) | Command::Run(_) | Command::Extract(_) | Command::Measure(_) => true,
        Command::Validate(_) | Command::Study(_) | Command::Baseline(_) => true,
        _ => false,
    }
}

fn run(cli: Cli) -> Result<Outcome> {
    let done = |()| Outcome::Done;
    if let Command::Kernels(command) = cli.command {
        return kernels::run(command, cli.device.as_deref().unwrap_or("auto")).map(done);
    }
    let device: Device = cli.device.as_deref().unwrap_or("cpu").parse()?;
    let place = device.place(cli.precision.unwrap_or_default(), output::note)?;
    if place.as_ref().is_some_and(|place| place.gpu.is_simulated()) && measures(&cli.command) {
        output::note(
            "gpusim: an interpreter, no times: it counts bytes as a GPU's driver does, and its seconds mean nothing",
        );
    }
    let command = || match cli.command {
        Command::Quickstart(args) => compress::quickstart(args),
        Command::Run(args) => compress::run(args),
        Command::Rank(args) => compress::stage(Stage::Rank, args),
        Command::Profile(args) => profile::run(args).map(done),
        Command::Search(args) => compress::stage(Stage::Search, args),
        Command::Extract(args) => compress::stage(Stage::Extract, args),
        Command::Recover(args) => compress::stage(Stage::Recover, args),
        Command::Measure(args) => measure::run(args),
        Command::Report(args) => compress::stage(Stage::Report, args),
        Command::Validate(args) => compress::validate(args).map(done),
        Command::Study(args) => study::run(args).map(done),
        Command::Baseline(command) => baseline::run(command),
        Command::Plan(args) => plan::run(args).map(done),
        Command::DryRun(args) => dry_run::run(args).map(done),
        Command::Inspect(args) => inspect::run(args).map(done),
        Command::Contract(command) => contract::run(command).map(done),
        Command::Kernels(command) => kernels::run(command, "auto").map(done),
        Command::Export(args) => export::run(args).map(done),
        Command::Logits(args) => logits::run(args).map(done),
        Command::Pretrain(args) => pretrain::run(args).map(done),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Generate(args) => generate::run(args).map(done),
        Command::Tokenize(args) => tokenize::run(args).map(done),
    };
    let command = || compute_in(cli.precision, || compute_on(place, command));
    match cli.threads {
        Some(threads) if !(1..=MOST_THREADS).contains(&threads) => {
            Err(Error::Usage(format!("--threads {threads}: expected 1 to {MOST_THREADS}")))
        }
        Some(threads) => with_threads(threads, command)?,
        None => command(),
    }
}
