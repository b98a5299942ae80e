use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use super::output;
use crate::data::{Tokenizer, text};
use crate::engine::{GenerateOptions, generate};
use crate::model::checkpoint::MtpChoice;
use crate::{Error, Result};

/// Continue prompts with a model.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// A model's folder.
    model: PathBuf,
    /// A prompt; may be given several times, the prompts are decoded as one batch.
    #[arg(long, short, required_unless_present = "prompts")]
    prompt: Vec<String>,
    /// A text file with a prompt a line.
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Most tokens to generate for each prompt.
    #[arg(long, default_value_t = 64)]
    max_tokens: usize,
    /// 0 takes the likeliest token each time.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Draw from the likeliest tokens that together have this probability.
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Seed of the draws.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A token id that ends a continuation, beside the model's own; may be given several times.
    #[arg(long)]
    stop: Vec<u32>,
    /// "bytes", a tokenizer.json, or a folder with one [default: the model's, else bytes].
    #[arg(long)]
    tokenizer: Option<String>,
    /// Most tokens of one prefill pass.
    #[arg(long, default_value_t = 512)]
    prefill_chunk: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Continuation {
    prompt: String,
    text: String,
    tokens: Vec<u32>,
    /// The token id that ended it; null at the limit.
    stopped: Option<u32>,
}

pub fn run(args: Args) -> Result<()> {
    if args.prefill_chunk == 0 {
        return Err(Error::Usage("--prefill-chunk 0: expected at least 1".into()));
    }
    let lm = crate::model::load(&args.model, MtpChoice::Drop)?.lm;
    let tokenizer = Tokenizer::of_model(&args.model, args.tokenizer.as_deref())?;
    let mut prompts = args.prompt.clone();
    if let Some(path) = &args.prompts {
        let documents = text::read_text(path, text::Separation::File)?;
        prompts.extend(documents.iter().flat_map(|d| d.lines()).filter(|l| !l.is_empty()).map(str::to_owned));
    }
    let ids: Vec<Vec<u32>> =
        prompts.iter().map(|prompt| encode(&tokenizer, prompt, lm.config.vocab_size)).collect::<Result<_>>()?;
    let vocab = lm.config.vocab_size;
    if let Some(id) = args.stop.iter().find(|id| **id as usize >= vocab) {
        return Err(Error::Usage(format!("--stop {id}: expected an id below the model's vocabulary of {vocab}")));
    }
    let mut stop = lm.config.eos_token_ids.clone();
    stop.extend(&args.stop);
    let options = GenerateOptions {
        max_tokens: args.max_tokens,
        temperature: args.temperature,
        top_p: args.top_p,
        seed: args.seed,
        stop,
        prefill_chunk: args.prefill_chunk,
    };
    let lm = lm.at_current_place()?.unwrap_or(lm);
    let started = Instant::now();
    let generations = generate(&lm, &ids, &options)?;
    let seconds = started.elapsed().as_secs_f64();
    let mut continuations = Vec::with_capacity(prompts.len());
    for (prompt, generation) in prompts.into_iter().zip(generations) {
        // A model's vocabulary is often padded beyond its tokenizer's; such ids have no text.
        let known: Vec<u32> =
            generation.tokens.iter().copied().filter(|id| (*id as usize) < tokenizer.vocab_size()).collect();
        let text = tokenizer.decode(&known)?;
        continuations.push(Continuation { prompt, text, tokens: generation.tokens, stopped: generation.stopped });
    }
    if args.json {
        return output::json(&continuations);
    }
    for c in &continuations {
        output::line(&format!("{}{}", c.prompt, c.text))?;
    }
    let tokens: usize = continuations.iter().map(|c| c.tokens.len()).sum();
    output::note(&format!("{tokens} tokens in {seconds:.2} s"));
    Ok(())
}

/// A prompt's ids, each inside the model's vocabulary.
fn encode(tokenizer: &Tokenizer, prompt: &str, vocab: usize) -> Result<Vec<u32>> {
    let ids = tokenizer.encode_prompt(prompt)?;
    if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
        return Err(Error::Usage(format!(
            "prompt {prompt:?}: token id {id} is outside the model's vocabulary of {vocab}; give the model's --tokenizer"
        )));
    }
    if ids.is_empty() {
        return Err(Error::Usage("a prompt without tokens: give at least one character".into()));
    }
    Ok(ids)
}
