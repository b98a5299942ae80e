//! Eight small tasks over ASCII bytes, whose examples can be made without end, scored by exact match.
//!
//! | task | prompt | answer | asks for |
//! |---|---|---|---|
//! | copy | `Cqzae=` | `qzae` | memory of a sequence |
//! | reverse | `Rqzae=` | `eazq` | memory, read backwards |
//! | sort | `S5207=` | `0257` | a global rearrangement |
//! | modular_addition | `M58+71=` | `32` | arithmetic (here mod 97) |
//! | recall | `Ka3f7c1?fa=` | `73` | associative look-up |
//! | brackets | `B([]{=` | `})` | a stack |
//! | counting | `Nb:abbca=` | `2` | a counter |
//! | induction | `Pabcdab=` | `cdabcd` | continuing a pattern |
//!
//! A prompt begins with its task's tag and ends with `=`, so that one model serves all. A document is
//! `BOS prompt answer EOS`.
//!
//! Which split an example belongs to is a hash of its prompt: one prompt in eight is held out, whatever the seed and the
//! difficulty, so no held-out prompt is ever trained on.

pub mod brackets;
mod config;
pub mod copy;
pub mod counting;
mod generator;
pub mod induction;
pub mod modular_addition;
pub mod recall;
pub mod reverse;
pub mod sort;
mod source;

pub use config::TasksConfig;
pub use source::TaskSource;

use crate::data::tokenizer::{BOS, EOS};
use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    Copy,
    Reverse,
    Sort,
    ModularAddition,
    Recall,
    Brackets,
    Counting,
    Induction,
}

impl Task {
    pub const ALL: [Task; 8] = [
        Task::Copy,
        Task::Reverse,
        Task::Sort,
        Task::ModularAddition,
        Task::Recall,
        Task::Brackets,
        Task::Counting,
        Task::Induction,
    ];

    /// The name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Task::Copy => "copy",
            Task::Reverse => "reverse",
            Task::Sort => "sort",
            Task::ModularAddition => "modular_addition",
            Task::Recall => "recall",
            Task::Brackets => "brackets",
            Task::Counting => "counting",
            Task::Induction => "induction",
        }
    }

    /// The byte that its prompts begin with.
    pub fn tag(self) -> u8 {
        match self {
            Task::Copy => b'C',
            Task::Reverse => b'R',
            Task::Sort => b'S',
            Task::ModularAddition => b'M',
            Task::Recall => b'K',
            Task::Brackets => b'B',
            Task::Counting => b'N',
            Task::Induction => b'P',
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    Train,
    HeldOut,
}

impl Split {
    /// One prompt in eight is held out: FNV-1a over the bytes, its bits mixed so that the low ones depend on all.
    pub fn of(prompt: &[u8]) -> Split {
        let fnv = prompt
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        if (mixed >> 32).is_multiple_of(8) { Split::HeldOut } else { Split::Train }
    }

    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::HeldOut => "held-out",
        }
    }
}

/// One question and its only right answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Example {
    /// Tag first, `=` last.
    pub prompt: Vec<u8>,
    pub answer: Vec<u8>,
}

impl Example {
    /// What a model is given: `BOS prompt`.
    pub fn prompt_tokens(&self) -> Vec<u32> {
        std::iter::once(BOS).chain(self.prompt.iter().map(|&byte| u32::from(byte))).collect()
    }

    /// What a model must generate: `answer EOS`.
    pub fn answer_tokens(&self) -> Vec<u32> {
        self.answer.iter().map(|&byte| u32::from(byte)).chain([EOS]).collect()
    }

    /// Exact match: the generated ids are the answer and then EOS. What follows EOS does not count.
    pub fn is_answered_by(&self, generated: &[u32]) -> bool {
        generated.starts_with(&self.answer_tokens())
    }
}

/// The share of examples answered exactly; `generated[i]` are the ids that a model continued `examples[i]` with.
///
/// # Errors
/// [`Error::Contract`] where the two differ in number, or there are none.
pub fn exact_match(examples: &[Example], generated: &[Vec<u32>]) -> Result<f64> {
    if examples.is_empty() || examples.len() != generated.len() {
        let expected = format!("one per example, of which there are {} (at least 1)", examples.len());
        return Err(Error::contract("exact_match", "generated", generated.len(), expected));
    }
    let right = examples.iter().zip(generated).filter(|(example, generated)| example.is_answered_by(generated)).count();
    Ok(right as f64 / examples.len() as f64)
}

/// A fixed held-out set: for each task of weight above 0, its first `n_per_task` *distinct* held-out examples. A task has
/// fewer where its difficulty leaves fewer held-out prompts.
///
/// # Errors
/// [`Error::Usage`] where a difficulty is out of range or leaves no held-out prompt.
pub fn held_out(config: &TasksConfig, seed: u64, n_per_task: usize) -> Result<Vec<(&'static str, Vec<Example>)>> {
    let mut sets = Vec::new();
    for task in config.active() {
        let mut seen = std::collections::HashSet::new();
        let mut examples = Vec::new();
        // In a space of n prompts, all are seen after about n·ln n draws; a larger space rarely repeats one.
        let draws = n_per_task.saturating_mul(16).saturating_add(64) as u64;
        for index in 0..draws {
            if examples.len() == n_per_task {
                break;
            }
            let example = config.example(task, seed, Split::HeldOut, index)?;
            if seen.insert(example.prompt.clone()) {
                examples.push(example);
            }
        }
        sets.push((task.name(), examples));
    }
    Ok(sets)
}
