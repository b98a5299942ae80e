//! The f32 code. Query rows of all heads that share a key-value head are stacked as one matrix: row t·G + g is query t of
//! head g of the group, so that a tile of keys is read once for the group.

mod backward;
mod forward;

use std::ops::Range;

use super::AttentionDims;
use crate::device::gemm::Mat;
use crate::tensor::Segments;

pub use backward::{Saved, backward};
pub use forward::forward;

/// Stacked query rows, and keys, of a tile: its scores (64 KiB) stay in the second-level cache.
const TILE_ROWS: usize = 128;
const TILE_KEYS: usize = 128;

pub struct Problem {
    pub dims: AttentionDims,
    pub queries: Segments,
    /// Rows of k and v, one range a segment.
    pub keys: Vec<Range<usize>>,
}

/// Consecutive queries of one segment.
struct Tile {
    segment: usize,
    /// Rows of q.
    rows: Range<usize>,
}

impl Problem {
    /// Queries of a tile.
    fn tile_len(&self) -> usize {
        (TILE_ROWS / self.dims.group()).max(1)
    }

    /// All tiles, in row order; they cover the rows.
    fn tiles(&self) -> Vec<Tile> {
        let pieces = self.queries.chunks(self.tile_len());
        pieces.into_iter().map(|(segment, rows)| Tile { segment, rows }).collect()
    }

    /// How many of the segment's keys a row of q sees.
    fn seen(&self, segment: usize, row: usize) -> usize {
        let (queries, keys) = (self.queries.range(segment), self.keys[segment].len());
        (keys + (row - queries.start) + 1).saturating_sub(queries.len())
    }

    /// How many of the segment's keys any row of the tile sees: the last one sees most.
    fn span(&self, tile: &Tile) -> usize {
        self.seen(tile.segment, tile.rows.end - 1)
    }

    /// Rows of k or v that a tile's keys `keys` (counted from the segment's first) are, for one key-value head: [keys, D].
    fn key_tile<'a>(&self, x: &'a [f32], segment: usize, kv_head: usize, keys: &Range<usize>) -> Mat<'a> {
        let d = self.dims.head_dim;
        let stride = self.dims.kv_heads * d;
        let first = (self.keys[segment].start + keys.start) * stride + kv_head * d;
        Mat::strided(&x[first..], keys.len(), d, stride)
    }

    /// Columns of a key-value head's group in a row of q.
    fn columns(&self, kv_head: usize) -> Range<usize> {
        let width = self.dims.group() * self.dims.head_dim;
        kv_head * width..(kv_head + 1) * width
    }

    /// scale·x of rows `rows` of x [R, Hq·D], stacked: [rows·G, D].
    fn pack(&self, x: &[f32], rows: &Range<usize>, kv_head: usize, scale: f32, out: &mut [f32]) {
        let (columns, stride) = (self.columns(kv_head), self.dims.heads * self.dims.head_dim);
        for (row, out) in rows.clone().zip(out.chunks_exact_mut(columns.len())) {
            let x = &x[row * stride..][columns.clone()];
            out.iter_mut().zip(x).for_each(|(out, x)| *out = x * scale);
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.dims.head_dim as f32).sqrt()
    }
}

/// Spans of `len` that cover 0..end.
fn spans(end: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..end).step_by(len).map(move |start| start..(start + len).min(end))
}
