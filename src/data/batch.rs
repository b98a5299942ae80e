//! What one training step reads.

use crate::tensor::Segments;
use crate::{Error, Result};

/// The target of a position that the loss leaves out.
pub const IGNORE: u32 = u32::MAX;

/// B sequences of T tokens, row-major.
///
/// A target never crosses the end of a document or of a sequence: `targets[i]` is `tokens[i + 1]` or [`IGNORE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// B.
    pub sequences: usize,
    /// T.
    pub length: usize,
    /// `[B·T]`.
    pub tokens: Vec<u32>,
    /// `[B·T]`: the next token, or [`IGNORE`].
    pub targets: Vec<u32>,
    /// Offsets into the B·T rows, strictly increasing, first 0, last B·T: every start of a sequence and, where documents
    /// are kept apart, of a document (the `cu_seqlens` of variable-length attention).
    pub segments: Vec<usize>,
}

impl Batch {
    /// Which rows form one sequence.
    ///
    /// # Errors
    /// [`Error::Contract`] where the offsets do not rise from 0.
    pub fn rows(&self) -> Result<Segments> {
        Segments::from_offsets(&self.segments)
            .ok_or_else(|| Error::contract("batch", "segments", &self.segments, "offsets that rise from 0"))
    }

    /// How many positions the loss counts.
    pub fn valid_tokens(&self) -> usize {
        self.targets.iter().filter(|&&target| target != IGNORE).count()
    }

    /// The batch in `parts` equal batches of whole sequences; `parts` divides their number.
    pub fn split(&self, parts: usize) -> Vec<Batch> {
        let sequences = self.sequences / parts.max(1);
        let rows = (sequences * self.length).max(1);
        let piece = |first: usize| {
            let inside = |offset: &&usize| (first..=first + rows).contains(*offset);
            Batch {
                sequences,
                length: self.length,
                tokens: self.tokens[first..first + rows].to_vec(),
                targets: self.targets[first..first + rows].to_vec(),
                segments: self.segments.iter().filter(inside).map(|offset| offset - first).collect(),
            }
        };
        (0..self.tokens.len() / rows).map(|part| piece(part * rows)).collect()
    }
}
