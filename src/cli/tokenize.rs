use std::path::PathBuf;

use super::output;
use crate::Result;
use crate::data::text::{Separation, documents};
use crate::data::{BuildOptions, Tokenizer, build_shards};

/// Turn text or JSONL files into token shards for training.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// Text files, or JSONL files with {"text"} on every line.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The folder to write.
    #[arg(long)]
    out: PathBuf,
    /// "bytes", a tokenizer.json, or a folder with one.
    #[arg(long, default_value = "bytes")]
    tokenizer: String,
    /// A blank line ends a document of a text file [default: a file is one document].
    #[arg(long)]
    blank_line: bool,
    /// Tokens after which a new shard begins.
    #[arg(long, default_value_t = 1 << 27, value_parser = clap::value_parser!(u64).range(1..))]
    tokens_per_shard: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let tokenizer = Tokenizer::open(&args.tokenizer)?;
    let separation = if args.blank_line { Separation::BlankLine } else { Separation::File };
    let texts = args.files.iter().flat_map(|file| match documents(file, separation) {
        Ok(documents) => documents.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    });
    let tokens_per_shard = usize::try_from(args.tokens_per_shard).unwrap_or(usize::MAX);
    let options = BuildOptions { vocab_size: tokenizer.vocab_size(), tokens_per_shard };
    let built = build_shards(texts, &tokenizer, &args.out, options)?;
    if args.json {
        return output::json(&serde_json::json!({
            "shards": built.shards, "documents": built.documents, "tokens": built.tokens,
            "vocab_size": options.vocab_size,
        }));
    }
    output::line(&format!(
        "{} documents, {} tokens in {} shards: {}",
        built.documents,
        output::count(built.tokens as u64),
        built.shards.len(),
        args.out.display()
    ))
}
