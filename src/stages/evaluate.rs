//! `evaluate`: loss, perplexity and exact match of a model on the built-in tasks or on a user's records.
//!
//! Exact match is that of greedy decoding, found without decoding: a greedy continuation equals the answer exactly where the
//! most likely token after every prefix of the answer is the answer's next one, and one forward pass sees all prefixes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::autograd::Tape;
use crate::data::text::{Record, Records};
use crate::data::{IGNORE, TasksConfig, Tokenizer, tasks};
use crate::model::{Input, Lm};
use crate::ops::cross_entropy::token_losses;
use crate::tensor::Segments;
use crate::{Error, Result};

/// Rows of one forward pass.
const ROWS: usize = 4096;

/// A continuation to be scored: `tokens[answer_from..]` is predicted from what lies before it.
#[derive(Clone, Debug)]
pub struct Item {
    pub tokens: Vec<u32>,
    pub answer_from: usize,
}

/// What a model makes of an [`Item`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// −log probability of the answer, nats.
    pub nats: f64,
    /// Tokens of the answer.
    pub tokens: usize,
    /// Whether greedy decoding gives the answer.
    pub exact: bool,
}

/// Scores items in batches of whole items.
///
/// # Errors
/// Those of the model, and where the GPU that is computed on fails.
pub fn score(lm: &Lm, items: &[Item]) -> Result<Vec<Score>> {
    let placed = lm.at_current_place()?;
    let lm = placed.as_ref().unwrap_or(lm);
    let mut scores = Vec::with_capacity(items.len());
    let mut rest = items;
    while !rest.is_empty() {
        let mut rows = 0;
        let count = rest.iter().take_while(|item| {
            rows += item.tokens.len();
            rows <= ROWS
        });
        let (batch, tail) = rest.split_at(count.count().max(1));
        score_batch(lm, batch, &mut scores)?;
        rest = tail;
    }
    Ok(scores)
}

fn score_batch(lm: &Lm, items: &[Item], scores: &mut Vec<Score>) -> Result<()> {
    let (mut tokens, mut targets, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
    for item in items {
        let count = item.tokens.len();
        if item.answer_from == 0 || item.answer_from >= count {
            let found = format!("an answer from token {} of {count}", item.answer_from);
            return Err(Error::contract("evaluate", "item", found, "at least one token before the answer and in it"));
        }
        tokens.extend_from_slice(&item.tokens);
        targets.extend((0..count).map(|t| match item.tokens.get(t + 1) {
            Some(next) if t + 1 >= item.answer_from => *next,
            _ => IGNORE,
        }));
        offsets.push(tokens.len());
    }
    let segments = Segments::from_offsets(&offsets).unwrap_or_else(|| unreachable!("offsets rise from 0"));
    let tape = Tape::inference();
    let hidden = lm.forward(&tape, &Input::new(&tokens, &segments))?.hidden;
    let losses = token_losses(hidden.value(), lm.head(&tape).value(), &targets)?;
    for rows in segments.iter() {
        let mut score = Score { exact: true, ..Score::default() };
        for row in rows.filter(|row| targets[*row] != IGNORE) {
            score.nats += f64::from(losses[row].nats);
            score.tokens += 1;
            score.exact &= losses[row].top == targets[row];
        }
        scores.push(score);
    }
    Ok(())
}

/// Results over a set of items.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub name: String,
    pub items: usize,
    /// Mean nats per answer token.
    pub loss: f64,
    pub perplexity: f64,
    /// Share of items that greedy decoding answers exactly; for multiple choice, of items whose likeliest choice is right.
    pub accuracy: Option<f64>,
    /// Multiple choice: the same by nats per token, which does not favour short choices.
    pub accuracy_per_token: Option<f64>,
}

/// What `evaluate` reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evaluation {
    pub parts: Vec<Summary>,
    /// Over all answer tokens of all parts.
    pub loss: f64,
    pub perplexity: f64,
    /// The mean of the parts' accuracies, each part counting once.
    pub mean_accuracy: Option<f64>,
}

struct Part {
    summary: Summary,
    nats: f64,
    tokens: usize,
}

fn part(name: &str, scores: &[Score], accuracy: Option<f64>, accuracy_per_token: Option<f64>) -> Part {
    let nats: f64 = scores.iter().map(|s| s.nats).sum();
    let tokens: usize = scores.iter().map(|s| s.tokens).sum();
    let loss = nats / tokens.max(1) as f64;
    let summary =
        Summary { name: name.into(), items: scores.len(), loss, perplexity: loss.exp(), accuracy, accuracy_per_token };
    Part { summary, nats, tokens }
}

fn share(right: usize, of: usize) -> f64 {
    right as f64 / of.max(1) as f64
}

fn evaluation(parts: Vec<Part>) -> Result<Evaluation> {
    let tokens: usize = parts.iter().map(|p| p.tokens).sum();
    let loss = parts.iter().map(|p| p.nats).sum::<f64>() / tokens.max(1) as f64;
    let accuracies: Vec<f64> = parts.iter().filter_map(|p| p.summary.accuracy).collect();
    if !loss.is_finite() {
        return Err(Error::contract("evaluate", "loss", loss, "a finite number: the weights are too large"));
    }
    Ok(Evaluation {
        loss,
        perplexity: loss.exp(),
        mean_accuracy: (!accuracies.is_empty()).then(|| accuracies.iter().sum::<f64>() / accuracies.len() as f64),
        parts: parts.into_iter().map(|p| p.summary).collect(),
    })
}

/// The built-in tasks' held-out examples, `per_task` of each.
pub fn evaluate_tasks(lm: &Lm, config: &TasksConfig, seed: u64, per_task: usize) -> Result<Evaluation> {
    if lm.config.vocab_size < 128 {
        let found = format!("a vocabulary of {}", lm.config.vocab_size);
        return Err(Error::Usage(format!("found {found}, expected at least 128: the built-in tasks are ASCII bytes")));
    }
    let placed = lm.at_current_place()?;
    let lm = placed.as_ref().unwrap_or(lm);
    let mut parts = Vec::new();
    for (name, examples) in tasks::held_out(config, seed, per_task)? {
        let items: Vec<Item> = (examples.iter())
            .map(|example| {
                let mut tokens = example.prompt_tokens();
                let answer_from = tokens.len();
                tokens.extend(example.answer_tokens());
                Item { tokens, answer_from }
            })
            .collect();
        let scores = score(lm, &items)?;
        let exact = scores.iter().filter(|s| s.exact).count();
        parts.push(part(name, &scores, Some(share(exact, scores.len())), None));
    }
    evaluation(parts)
}

/// A user's JSONL, tokenized: `{"text"}` for loss alone, `{"prompt", "answer"}` for exact match, `{"prompt", "choices",
/// "answer"}` for multiple choice.
#[derive(Clone, Debug, Default)]
pub struct RecordSet {
    texts: Vec<Item>,
    completions: Vec<Item>,
    choices: Vec<Item>,
    /// Of each question, its items among `choices` and the number of the right one.
    questions: Vec<(std::ops::Range<usize>, usize)>,
}

impl RecordSet {
    /// Reads and checks every line.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Input`] naming the line that is no record, or whose tokens a vocabulary of `vocab_size` does
    /// not have, and where there is none at all.
    pub fn from_file(path: &Path, tokenizer: &Tokenizer, vocab_size: usize) -> Result<RecordSet> {
        let mut set = RecordSet::default();
        let mut records = Records::open(path)?;
        while let Some(record) = records.next() {
            let line = records.line();
            let item = |prompt: Option<&str>, answer: &str| item(vocab_size, tokenizer, path, line, prompt, answer);
            match record? {
                Record::Text(text) => set.texts.push(item(None, &text)?),
                Record::Completion { prompt, answer } => set.completions.push(item(Some(&prompt), &answer)?),
                Record::Choice { prompt, choices, answer } => {
                    let first = set.choices.len();
                    for option in &choices {
                        set.choices.push(item(Some(&prompt), option)?);
                    }
                    set.questions.push((first..set.choices.len(), answer));
                }
            }
        }
        if set.texts.is_empty() && set.completions.is_empty() && set.questions.is_empty() {
            return Err(Error::input(path, "whole file", "no records", "at least one line of JSON"));
        }
        Ok(set)
    }
}

/// Each kind of record that occurs is a part of the result.
pub fn evaluate_records(lm: &Lm, records: &RecordSet) -> Result<Evaluation> {
    let placed = lm.at_current_place()?;
    let lm = placed.as_ref().unwrap_or(lm);
    let RecordSet { texts, completions, choices, questions } = records;
    let mut parts = Vec::new();
    if !texts.is_empty() {
        parts.push(part("text", &score(lm, texts)?, None, None));
    }
    if !completions.is_empty() {
        let scores = score(lm, completions)?;
        let exact = scores.iter().filter(|s| s.exact).count();
        parts.push(part("exact match", &scores, Some(share(exact, scores.len())), None));
    }
    if !questions.is_empty() {
        let scores = score(lm, choices)?;
        let right = |cost: &dyn Fn(&Score) -> f64| {
            let hits = questions.iter().filter(|(range, answer)| {
                let best = range.clone().min_by(|a, b| cost(&scores[*a]).total_cmp(&cost(&scores[*b])));
                best == Some(range.start + answer)
            });
            share(hits.count(), questions.len())
        };
        let (by_sum, by_token) = (right(&|s| s.nats), right(&|s| s.nats / s.tokens as f64));
        let answers: Vec<Score> = questions.iter().map(|(range, answer)| scores[range.start + answer]).collect();
        parts.push(part("multiple choice", &answers, Some(by_sum), Some(by_token)));
    }
    evaluation(parts)
}

/// A record as an item. Without a prompt, everything after the first token is predicted.
fn item(
    vocab_size: usize,
    tokenizer: &Tokenizer,
    path: &Path,
    line: usize,
    prompt: Option<&str>,
    answer: &str,
) -> Result<Item> {
    let (tokens, answer_from) = match prompt {
        None => (tokenizer.encode_document(answer)?, 1),
        Some(prompt) => {
            let mut tokens = tokenizer.encode_prompt(prompt)?;
            let answer_from = tokens.len();
            tokens.extend(tokenizer.encode(answer)?);
            (tokens, answer_from)
        }
    };
    let at = format!("line {line}");
    if let Some(id) = tokens.iter().find(|id| **id as usize >= vocab_size) {
        let expected = format!("below the model's vocabulary of {vocab_size}");
        return Err(Error::input(path, at, format!("token id {id}"), expected));
    }
    if answer_from == 0 || answer_from >= tokens.len() {
        let found = format!("{answer_from} tokens of prompt, {} of answer", tokens.len() - answer_from);
        return Err(Error::input(path, at, found, "at least one of each"));
    }
    Ok(Item { tokens, answer_from })
}
