//! Argument parsing, one file per subcommand.

mod evaluate;
mod generate;
mod inspect;
mod output;
mod pretrain;
mod tokenize;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::device::{Device, with_threads};
use crate::{Error, Result};

/// Shrinks hybrid Mamba-2 / mixture-of-experts / attention language models to fit a measured deployment.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    /// Threads to compute with [default: all cores]. Results do not depend on it.
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Where to compute: cpu, or auto.
    #[arg(long, global = true, default_value = "auto")]
    device: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Inspect(inspect::Args),
    Pretrain(pretrain::Args),
    Evaluate(evaluate::Args),
    Generate(generate::Args),
    Tokenize(tokenize::Args),
}

/// Runs the program: exit code 0 on success, 2 where the user's input is at fault, 1 where the work failed.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("internal error, a bug in autocompress: {info}");
    }));
    let cli = Cli::parse();
    match std::panic::catch_unwind(|| run(cli)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
        Err(_) => ExitCode::from(101),
    }
}

fn run(cli: Cli) -> Result<()> {
    let Device::Cpu = cli.device.parse()?;
    let command = || match cli.command {
        Command::Inspect(args) => inspect::run(args),
        Command::Pretrain(args) => pretrain::run(args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Tokenize(args) => tokenize::run(args),
    };
    match cli.threads {
        Some(0) => Err(Error::Usage("--threads 0: expected at least 1".into())),
        Some(threads) => with_threads(threads, command)?,
        None => command(),
    }
}
