use std::ops::Range;

use rayon::prelude::*;

use super::{Problem, TILE_KEYS, Tile, spans};
use crate::device::gemm::{Mat, matmul};
use crate::device::parallel::{dot, for_rows};
use crate::device::pool::Buffer;
use crate::numerics::exp_to_88;
use crate::tensor::Tensor;

/// Tasks that a backward pass is cut into at least, if it has as many tiles.
const FEWEST_TASKS: usize = 8;

pub struct Saved<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub out: &'a [f32],
    /// [R, Hq]
    pub lse: &'a [f32],
    pub dout: &'a [f32],
}

/// A share of one segment's queries, with one key-value head.
struct Task {
    segment: usize,
    kv_head: usize,
    /// Every `parts`-th tile of the segment, from this one on: later queries see more keys, so shares interleave.
    part: usize,
    parts: usize,
}

/// What a task computed, packed.
struct Share {
    /// [rows of its tiles · G, D]
    dq: Buffer<f32>,
    /// [n_k, D]: the part of the segment's keys' gradients that came from the task's queries.
    dk: Buffer<f32>,
    dv: Buffer<f32>,
}

/// dq [R, Hq·D], dk and dv [Rk, Hkv·D].
///
/// Every task has sums of its own; a row's sums are added in the tasks' order.
pub fn backward(problem: &Problem, saved: &Saved) -> [Tensor; 3] {
    let tasks = tasks(problem);
    let shares: Vec<Share> = tasks.par_iter().map(|task| backward_task(problem, saved, task)).collect();
    let dq = Tensor::build([saved.q.len()], |dq| gather_queries(problem, &tasks, &shares, dq));
    let keys = |of: fn(&Share) -> &[f32], len: usize| {
        Tensor::build([len], |out| gather_keys(problem, &tasks, &shares, of, out))
    };
    [dq, keys(|share| &share.dk, saved.k.len()), keys(|share| &share.dv, saved.v.len())]
}

fn tasks(problem: &Problem) -> Vec<Task> {
    let mut tasks = Vec::new();
    let heads = problem.queries.count() * problem.dims.kv_heads;
    for segment in 0..problem.queries.count() {
        let tiles = problem.queries.range(segment).len().div_ceil(problem.tile_len());
        let parts = FEWEST_TASKS.div_ceil(heads).min(tiles);
        for kv_head in 0..problem.dims.kv_heads {
            tasks.extend((0..parts).map(|part| Task { segment, kv_head, part, parts }));
        }
    }
    tasks
}

impl Task {
    /// Its tiles, in row order.
    fn tiles(&self, problem: &Problem) -> impl Iterator<Item = Tile> {
        let (rows, len, segment) = (problem.queries.range(self.segment), problem.tile_len(), self.segment);
        let starts = (rows.start + self.part * len..rows.end).step_by(self.parts * len);
        starts.map(move |start| Tile { segment, rows: start..(start + len).min(rows.end) })
    }
}

fn backward_task(problem: &Problem, saved: &Saved, task: &Task) -> Share {
    let (group, d) = (problem.dims.group(), problem.dims.head_dim);
    let rows: usize = task.tiles(problem).map(|tile| tile.rows.len() * group).sum();
    let keys = problem.keys[task.segment].len();
    let mut share = Share { dq: Buffer::zeroed(rows * d), dk: Buffer::zeroed(keys * d), dv: Buffer::zeroed(keys * d) };
    let mut scratch = Scratch::new(problem);
    let mut done = 0;
    for tile in task.tiles(problem) {
        let len = tile.rows.len() * group * d;
        let dq = &mut share.dq[done..done + len];
        backward_tile(problem, saved, task, &tile, &mut scratch, (dq, &mut share.dk, &mut share.dv));
        done += len;
    }
    share
}

struct Scratch {
    /// [rows·G, D]
    q: Buffer<f32>,
    dout: Buffer<f32>,
    /// [rows·G, keys]
    weights: Buffer<f32>,
    grads: Buffer<f32>,
}

impl Scratch {
    fn new(problem: &Problem) -> Scratch {
        let rows = problem.tile_len() * problem.dims.group();
        let (stacked, scores) = (rows * problem.dims.head_dim, rows * TILE_KEYS);
        Scratch {
            q: Buffer::unwritten(stacked),
            dout: Buffer::unwritten(stacked),
            weights: Buffer::unwritten(scores),
            grads: Buffer::unwritten(scores),
        }
    }
}

/// Writes the tile's dq, adds its part of dk and dv.
fn backward_tile(
    problem: &Problem,
    saved: &Saved,
    task: &Task,
    tile: &Tile,
    scratch: &mut Scratch,
    (dq, dk, dv): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let (group, d, kv_head) = (problem.dims.group(), problem.dims.head_dim, task.kv_head);
    let rows = tile.rows.len() * group;
    let (q, dout) = (&mut scratch.q[..rows * d], &mut scratch.dout[..rows * d]);
    problem.pack(saved.q, &tile.rows, kv_head, problem.scale(), q);
    problem.pack(saved.dout, &tile.rows, kv_head, 1.0, dout);
    let row_sums = row_sums(problem, saved, tile, kv_head);
    let (q, dout) = (Mat::new(q, rows, d), Mat::new(dout, rows, d));
    for keys in spans(problem.span(tile), TILE_KEYS) {
        let n = keys.len();
        let (weights, grads) = (&mut scratch.weights[..rows * n], &mut scratch.grads[..rows * n]);
        let k = problem.key_tile(saved.k, tile.segment, kv_head, &keys);
        let v = problem.key_tile(saved.v, tile.segment, kv_head, &keys);
        matmul(q, k.t(), weights, n, false);
        matmul(dout, v.t(), grads, n, false);
        for (row, (w, g)) in weights.chunks_exact_mut(n).zip(grads.chunks_exact_mut(n)).enumerate() {
            let seen = problem.seen(tile.segment, tile.rows.start + row / group);
            let (lse, row_sum) = row_sums[row];
            score_grads(w, g, seen.saturating_sub(keys.start).min(n), lse, row_sum);
        }
        let span = keys.start * d..keys.end * d;
        let (weights, grads) = (Mat::new(weights, rows, n), Mat::new(grads, rows, n));
        matmul(weights.t(), dout, &mut dv[span.clone()], d, true);
        matmul(grads.t(), q, &mut dk[span], d, true);
        matmul(grads, k, dq, d, true);
    }
    let scale = problem.scale();
    dq.iter_mut().for_each(|x| *x *= scale);
}

/// Per stacked row: the log-sum-exp, and Σ dO·O.
fn row_sums(problem: &Problem, saved: &Saved, tile: &Tile, kv_head: usize) -> Vec<(f32, f32)> {
    let (heads, d) = (problem.dims.heads, problem.dims.head_dim);
    let group = problem.dims.group();
    let mut sums = Vec::with_capacity(tile.rows.len() * group);
    for row in tile.rows.clone() {
        for head in kv_head * group..(kv_head + 1) * group {
            let at = row * heads + head;
            sums.push((saved.lse[at], dot(&saved.dout[at * d..][..d], &saved.out[at * d..][..d])));
        }
    }
    sums
}

/// From a row's scores and ⟨dO, v⟩ to its weights p and its scores' gradients p·(⟨dO, v⟩ − Σ dO·O); the first `seen` count.
#[inline]
fn score_grads(scores: &mut [f32], grads: &mut [f32], seen: usize, lse: f32, row_sum: f32) {
    let (scores, unseen) = scores.split_at_mut(seen);
    let (grads, unseen_grads) = grads.split_at_mut(seen);
    unseen.fill(0.0);
    unseen_grads.fill(0.0);
    for (p, g) in scores.iter_mut().zip(grads) {
        *p = exp_to_88(*p - lse);
        *g = *p * (*g - row_sum);
    }
}

/// Copies the tasks' packed dq to its rows.
fn gather_queries(problem: &Problem, tasks: &[Task], shares: &[Share], dq: &mut [f32]) {
    let width = problem.dims.heads * problem.dims.head_dim;
    // A row's tasks: those of its segment, kv_heads × parts of them in order.
    let mut first_of = vec![0; problem.queries.count()];
    for (i, task) in tasks.iter().enumerate().rev() {
        first_of[task.segment] = i;
    }
    let len = problem.tile_len();
    let mut tiles = Vec::new();
    let mut rest = dq;
    for tile in problem.tiles() {
        let (rows, after) = std::mem::take(&mut rest).split_at_mut(tile.rows.len() * width);
        rest = after;
        tiles.push((tile, rows));
    }
    tiles.into_par_iter().for_each(|(tile, out)| {
        let first = first_of[tile.segment];
        let parts = tasks[first].parts;
        let index = (tile.rows.start - problem.queries.range(tile.segment).start) / len;
        for kv_head in 0..problem.dims.kv_heads {
            let columns = problem.columns(kv_head);
            let share = &shares[first + kv_head * parts + index % parts];
            let packed = &share.dq[(index / parts) * len * columns.len()..];
            for (out, x) in out.chunks_exact_mut(width).zip(packed.chunks_exact(columns.len())) {
                out[columns.clone()].copy_from_slice(x);
            }
        }
    });
}

/// Adds the tasks' packed dk or dv to its rows, in the tasks' order; rows of no segment get zeros.
fn gather_keys(problem: &Problem, tasks: &[Task], shares: &[Share], of: fn(&Share) -> &[f32], out: &mut [f32]) {
    let d = problem.dims.head_dim;
    let width = problem.dims.kv_heads * d;
    for_rows(out, width, |first, out| {
        out.fill(0.0);
        let block = first..first + out.len() / width;
        for (task, share) in tasks.iter().zip(shares) {
            let keys: &Range<usize> = &problem.keys[task.segment];
            let common = block.start.max(keys.start)..block.end.min(keys.end);
            for row in common {
                let sum = &mut out[(row - block.start) * width + task.kv_head * d..][..d];
                let x = &of(share)[(row - keys.start) * d..][..d];
                sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
            }
        }
    });
}
