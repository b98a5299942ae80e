//! Where sequences come from.

use std::ops::Range;

use crate::data::batch::{Batch, IGNORE};
use crate::data::tokenizer::PAD;
use crate::{Error, Result};

/// Whether a document sees the one before it in its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundaries {
    /// Each document starts a segment: attention and recurrent state begin afresh.
    #[default]
    Apart,
    /// A row is one segment. Targets still never cross the end of a document.
    Joined,
}

/// Which sequence of a run is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub seed: u64,
    pub step: u64,
    /// Row of the step's batch, below `sequences`.
    pub row: usize,
    /// B.
    pub sequences: usize,
}

impl Place {
    /// The row's number in the whole run.
    ///
    /// # Errors
    /// [`Error::Usage`] where the number passes 64 bits.
    pub fn global_row(&self) -> Result<u64> {
        let number = self.step.checked_mul(self.sequences as u64).and_then(|n| n.checked_add(self.row as u64));
        number.ok_or_else(|| {
            Error::Usage(format!(
                "step: found {} with {} sequences, expected below 2^64 rows",
                self.step, self.sequences
            ))
        })
    }
}

/// One sequence to fill; `tokens` and `targets` are `[T]`.
pub struct Row<'a> {
    pub tokens: &'a mut [u32],
    pub targets: &'a mut [u32],
    /// Segment starts inside the row, increasing. 0 may be left out: a row always starts a segment.
    pub starts: &'a mut Vec<usize>,
}

/// A source of sequences, addressed at random: what it fills depends on the [`Place`] and T alone.
pub trait Source: Send + Sync {
    /// Writes every token and every target of `row`.
    fn fill(&self, place: Place, row: Row<'_>) -> Result<()>;

    /// Tokens until the source begins again; `None` where it never does.
    fn tokens(&self) -> Option<usize> {
        None
    }

    /// The batch of a step: `sequences` = B rows of `length` = T tokens.
    ///
    /// # Errors
    /// [`Error::Usage`] where B·T passes the address space, or what [`fill`](Self::fill) returns.
    fn batch(&self, seed: u64, step: u64, sequences: usize, length: usize) -> Result<Batch> {
        self.part(seed, step, sequences, 0..sequences, length)
    }

    /// The rows `part` of the batch of a step of `all` = B rows.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    fn part(&self, seed: u64, step: u64, all: usize, part: Range<usize>, length: usize) -> Result<Batch> {
        let sequences = part.len();
        let total = sequences.checked_mul(length).filter(|&total| total > 0).ok_or_else(|| {
            Error::Usage(format!("batch: found {sequences} sequences of {length} tokens, expected both at least 1"))
        })?;
        let (mut tokens, mut targets) = (vec![PAD; total], vec![IGNORE; total]);
        let mut segments = Vec::with_capacity(sequences + 1);
        let mut starts = Vec::new();
        let rows = tokens.chunks_exact_mut(length).zip(targets.chunks_exact_mut(length));
        for (row, (tokens, targets)) in rows.enumerate() {
            starts.clear();
            let place = Place { seed, step, row: part.start + row, sequences: all };
            self.fill(place, Row { tokens, targets, starts: &mut starts })?;
            let first = row * length;
            segments.push(first);
            segments.extend(starts.iter().filter(|&&start| start > 0).map(|start| first + start));
        }
        segments.push(total);
        debug_assert!(segments.windows(2).all(|pair| pair[0] < pair[1]));
        Ok(Batch { sequences, length, tokens, targets, segments })
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn fill(&self, place: Place, row: Row<'_>) -> Result<()> {
        (**self).fill(place, row)
    }

    fn tokens(&self) -> Option<usize> {
        (**self).tokens()
    }
}

impl<S: Source + ?Sized> Source for std::sync::Arc<S> {
    fn fill(&self, place: Place, row: Row<'_>) -> Result<()> {
        (**self).fill(place, row)
    }

    fn tokens(&self) -> Option<usize> {
        (**self).tokens()
    }
}
