//! What each task provides, and helpers that tasks share.

use super::Example;
use crate::data::random::Random;
use crate::{Error, Result};

pub const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
/// In ASCII order, so that sorting bytes sorts symbols.
pub const SYMBOLS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The byte before an answer.
pub const SEPARATOR: u8 = b'=';

/// A task at a difficulty.
pub(in crate::data) trait Generator {
    /// Its share among the documents of a mixture, relative to the other tasks' weights.
    fn weight(&self) -> f64;

    /// # Errors
    /// [`Error::Usage`] naming the key whose value is out of range.
    fn check(&self) -> Result<()>;

    /// Tokens of the longest document, `BOS prompt answer EOS`.
    fn longest_document(&self) -> usize;

    /// One example of either split. The difficulty has been checked.
    fn draw(&self, random: &mut Random) -> Example;
}

/// [`Error::Usage`] unless `low <= value <= high`; `key` is `task.key`.
pub fn check_range(key: &str, value: usize, low: usize, high: usize) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::Usage(format!("{key}: found {value}, expected {low} to {high}")))
}

/// Checks `task.min_NOUN` and `task.max_NOUN`: both in `low..=high` and in order.
pub fn check_span(task: &str, noun: &str, (min, max): (usize, usize), low: usize, high: usize) -> Result<()> {
    check_range(&format!("{task}.max_{noun}"), max, low, high)?;
    check_range(&format!("{task}.min_{noun}"), min, low, max)
}

/// `tag`, then `parts`, then the separator.
pub fn prompt(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut prompt = vec![tag];
    parts.iter().for_each(|part| prompt.extend_from_slice(part));
    prompt.push(SEPARATOR);
    prompt
}
