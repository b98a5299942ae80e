use std::ops::Range;
use std::sync::Arc;

/// How the rows of a flat activation [R, …] are cut into independent sequences.
///
/// Row offsets, first 0 and last R ("cu_seqlens" elsewhere). Sequences of a batch, packed documents and single decode tokens
/// are all segments; no op lets anything pass from one segment to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    offsets: Arc<[usize]>,
}

impl Segments {
    /// From offsets; `None` unless they start at 0 and never fall. Empty segments are allowed.
    pub fn from_offsets(offsets: &[usize]) -> Option<Segments> {
        let valid = offsets.first() == Some(&0) && offsets.windows(2).all(|w| w[0] <= w[1]);
        valid.then(|| Segments { offsets: offsets.into() })
    }

    /// `count` sequences of `length` rows each.
    pub fn uniform(count: usize, length: usize) -> Segments {
        Segments { offsets: (0..=count).map(|i| i * length).collect() }
    }

    pub fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn rows(&self) -> usize {
        self.offsets[self.count()]
    }

    pub fn range(&self, segment: usize) -> Range<usize> {
        self.offsets[segment]..self.offsets[segment + 1]
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.offsets.windows(2).map(|w| w[0]..w[1])
    }

    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Pieces of at most `chunk` rows, each within one segment: (segment, rows), in row order.
    pub fn chunks(&self, chunk: usize) -> Vec<(usize, Range<usize>)> {
        let mut pieces = Vec::new();
        for (segment, rows) in self.iter().enumerate() {
            let mut start = rows.start;
            while start < rows.end {
                let end = (start + chunk).min(rows.end);
                pieces.push((segment, start..end));
                start = end;
            }
        }
        pieces
    }
}
