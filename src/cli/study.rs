use std::path::PathBuf;

use super::output;
use crate::Result;
use crate::stages::study::{Arm, StudyOptions, study, text};

/// Measure whether the search helps: searched, random and uniform architectures and the baseline Minitron++ within the same
/// limits, recovered alike.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// A TOML recipe, as of `run`.
    recipe: PathBuf,
    /// The run directory. A study that was stopped goes on where it was.
    #[arg(long)]
    out: PathBuf,
    /// Repeats of everything with other seeds of search and recovery.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Limits as shares of the parent's cost, such as 0.6,0.4: each in place of the contract's shares, absolute limits times
    /// it [default: the contract's limits].
    #[arg(long, value_delimiter = ',', value_name = "SHARE,...")]
    shares: Vec<f64>,
    /// What is compared: search, random, uniform, minitron, and the search's alternatives router_init and score_masking
    /// [default: search,random,uniform,minitron].
    #[arg(long, value_delimiter = ',', value_name = "ARM,...")]
    arms: Vec<Arm>,
    /// Random architectures of each share and seed; the best counts.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    random: u32,
    /// Uniform architectures of each share that are recovered, at most; the best counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    uniform: u32,
    /// Compare the two alternatives of the search too: random first logits with a warm-up, and masks on routing scores.
    #[arg(long)]
    ablations: bool,
    /// No progress on the terminal.
    #[arg(long)]
    quiet: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let mut arms = if args.arms.is_empty() { Arm::USUAL.to_vec() } else { args.arms };
    let alternatives = [Arm::RouterInit, Arm::ScoreMasking].into_iter().filter(|_| args.ablations);
    let missing: Vec<Arm> = alternatives.filter(|arm| !arms.contains(arm)).collect();
    arms.extend(missing);
    let options = StudyOptions {
        arms,
        seeds: args.seeds,
        shares: args.shares,
        random: args.random as usize,
        uniform: args.uniform as usize,
        quiet: args.quiet,
    };
    let result = study(&args.recipe, &args.out, &options)?;
    if args.json { output::json(&result) } else { output::line(&text(&result)) }
}
