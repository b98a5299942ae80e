use std::path::PathBuf;

use super::{Outcome, compress, output};
use crate::Result;
use crate::data::{TasksConfig, Tokenizer};
use crate::model::checkpoint::MtpChoice;
use crate::stages::compress::Stage;
use crate::stages::evaluate::{Evaluation, RecordSet, evaluate_records, evaluate_tasks};

/// Loss, perplexity and exact match of a model: on the built-in tasks, or on your own records. With --out, a stage of a run.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// A model's folder; with --out, a recipe.
    model: PathBuf,
    /// The run directory whose parent and students to score, as its recipe says.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["data", "tasks", "examples", "seed"])]
    out: Option<PathBuf>,
    /// JSONL records: {"text"}, {"prompt", "answer"} or {"prompt", "choices", "answer": index}.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Tokenizer of the records: "bytes", a tokenizer.json, or a folder with one [default: the model's, else bytes].
    #[arg(long, requires = "data")]
    tokenizer: Option<String>,
    /// Built-in tasks: a recipe whose [data] sets the difficulties [default: the built-in ones].
    #[arg(long, value_name = "RECIPE", conflicts_with = "data")]
    tasks: Option<PathBuf>,
    /// Built-in tasks: held-out examples of each.
    #[arg(long, default_value_t = 200, conflicts_with = "data", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    examples: u32,
    /// Built-in tasks: seed of the held-out examples.
    #[arg(long, default_value_t = 0, conflicts_with = "data")]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Outcome> {
    if let Some(out) = args.out {
        return compress::stage(Stage::Evaluate, compress::StageArgs::new(args.model, out, args.json));
    }
    let lm = crate::model::load(&args.model, MtpChoice::Drop)?.lm;
    let evaluation = match &args.data {
        Some(path) => {
            let tokenizer = Tokenizer::of_model(&args.model, args.tokenizer.as_deref())?;
            evaluate_records(&lm, &RecordSet::from_file(path, &tokenizer, lm.config.vocab_size)?)?
        }
        None => {
            let config = match &args.tasks {
                Some(recipe) => crate::stages::pretrain::tasks_of(recipe)?,
                None => TasksConfig::default(),
            };
            let evaluation = evaluate_tasks(&lm, &config, args.seed, args.examples as usize);
            match &args.tasks {
                Some(recipe) => evaluation.map_err(|error| error.within_table(recipe, "data"))?,
                None => evaluation?,
            }
        }
    };
    if args.json { output::json(&evaluation) } else { output::line(&table(&evaluation)) }?;
    Ok(Outcome::Done)
}

fn table(evaluation: &Evaluation) -> String {
    let percent = |share: Option<f64>| share.map_or("-".into(), |s| format!("{:.1} %", 100.0 * s));
    let mut lines = vec![format!("{:<18} {:>6} {:>9} {:>11} {:>9}", "", "items", "loss", "perplexity", "accuracy")];
    for p in &evaluation.parts {
        let mut line =
            format!("{:<18} {:>6} {:>9.4} {:>11.3} {:>9}", p.name, p.items, p.loss, p.perplexity, percent(p.accuracy));
        if p.accuracy_per_token.is_some() {
            line += &format!("  ({} by loss per token)", percent(p.accuracy_per_token));
        }
        lines.push(line);
    }
    let items: usize = evaluation.parts.iter().map(|p| p.items).sum();
    lines.push(format!(
        "{:<18} {:>6} {:>9.4} {:>11.3} {:>9}",
        "all, mean",
        items,
        evaluation.loss,
        evaluation.perplexity,
        percent(evaluation.mean_accuracy)
    ));
    lines.join("\n")
}
