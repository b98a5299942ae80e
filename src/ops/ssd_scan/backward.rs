use std::ops::Range;

use rayon::prelude::*;

use super::cpu::{Decays, Inputs, Plan, Sizes, Steps, chunk_views};
use super::forward::advance;
use crate::device::gemm::{Mat, matmul};
use crate::device::parallel::{Disjoint, axpy, dot};
use crate::numerics::{fma, sigmoid};
use crate::tensor::Tensor;

/// Gradients that the tasks write, each at its own rows and columns.
pub struct Grads<'g> {
    /// [R, width of xbc].
    dxbc: Disjoint<'g, f32>,
    /// [R, H]: with respect to dt (after softplus and clamp) where it is not in a decay, and to the exponent dt·A.
    ddt: Tensor,
    dexponent: Tensor,
    /// `[H]`: summed over the tasks in order.
    dd: Vec<f32>,
}

impl<'g> Grads<'g> {
    pub fn new(plan: &Plan, dxbc: &'g mut [f32], rows: usize) -> Grads<'g> {
        let heads = plan.sizes.heads;
        let column = || Tensor::build([rows * heads], |_| {});
        Grads { dxbc: Disjoint::new(dxbc), ddt: column(), dexponent: column(), dd: vec![0.0; heads] }
    }

    /// The gradients of the raw dt [R, H], and of a_log, d and dt_bias `[H]`.
    pub fn finish(
        self,
        steps: &Steps,
        raw: &[f32],
        bias: &[f32],
        a_log: &[f32],
        limit: (f32, f32),
    ) -> (Vec<f32>, [Vec<f32>; 3]) {
        let heads = bias.len();
        let rates: Vec<f32> = a_log.iter().map(|a| -a.exp()).collect();
        let (mut da_log, mut dbias) = (vec![0.0f64; heads], vec![0.0f64; heads]);
        let mut draw = vec![0.0; raw.len()];
        let (dt, ddt, dexponent) = (steps.dt.f32(), self.ddt.f32(), self.dexponent.f32());
        for at in 0..raw.len() {
            let h = at % heads;
            let free = dt[at] > limit.0 && dt[at] < limit.1;
            let slope = if free { sigmoid(raw[at] + bias[h]) } else { 0.0 };
            draw[at] = fma(dexponent[at], rates[h], ddt[at]) * slope;
            // The exponent of a step without bounds is −∞, and its gradient 0: their product must be 0.
            da_log[h] += f64::from(dexponent[at]) * f64::from((dt[at] * rates[h]).max(f32::MIN));
            dbias[h] += f64::from(draw[at]);
        }
        let narrow = |sums: Vec<f64>| sums.into_iter().map(|x| x as f32).collect();
        (draw, [narrow(da_log), self.dd, narrow(dbias)])
    }
}

/// `starts`: the chunks' starting states; `dstate` [S, H, P, N]: the final states' gradients, turned into the initial ones'.
pub fn backward(plan: &Plan, inputs: &Inputs, starts: &[f32], dy: &[f32], dstate: &mut [f32], grads: &mut Grads<'_>) {
    let s = &plan.sizes;
    let tasks: Vec<_> = plan.tasks().into_iter().zip(plan.saved_ranges()).collect();
    let ddt = Disjoint::new(grads.ddt.f32_mut());
    let dexponent = Disjoint::new(grads.dexponent.f32_mut());
    let out = Out { dxbc: &grads.dxbc, ddt: &ddt, dexponent: &dexponent };
    let partial: Vec<Vec<f32>> = (dstate.par_chunks_mut(s.group_state()).zip(&tasks))
        .map(|(dstate, ((rows, group), saved))| {
            let mut task =
                Task { sizes: s, inputs, group: *group, scratch: Scratch::default(), dd: vec![0.0; s.per_group()] };
            let starts = starts[saved.clone()].chunks_exact(s.group_state());
            for (chunk, start) in plan.chunks(rows).into_iter().zip(starts).rev() {
                task.chunk(&chunk, start, dy, dstate, &out);
            }
            task.dd
        })
        .collect();
    for (((_, group), _), dd) in tasks.iter().zip(&partial) {
        let first = group * s.per_group();
        grads.dd[first..first + dd.len()].iter_mut().zip(dd).for_each(|(sum, x)| *sum += x);
    }
}

struct Out<'o, 'g> {
    dxbc: &'o Disjoint<'g, f32>,
    ddt: &'o Disjoint<'o, f32>,
    dexponent: &'o Disjoint<'o, f32>,
}

#[derive(Default)]
struct Scratch {
    /// [L, L]: C·Bᵀ and its gradient; a head's M and G = dY·Xᵀ.
    cb: Vec<f32>,
    dcb: Vec<f32>,
    m: Vec<f32>,
    g: Vec<f32>,
    decay_row: Vec<f32>,
    /// `[L]`: Σ_i G·E·CB of column j.
    columns: Vec<f32>,
    /// [L, H/G·P]: the state's share of y before decay; B·dSᵀ; dy and x weighted by decays; the gradient of x.
    from_state: Vec<f32>,
    into_state: Vec<f32>,
    dy_decayed: Vec<f32>,
    xw: Vec<f32>,
    dx: Vec<f32>,
    /// [L, N].
    db: Vec<f32>,
    dc: Vec<f32>,
    /// `[L]` of one head: gradients of the decays' running exponent, of dt, and of the step's exponent.
    dsum: Vec<f32>,
    ddt: Vec<f32>,
    decays: Vec<Decays>,
}

struct Task<'a> {
    sizes: &'a Sizes,
    inputs: &'a Inputs<'a>,
    group: usize,
    scratch: Scratch,
    /// [H/G].
    dd: Vec<f32>,
}

impl Task<'_> {
    fn head(&self, head: usize) -> usize {
        self.group * self.sizes.per_group() + head
    }

    /// `state` is the chunk's starting state, `dstate` the gradient of its end's, turned into its start's.
    fn chunk(&mut self, rows: &Range<usize>, state: &[f32], dy: &[f32], dstate: &mut [f32], out: &Out<'_, '_>) {
        self.prepare(rows, state, dy, dstate);
        for head in 0..self.sizes.per_group() {
            self.within_chunk(head, rows, dy);
            self.across_chunks(head, rows, state, dy, dstate);
            self.write_steps(head, rows, out);
        }
        self.shared(rows, state, dstate);
        self.write(rows, out);
    }

    /// Products that all heads of the group share, and dy and x weighted by each head's decays.
    fn prepare(&mut self, rows: &Range<usize>, state: &[f32], dy: &[f32], dstate: &[f32]) {
        let (s, len) = (self.sizes, rows.len());
        let (p, n, gw) = (s.head_dim, s.state, s.group_width());
        let [_, b, c] = chunk_views(s, self.inputs.xbc, rows, self.group);
        let first_head = self.head(0);
        let t = &mut self.scratch;
        for buffer in [&mut t.cb, &mut t.dcb, &mut t.m, &mut t.g] {
            buffer.resize(len * len, 0.0);
        }
        for buffer in [&mut t.from_state, &mut t.into_state, &mut t.dy_decayed, &mut t.xw, &mut t.dx] {
            buffer.resize(len * gw, 0.0);
        }
        for buffer in [&mut t.db, &mut t.dc] {
            buffer.resize(len * n, 0.0);
        }
        t.dcb.fill(0.0);
        matmul(c, b.t(), &mut t.cb, len, false);
        matmul(c, Mat::new(state, gw, n).t(), &mut t.from_state, gw, false);
        let dstate = Mat::new(dstate, gw, n);
        matmul(b, dstate.t(), &mut t.into_state, gw, false);
        t.decays.resize_with(s.per_group(), Decays::default);
        for head in 0..s.per_group() {
            let global = first_head + head;
            let decays = &mut t.decays[head];
            decays.fill(self.inputs.steps, s.heads, global, rows);
            for i in 0..len {
                let row = rows.start + i;
                let x = &self.inputs.xbc[row * s.width() + global * p..][..p];
                let dy = &dy[(row * s.heads + global) * p..][..p];
                let at = i * gw + head * p;
                let (decayed, xw) = (&mut t.dy_decayed[at..at + p], &mut t.xw[at..at + p]);
                let weight = decays.to_end[i] * decays.dt[i];
                for k in 0..p {
                    decayed[k] = decays.from_start[i] * dy[k];
                    xw[k] = weight * x[k];
                }
            }
        }
        // Now, because the heads turn `dstate` into the chunk's start's.
        matmul(Mat::new(&t.xw, len, gw), dstate, &mut t.db, n, false);
    }

    /// Through M: rows that see rows of the same chunk. Starts the head's dx, dt and exponent gradients.
    fn within_chunk(&mut self, head: usize, rows: &Range<usize>, dy: &[f32]) {
        let (s, len, global) = (self.sizes, rows.len(), self.head(head));
        let (p, gw) = (s.head_dim, s.group_width());
        let x = Mat::strided(&self.inputs.xbc[rows.start * s.width() + global * p..], len, p, s.width());
        let dy = Mat::strided(&dy[(rows.start * s.heads + global) * p..], len, p, s.heads * p);
        let t = &mut self.scratch;
        let decays = &t.decays[head];
        matmul(dy, x.t(), &mut t.g, len, false);
        for buffer in [&mut t.decay_row, &mut t.columns, &mut t.dsum, &mut t.ddt] {
            buffer.clear();
            buffer.resize(len, 0.0);
        }
        for i in 0..len {
            advance(&mut t.decay_row, i, decays.step[i]);
            let at = i * len;
            let (seen, later) = t.m[at..at + len].split_at_mut(i + 1);
            later.fill(0.0);
            let (cb, g, dcb) = (&t.cb[at..][..=i], &mut t.g[at..][..=i], &mut t.dcb[at..][..=i]);
            let (decay, dt, columns) = (&t.decay_row[..=i], &decays.dt[..=i], &mut t.columns[..=i]);
            for j in 0..=i {
                let ge = g[j] * decay[j];
                dcb[j] = fma(ge, dt[j], dcb[j]);
                seen[j] = cb[j] * decay[j] * dt[j];
                g[j] = ge * cb[j];
                columns[j] += g[j];
            }
            t.dsum[i] += dot(g, dt); // row i's decays all contain its own step
        }
        for j in 0..len {
            t.ddt[j] += t.columns[j];
            t.dsum[j] -= t.columns[j] * decays.dt[j];
        }
        matmul(Mat::new(&t.m, len, len).t(), dy, &mut t.dx[head * p..], gw, false);
    }

    /// Through the state: from the chunk's start to y, and from x to the chunk's end.
    fn across_chunks(&mut self, head: usize, rows: &Range<usize>, state: &[f32], dy: &[f32], dstate: &mut [f32]) {
        let (s, len, global) = (self.sizes, rows.len(), self.head(head));
        let (p, n, gw) = (s.head_dim, s.state, s.group_width());
        let d = self.inputs.d[global];
        let t = &mut self.scratch;
        let decays = &t.decays[head];
        let mut at_end = 0.0;
        for i in 0..len {
            let (row, at) = (rows.start + i, i * gw + head * p);
            let x = &self.inputs.xbc[row * s.width() + global * p..][..p];
            let dy = &dy[(row * s.heads + global) * p..][..p];
            // y_i has from_start_i · C_i·S.
            t.dsum[i] += dot(&t.dy_decayed[at..at + p], &t.from_state[at..at + p]);
            // The end's state has to_end_i · dt_i · x_i ⊗ B_i.
            let into = &t.into_state[at..at + p];
            let along = dot(x, into);
            t.ddt[i] += along * decays.to_end[i];
            let weight = decays.to_end[i] * decays.dt[i];
            t.dsum[i] -= along * weight;
            at_end += along * weight;
            axpy(weight, into, &mut t.dx[at..at + p]);
            axpy(d, dy, &mut t.dx[at..at + p]);
            self.dd[head] += dot(dy, x);
        }
        let whole = decays.from_start[len - 1];
        let (state, dstate) = (&state[head * p * n..][..p * n], &mut dstate[head * p * n..][..p * n]);
        t.dsum[len - 1] += at_end + whole * dot(state, dstate);
        dstate.iter_mut().for_each(|v| *v *= whole);
    }

    /// The head's gradients per row: an exponent's is that of all running sums it is part of.
    fn write_steps(&mut self, head: usize, rows: &Range<usize>, out: &Out<'_, '_>) {
        let (heads, global) = (self.sizes.heads, self.head(head));
        let t = &self.scratch;
        let mut running = 0.0;
        for i in (0..rows.len()).rev() {
            running += t.dsum[i];
            let at = (rows.start + i) * heads + global;
            // SAFETY: this row and head belong to this task alone.
            unsafe {
                out.dexponent.slice(at..at + 1)[0] = running;
                out.ddt.slice(at..at + 1)[0] = t.ddt[i];
            }
        }
    }

    /// The gradients of B, C and the starting state, summed over the group's heads by the products themselves.
    fn shared(&mut self, rows: &Range<usize>, state: &[f32], dstate: &mut [f32]) {
        let (s, len) = (self.sizes, rows.len());
        let (n, gw) = (s.state, s.group_width());
        let [_, b, c] = chunk_views(s, self.inputs.xbc, rows, self.group);
        let t = &mut self.scratch;
        matmul(Mat::new(&t.dcb, len, len), b, &mut t.dc, n, false);
        matmul(Mat::new(&t.dy_decayed, len, gw), Mat::new(state, gw, n), &mut t.dc, n, true);
        matmul(Mat::new(&t.dcb, len, len).t(), c, &mut t.db, n, true);
        matmul(Mat::new(&t.dy_decayed, len, gw).t(), c, dstate, n, true);
    }

    fn write(&self, rows: &Range<usize>, out: &Out<'_, '_>) {
        let (s, t) = (self.sizes, &self.scratch);
        let [x, b, c] = s.columns(self.group);
        for (column, width, values) in [(x, s.group_width(), &t.dx), (b, s.state, &t.db), (c, s.state, &t.dc)] {
            for (row, values) in rows.clone().zip(values.chunks_exact(width)) {
                let at = row * s.width() + column;
                // SAFETY: rows belong to one segment, these columns to one group: to this task alone.
                unsafe { out.dxbc.slice(at..at + width) }.copy_from_slice(values);
            }
        }
    }
}
