use std::ops::Range;

use rayon::prelude::*;

use super::cpu::{Decays, Inputs, Plan, Sizes, chunk_views, flush};
use crate::device::gemm::{Mat, matmul};
use crate::device::parallel::{Disjoint, axpy, dot};
use crate::numerics::fma;

/// Reads the segments' initial states from `state` [S, H, P, N] and leaves the final ones there; writes y [R, H·P], and the
/// chunks' starting states to `starts` unless it is empty.
pub fn forward(plan: &Plan, inputs: &Inputs, state: &mut [f32], starts: &mut [f32], y: &mut [f32]) {
    let y = Disjoint::new(y);
    let saved = plan.saved_ranges();
    let save = !starts.is_empty();
    let starts = Disjoint::new(starts);
    let states = state.par_chunks_mut(plan.sizes.group_state());
    states.zip(plan.tasks()).zip(saved).for_each(|((state, (rows, group)), saved)| {
        // SAFETY: a task's starting states are its own range.
        let starts = if save { unsafe { starts.slice(saved) } } else { &mut [] };
        let mut task = Task { sizes: &plan.sizes, inputs, group, scratch: Scratch::default() };
        let mut starts = starts.chunks_exact_mut(plan.sizes.group_state());
        for chunk in plan.chunks(&rows) {
            if let Some(start) = starts.next() {
                start.copy_from_slice(state);
            }
            match chunk.len() {
                1 => task.step(chunk.start, state),
                _ => task.chunk(&chunk, state),
            }
            task.write(&chunk, &y);
        }
    });
}

#[derive(Default)]
struct Scratch {
    /// [L, L]: C·Bᵀ.
    cb: Vec<f32>,
    /// [L, L]: C·Bᵀ times decay and dt, lower triangle.
    m: Vec<f32>,
    /// `[L]`: decay from after row j to the current row.
    decay_row: Vec<f32>,
    /// [L, H/G·P]: x times its weight in the state; the outputs.
    xw: Vec<f32>,
    y: Vec<f32>,
    decays: Decays,
}

struct Task<'a> {
    sizes: &'a Sizes,
    inputs: &'a Inputs<'a>,
    group: usize,
    scratch: Scratch,
}

impl Task<'_> {
    /// A chunk of L rows: y into scratch, `state` [H/G·P, N] to the chunk's end.
    fn chunk(&mut self, rows: &Range<usize>, state: &mut [f32]) {
        let (s, len) = (self.sizes, rows.len());
        let (p, n, gw) = (s.head_dim, s.state, s.group_width());
        let [_, b, c] = chunk_views(s, self.inputs.xbc, rows, self.group);
        let t = &mut self.scratch;
        for (buffer, size) in
            [(&mut t.cb, len * len), (&mut t.m, len * len), (&mut t.xw, len * gw), (&mut t.y, len * gw)]
        {
            buffer.resize(size, 0.0);
        }
        matmul(c, b.t(), &mut t.cb, len, false);
        // What the chunk's starting state contributes, before its decay.
        matmul(c, Mat::new(state, gw, n).t(), &mut t.y, gw, false);
        for head in 0..s.per_group() {
            let global = self.group * s.per_group() + head;
            t.decays.fill(self.inputs.steps, s.heads, global, rows);
            let d = self.inputs.d[global];
            let x_at = |i: usize| (rows.start + i) * s.width() + global * p;
            for i in 0..len {
                let x = &self.inputs.xbc[x_at(i)..][..p];
                let (y, xw) = (&mut t.y[i * gw + head * p..][..p], &mut t.xw[i * gw + head * p..][..p]);
                let (from_start, weight) = (t.decays.from_start[i], t.decays.to_end[i] * t.decays.dt[i]);
                for k in 0..p {
                    y[k] = fma(y[k], from_start, d * x[k]);
                    xw[k] = weight * x[k];
                }
            }
            decayed(&t.cb, &t.decays, &mut t.decay_row, &mut t.m);
            let x = Mat::strided(&self.inputs.xbc[x_at(0)..], len, p, s.width());
            matmul(Mat::new(&t.m, len, len), x, &mut t.y[head * p..], gw, true);
            let whole = t.decays.from_start[len - 1];
            state[head * p * n..][..p * n].iter_mut().for_each(|v| *v *= whole);
        }
        matmul(Mat::new(&t.xw, len, gw).t(), b, state, n, true);
    }

    /// One row, as in decoding: the recurrence itself.
    fn step(&mut self, row: usize, state: &mut [f32]) {
        let (s, steps) = (self.sizes, self.inputs.steps);
        let (p, n) = (s.head_dim, s.state);
        let xbc = &self.inputs.xbc[row * s.width()..][..s.width()];
        let [x, b, c] = s.columns(self.group);
        let (b, c) = (&xbc[b..][..n], &xbc[c..][..n]);
        self.scratch.y.resize(s.group_width(), 0.0);
        for (i, state) in state.chunks_exact_mut(n).enumerate() {
            let head = self.group * s.per_group() + i / p;
            let (dt, decay) = (steps.dt.f32()[row * s.heads + head], steps.decay.f32()[row * s.heads + head]);
            let x = xbc[x + i];
            state.iter_mut().for_each(|v| *v *= decay);
            axpy(dt * x, b, state);
            self.scratch.y[i] = fma(self.inputs.d[head], x, dot(c, state));
        }
    }

    /// Copies the chunk's y to its rows and the group's columns.
    fn write(&self, rows: &Range<usize>, y: &Disjoint<'_, f32>) {
        let gw = self.sizes.group_width();
        for (row, values) in rows.clone().zip(self.scratch.y.chunks_exact(gw)) {
            let at = row * self.sizes.heads * self.sizes.head_dim + self.group * gw;
            // SAFETY: rows belong to one segment, these columns to one group: to this task alone.
            unsafe { y.slice(at..at + gw) }.copy_from_slice(values);
        }
    }
}

/// m[i, j] = cb[i, j]·dt_j·(decay from after j to i) for j ≤ i, 0 above the diagonal.
///
/// A row's decays are the last row's times the step's own: no exponential per element, and never one of a large number.
fn decayed(cb: &[f32], decays: &Decays, row: &mut Vec<f32>, m: &mut [f32]) {
    let len = decays.dt.len();
    row.clear();
    row.resize(len, 0.0);
    for (i, (m, cb)) in m.chunks_exact_mut(len).zip(cb.chunks_exact(len)).enumerate() {
        let (seen, later) = m.split_at_mut(i + 1);
        later.fill(0.0);
        advance(row, i, decays.step[i]);
        for (((m, cb), decay), dt) in seen.iter_mut().zip(cb).zip(&row[..]).zip(&decays.dt) {
            *m = cb * decay * dt;
        }
    }
}

/// Moves the row of decays on to row i.
pub fn advance(row: &mut [f32], i: usize, decay: f32) {
    row[..i].iter_mut().for_each(|e| *e = flush(*e * decay));
    row[i] = 1.0;
}
