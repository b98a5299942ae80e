use std::path::{Path, PathBuf};

use serde_json::json;

use super::output;
use crate::autograd::Tape;
use crate::model::checkpoint::{MtpChoice, Stored, header};
use crate::model::{Input, Lm};
use crate::tensor::{Segments, Tensor};
use crate::{Error, Result, files};

/// Logits of token sequences, to hold a model against another implementation.
#[derive(clap::Args)]
pub struct Args {
    /// A model's folder.
    model: PathBuf,
    /// JSON: a list of sequences, each a list of token ids.
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,
    /// Where to write the logits: safetensors, F32 [T, V] under the sequence's number.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print what was written as JSON.
    #[arg(long)]
    json: bool,
}

/// Refuses to write over what is read.
fn check_place(args: &Args) -> Result<()> {
    let Ok(out) = args.out.canonicalize() else { return Ok(()) };
    let inputs = [("a file of the model", &args.model), ("the tokens", &args.tokens)];
    match inputs.into_iter().find(|(_, input)| input.canonicalize().is_ok_and(|input| out.starts_with(input))) {
        Some((what, _)) => {
            Err(Error::Usage(format!("--out {}: found {what}, expected another file", args.out.display())))
        }
        None => Ok(()),
    }
}

pub fn run(args: Args) -> Result<()> {
    check_place(&args)?;
    let lm = crate::model::load(&args.model, MtpChoice::Drop)?.lm;
    let sequences: Vec<Vec<u32>> = files::read_input_json(&args.tokens, "a list of lists of token ids")?;
    check(&args.tokens, &sequences, lm.config.vocab_size)?;
    let lm = lm.at_current_place()?.unwrap_or(lm);
    let logits: Vec<Logits> =
        (sequences.iter().enumerate()).map(|(i, tokens)| logits(&lm, i, tokens)).collect::<Result<_>>()?;
    files::write_atomic(&args.out, |file| {
        file.write_all(&header(&logits))?;
        logits.iter().try_for_each(|logits| {
            let bytes: Vec<u8> = logits.values.f32().iter().flat_map(|value| value.to_le_bytes()).collect();
            file.write_all(&bytes)
        })
    })?;
    let rows: usize = sequences.iter().map(Vec::len).sum();
    if args.json {
        let [sequences, vocab_size] = [sequences.len(), lm.config.vocab_size];
        return output::json(
            &json!({ "sequences": sequences, "rows": rows, "vocab_size": vocab_size, "file": args.out }),
        );
    }
    output::line(&format!("{} sequences, {rows} rows of logits → {}", sequences.len(), args.out.display()))
}

fn check(file: &Path, sequences: &[Vec<u32>], vocab_size: usize) -> Result<()> {
    if sequences.is_empty() {
        return Err(Error::input(file, "whole file", "no sequence", "at least one"));
    }
    for (i, tokens) in sequences.iter().enumerate() {
        if tokens.is_empty() {
            return Err(Error::input(file, format!("sequence {i}"), "no token", "at least one"));
        }
        if let Some(id) = tokens.iter().find(|id| **id as usize >= vocab_size) {
            let expected = format!("below the model's vocabulary of {vocab_size}");
            return Err(Error::input(file, format!("sequence {i}"), format!("token id {id}"), expected));
        }
    }
    Ok(())
}

/// Of one sequence.
struct Logits {
    name: String,
    shape: [usize; 2],
    /// [T, V], f32.
    values: Tensor,
}

impl Stored for Logits {
    fn name(&self) -> &str {
        &self.name
    }

    fn dtype(&self) -> &str {
        "F32"
    }

    fn element_bytes(&self) -> usize {
        4
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn bytes(&self) -> u64 {
        4 * self.shape.iter().map(|n| *n as u64).product::<u64>()
    }
}

fn logits(lm: &Lm, number: usize, tokens: &[u32]) -> Result<Logits> {
    let segments = Segments::from_offsets(&[0, tokens.len()]).unwrap_or_else(|| unreachable!("offsets rise from 0"));
    let tape = Tape::inference();
    let hidden = lm.forward(&tape, &Input::new(tokens, &segments))?.hidden;
    let values = lm.logits(hidden.value())?.to_host()?;
    Ok(Logits { name: number.to_string(), shape: [tokens.len(), lm.config.vocab_size], values })
}
