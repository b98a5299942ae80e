use std::path::PathBuf;

use super::compress::{StageArgs, check_order, end};
use super::{Outcome, help};
use crate::stages::compress::{Compression, Method, Stage};
use crate::{Error, Result};

/// What a search is held against: a student of the same parent within the same limits, chosen another way.
#[derive(clap::Subcommand)]
pub enum Command {
    #[command(after_help = help::BASELINE_MINITRON)]
    Minitron(MinitronArgs),
}

/// Minitron++: of the architectures with one width per axis for all layers, recover the one that a short distillation
/// prefers. All stages, skipping what is complete.
#[derive(clap::Args)]
pub struct MinitronArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Take the ranking and the cost table of this run directory of `run`, of the same recipe.
    #[arg(long, value_name = "RUN")]
    like: Option<PathBuf>,
    /// Do the stages from this one to --until again. Later ones follow when their inputs have changed.
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    from: Option<Stage>,
    /// Stop after this stage: rank, profile, screen, extract, recover, evaluate, measure or report [default: the last that can be
    /// done here: report, or evaluate for a deployment with vLLM].
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    until: Option<Stage>,
}

fn stage(name: &str) -> Result<Stage> {
    Method::Minitron.stage(name)
}

pub fn run(command: Command) -> Result<Outcome> {
    let Command::Minitron(MinitronArgs { stage, like, from, until }) = command;
    let StageArgs { recipe, out, quiet, json } = stage;
    check_order(from, until)?;
    let same = |like: &PathBuf| like.canonicalize().is_ok_and(|like| out.canonicalize().is_ok_and(|out| like == out));
    if like.as_ref().is_some_and(same) {
        return Err(Error::Usage(format!("--like {}: found --out itself, expected another run", out.display())));
    }
    let compression = match like {
        Some(like) => Compression::open_like(Method::Minitron, &recipe, &out, &like, quiet)?,
        None => Compression::open_for(Method::Minitron, &recipe, &out, quiet)?,
    };
    let until = until.unwrap_or(compression.last());
    check_order(from, Some(until))?;
    compression.run(from, until)?;
    end(&compression, until, json)
}
