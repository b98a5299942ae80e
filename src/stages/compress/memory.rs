//! Refuses, before any work, sizes that this machine's memory cannot hold.

use std::path::Path;

use super::{Recipe, profile};
use crate::Result;
use crate::cost::Contract;
use crate::data::{DataConfig, sequences_of_pass};
use crate::device::{self, memory};
use crate::engine;
use crate::model::Config;
use crate::search::Trained;
use crate::supernet::SearchSpace;

/// Bytes of a built-in task's example in memory, at the least.
const EXAMPLE: u64 = 64;

/// Holds every stage's least need beside the parent's weights against the machine's memory.
///
/// The needs are lower bounds, tokens and one residual stream, so that nothing that could work is refused.
///
/// # Errors
/// [`Error::Memory`](crate::Error::Memory) naming the file and the keys.
pub fn check(recipe: &Recipe, recipe_path: &Path, contract: &Contract, space: &SearchSpace) -> Result<()> {
    let parent = &space.parent;
    let parameters = parent.parameters().total;
    let (width, layers) = (parent.hidden_size, parent.layers.len());
    let search = &recipe.search.training;
    let searched = if recipe.search.train == Trained::Joint { parameters } else { 0 };
    let recover = &recipe.recover.training;
    // On a GPU whole models are served in its memory, and its driver says where that is too small.
    let is_here = contract.is_served_here() && device::current().is_none();
    let here = |needed| if is_here { needed } else { Some(0) };
    let needs = [
        (recipe_path, "rank.length", pass(recipe.rank.sequences, recipe.rank.length, width)),
        (recipe_path, "profile.held_out", here(profile::held_out_bytes(space, &recipe.profile))),
        (recipe_path, "search.training.sequences, length", search.least_memory(searched, width, layers)),
        // The student may be of any size; the parent reads the same micro-batches.
        (recipe_path, "recover.training.sequences, length", recover.least_memory(0, width, 1)),
        (recipe_path, "evaluate.sequences, length, examples", evaluation(recipe, width)),
        (contract.file.as_path(), "workload", here(request(contract, parent))),
    ];
    for (file, keys, needed) in needs {
        let all = needed.and_then(|needed| needed.checked_add(parameters.checked_mul(4)?));
        memory::require(&format!("{}: {keys}", file.display()), all)?;
    }
    Ok(())
}

/// One of the forward passes over `sequences` sequences: ids, targets, one residual stream in f32.
fn pass(sequences: usize, length: usize, width: usize) -> Option<u64> {
    (sequences_of_pass(sequences, length) as u64).checked_mul(length as u64)?.checked_mul(8 + 4 * width as u64)
}

/// The whole held-out set, one pass over it, and the examples.
fn evaluation(recipe: &Recipe, width: usize) -> Option<u64> {
    let evaluate = &recipe.evaluate;
    let set = (evaluate.sequences as u64).checked_mul(evaluate.length as u64)?.checked_mul(8)?;
    let tasks = match &recipe.data {
        DataConfig::Tasks(tasks) if evaluate.records.is_none() => tasks.active().count() as u64,
        _ => 0,
    };
    let examples = (evaluate.examples as u64).checked_mul(tasks * EXAMPLE)?;
    set.checked_add(pass(evaluate.sequences, evaluate.length, width)?)?.checked_add(examples)
}

/// Caches, prompts and logits of a request, where this machine serves it.
fn request(contract: &Contract, parent: &Config) -> Option<u64> {
    let workload = &contract.workload;
    let caches = engine::cache_bytes(parent, workload.batch, workload.capacity())?;
    let prompts = (workload.batch as u64).checked_mul(workload.input_tokens as u64)?.checked_mul(4)?;
    let logits = (workload.batch as u64).checked_mul(parent.vocab_size as u64)?.checked_mul(4)?;
    caches.checked_add(prompts)?.checked_add(logits)
}
