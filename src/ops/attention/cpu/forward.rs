use std::ops::Range;

use rayon::prelude::*;

use super::{Problem, TILE_KEYS, Tile, spans};
use crate::device::gemm::{Mat, matmul};
use crate::device::pool::Buffer;
use crate::numerics::exp_to_88;
use crate::ops::cross_entropy::softmax;

/// Keys of one task where a segment has few queries (decoding): its long key range is then what is cut.
const SPLIT_KEYS: usize = 1024;

/// Writes the output [R, Hq·D] and the log-sum-exp [R, Hq]. `qkv` are the three inputs.
pub fn forward(problem: &Problem, qkv: [&[f32]; 3], out: &mut [f32], lse: &mut [f32]) {
    let (heads, d) = (problem.dims.heads, problem.dims.head_dim);
    let mut tiles = Vec::new();
    let (mut out, mut lse) = (out, lse);
    for tile in problem.tiles() {
        let (rows, rest) = std::mem::take(&mut out).split_at_mut(tile.rows.len() * heads * d);
        let (sums, rest_sums) = std::mem::take(&mut lse).split_at_mut(tile.rows.len() * heads);
        (out, lse) = (rest, rest_sums);
        tiles.push((tile, rows, sums));
    }
    tiles.into_par_iter().for_each(|(tile, out, lse)| attend_tile(problem, qkv, &tile, out, lse));
}

/// One tile of queries, all heads: its rows of the output and of the log-sum-exp.
fn attend_tile(problem: &Problem, qkv: [&[f32]; 3], tile: &Tile, out: &mut [f32], lse: &mut [f32]) {
    let (dims, span) = (problem.dims, problem.span(tile));
    let single = tile.rows == problem.queries.range(tile.segment);
    let split = if single { SPLIT_KEYS } else { span.max(1) };
    let parts: Vec<Range<usize>> = spans(span, split).collect();
    let tasks: Vec<(usize, Range<usize>)> =
        (0..dims.kv_heads).flat_map(|head| parts.iter().map(move |part| (head, part.clone()))).collect();
    let partial: Vec<Partial> =
        tasks.into_par_iter().map(|(kv_head, part)| attend(problem, qkv, tile, kv_head, part)).collect();
    for kv_head in 0..dims.kv_heads {
        let partial = &partial[kv_head * parts.len()..][..parts.len()];
        merge(problem, partial, kv_head, out, lse);
    }
}

/// The softmax over some of the keys, of every stacked row: the largest score, Σ e^(score − largest), and that sum over v.
struct Partial {
    max: Vec<f32>,
    sum: Vec<f32>,
    /// [rows·G, D]
    acc: Buffer<f32>,
}

fn attend(problem: &Problem, [q, k, v]: [&[f32]; 3], tile: &Tile, kv_head: usize, part: Range<usize>) -> Partial {
    let (group, d) = (problem.dims.group(), problem.dims.head_dim);
    let rows = tile.rows.len() * group;
    let mut q_tile = Buffer::unwritten(rows * d);
    problem.pack(q, &tile.rows, kv_head, problem.scale(), &mut q_tile);
    let mut scores = Buffer::unwritten(rows * TILE_KEYS.min(part.len()));
    let mut partial =
        Partial { max: vec![f32::NEG_INFINITY; rows], sum: vec![0.0; rows], acc: Buffer::zeroed(rows * d) };
    for keys in spans(part.len(), TILE_KEYS) {
        let keys = part.start + keys.start..part.start + keys.end;
        let n = keys.len();
        let scores = &mut scores[..rows * n];
        let k_tile = problem.key_tile(k, tile.segment, kv_head, &keys);
        matmul(Mat::new(&q_tile, rows, d), k_tile.t(), scores, n, false);
        for (row, scores) in scores.chunks_exact_mut(n).enumerate() {
            let seen = problem.seen(tile.segment, tile.rows.start + row / group);
            partial.add_row(row, d, scores, seen.saturating_sub(keys.start).min(n));
        }
        let v_tile = problem.key_tile(v, tile.segment, kv_head, &keys);
        matmul(Mat::new(scores, rows, n), v_tile, &mut partial.acc, d, true);
    }
    partial
}

impl Partial {
    /// Turns a row's scores of one tile into weights relative to the largest score so far; the first `seen` count.
    #[inline]
    fn add_row(&mut self, row: usize, d: usize, scores: &mut [f32], seen: usize) {
        let (scores, hidden) = scores.split_at_mut(seen);
        hidden.fill(0.0);
        if scores.is_empty() {
            return;
        }
        let (old, tile_max) = (self.max[row], softmax::max(scores));
        let new = if tile_max > old { tile_max } else { old };
        if new > old {
            let kept = exp_to_88(old - new);
            self.max[row] = new;
            self.sum[row] *= kept;
            self.acc[row * d..][..d].iter_mut().for_each(|x| *x *= kept);
        }
        self.sum[row] += softmax::exp_sum(scores, new) as f32;
    }
}

/// Brings the parts of one key-value head together and writes its heads' columns.
fn merge(problem: &Problem, parts: &[Partial], kv_head: usize, out: &mut [f32], lse: &mut [f32]) {
    let (heads, group, d) = (problem.dims.heads, problem.dims.group(), problem.dims.head_dim);
    for (row, (out, lse)) in out.chunks_exact_mut(heads * d).zip(lse.chunks_exact_mut(heads)).enumerate() {
        let heads = out[problem.columns(kv_head)].chunks_exact_mut(d).zip(&mut lse[kv_head * group..]);
        for (g, (out, lse)) in heads.enumerate() {
            let at = row * group + g;
            let max = parts.iter().fold(f32::NEG_INFINITY, |max, part| max.max(part.max[at]));
            let weight = |part: &Partial| if part.max[at] == max { 1.0 } else { exp_to_88(part.max[at] - max) };
            let sum: f32 = parts.iter().map(|part| part.sum[at] * weight(part)).sum();
            if sum == 0.0 {
                out.fill(0.0);
                *lse = f32::NEG_INFINITY;
                continue;
            }
            *lse = max + sum.ln();
            for (i, part) in parts.iter().enumerate() {
                let factor = weight(part) / sum;
                let pairs = out.iter_mut().zip(&part.acc[at * d..][..d]);
                pairs.for_each(|(out, x)| *out = if i == 0 { x * factor } else { *out + x * factor });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::AttentionDims;
    use super::*;
    use crate::tensor::Segments;

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // one segment, whose keys are that range
    fn the_log_sum_exp_of_a_query_without_keys_is_minus_infinity() {
        let dims = AttentionDims { heads: 2, kv_heads: 1, head_dim: 1 };
        let problem = Problem { dims, queries: Segments::uniform(1, 3), keys: vec![0..2] };
        let (mut out, mut lse) = (vec![f32::NAN; 6], vec![f32::NAN; 6]);
        forward(&problem, [&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0], &[0.5, 1.5], &[3.0, 4.0]], &mut out, &mut lse);
        assert_eq!((&out[..2], &lse[..2]), (&[0.0, 0.0][..], &[f32::NEG_INFINITY; 2][..]));
        assert_eq!((&out[2..4], &lse[2..4]), (&[3.0, 3.0][..], &[0.5, 1.0][..]));
        assert!((lse[4] - (0.5f32.exp() + 1.5f32.exp()).ln()).abs() < 1e-6);
    }
}
