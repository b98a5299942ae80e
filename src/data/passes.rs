//! Sequences that are read once, forward only.

use super::{Batch, Source};
use crate::Result;

/// Tokens of one forward pass, about.
const ROWS: usize = 4096;

/// Sequences of one pass over `sequences` of `length` tokens.
pub fn sequences_of_pass(sequences: usize, length: usize) -> usize {
    (ROWS / length.max(1)).clamp(1, sequences.max(1))
}

/// The first `sequences` rows of `seed`, each once, in batches of [`sequences_of_pass`].
pub fn passes(
    source: &dyn Source,
    seed: u64,
    sequences: usize,
    length: usize,
) -> impl ExactSizeIterator<Item = Result<Batch>> + use<'_> {
    let together = sequences_of_pass(sequences, length);
    (0..sequences.div_ceil(together)).map(move |pass| {
        let first = pass * together;
        source.part(seed, 0, sequences, first..sequences.min(first + together), length)
    })
}
