use super::super::super::embedded::abi;
use super::super::workload::Contents::{self, F32, Words};
use super::super::workload::Set;

/// Intervals of an axis, at the most.
const CANDIDATES: usize = 8;
/// Draws of the rows, each of as many in a row.
const DRAWS: usize = 8;

/// A mask over an axis, in three buffers: intervals of equal size, another draw for each eighth of the rows.
#[derive(Clone, Copy)]
pub struct Masked {
    rows: usize,
    axis: usize,
    candidates: usize,
}

impl Masked {
    pub fn new(rows: usize, axis: usize) -> Masked {
        Masked { rows, axis, candidates: CANDIDATES.min(axis) }
    }

    /// One interval, as of a layer's gate.
    pub fn gate(rows: usize, axis: usize) -> Masked {
        Masked { rows, axis, candidates: 1 }
    }

    pub fn contents(self) -> [Contents; 3] {
        let ends = (1..=self.candidates).map(|c| (self.axis * c / self.candidates) as u32).collect();
        [Words(ends), F32(DRAWS * self.candidates), Words((0..DRAWS as u32).collect())]
    }

    /// Bytes of the sums that are left for mask_grad: one of each row and interval.
    pub fn row_sums(self) -> usize {
        4 * self.rows * self.candidates
    }

    /// The mask whose buffers begin at `first`.
    pub fn at(self, set: &Set, first: usize) -> abi::Mask {
        abi::Mask {
            ends: set.at(first),
            keep: set.at(first + 1),
            draw: set.at(first + 2),
            length: self.rows.div_ceil(DRAWS) as u32,
            candidates: self.candidates as u32,
        }
    }
}
