use std::path::PathBuf;

use super::output;
use crate::Result;
use crate::stages::pretrain::pretrain;

/// Train a model from random weights, as a recipe says.
#[derive(clap::Args)]
pub struct Args {
    /// A TOML recipe: [model], [data], [train].
    recipe: PathBuf,
    /// The run directory. A run that was stopped goes on from its last checkpoint.
    #[arg(long)]
    out: PathBuf,
    /// No progress on the terminal.
    #[arg(long)]
    quiet: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let summary = pretrain(&args.recipe, &args.out, args.quiet)?;
    if args.json {
        return output::json(&summary);
    }
    output::line(&format!(
        "{} steps, {} tokens, loss {:.4} → {}",
        summary.steps,
        output::count(summary.tokens),
        summary.loss,
        summary.model.display()
    ))
}
