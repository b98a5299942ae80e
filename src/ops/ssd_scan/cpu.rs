//! What forward and backward share: sizes, time steps and decays, the cutting into tasks.

use std::ops::Range;

use crate::autograd::{MaskRows, masked};
use crate::device::gemm::Mat;
use crate::device::parallel::{dot, for_rows, for_rows2, sum_rows};
use crate::numerics::{exp, softplus};
use crate::tensor::{Segments, Tensor};

#[derive(Clone, Copy)]
pub struct Sizes {
    pub heads: usize,
    pub head_dim: usize,
    pub groups: usize,
    pub state: usize,
    pub chunk: usize,
}

impl Sizes {
    /// Heads of a group.
    pub fn per_group(&self) -> usize {
        self.heads / self.groups
    }

    /// Columns of x that belong to a group.
    pub fn group_width(&self) -> usize {
        self.per_group() * self.head_dim
    }

    /// Columns of xbc.
    pub fn width(&self) -> usize {
        self.heads * self.head_dim + 2 * self.groups * self.state
    }

    /// First columns of a group's x, B and C in xbc.
    pub fn columns(&self, group: usize) -> [usize; 3] {
        let x = self.heads * self.head_dim;
        [group * self.group_width(), x + group * self.state, x + (self.groups + group) * self.state]
    }

    /// Elements of a group's state [H/G, P, N].
    pub fn group_state(&self) -> usize {
        self.group_width() * self.state
    }
}

/// Per row and head: dt after softplus and clamp, and exp(dt·A).
///
/// All decay factors over several steps are products of these. They lie in [0, 1], so that nothing overflows and no
/// difference of large sums is ever exponentiated.
pub struct Steps {
    pub dt: Tensor,
    pub decay: Tensor,
}

impl Steps {
    pub fn new(raw: &[f32], bias: &[f32], a_log: &[f32], limit: (f32, f32)) -> Steps {
        let heads = bias.len();
        let rates: Vec<f32> = a_log.iter().map(|a| -a.exp()).collect();
        let mut dt = Tensor::build([raw.len()], |_| {});
        let mut decay = Tensor::build([raw.len()], |_| {});
        for_rows2((dt.f32_mut(), heads), (decay.f32_mut(), heads), |first, dt, decay| {
            for (i, (dt, decay)) in dt.iter_mut().zip(decay).enumerate() {
                let h = i % heads;
                *dt = softplus(raw[first * heads + i] + bias[h]).clamp(limit.0, limit.1);
                *decay = exp(*dt * rates[h]);
            }
        });
        Steps { dt, decay }
    }
}

pub struct Inputs<'a> {
    pub xbc: &'a [f32],
    /// `[H]`.
    pub d: &'a [f32],
    pub steps: &'a Steps,
}

/// The tasks of a scan: one per segment and group, in that order. Within one, chunks follow each other.
pub struct Plan {
    pub sizes: Sizes,
    pub segments: Segments,
}

impl Plan {
    pub fn new(sizes: Sizes, segments: &Segments) -> Plan {
        Plan { sizes, segments: segments.clone() }
    }

    /// (rows, group) of every task.
    pub fn tasks(&self) -> Vec<(Range<usize>, usize)> {
        self.segments.iter().flat_map(|rows| (0..self.sizes.groups).map(move |g| (rows.clone(), g))).collect()
    }

    fn chunks_of(&self, rows: &Range<usize>) -> usize {
        rows.len().div_ceil(self.sizes.chunk)
    }

    /// Elements of all chunks' starting states, which backward needs.
    pub fn saved_len(&self) -> usize {
        self.segments.iter().map(|rows| self.chunks_of(&rows)).sum::<usize>()
            * self.sizes.groups
            * self.sizes.group_state()
    }

    /// Where each task's starting states lie in that buffer, chunk after chunk.
    pub fn saved_ranges(&self) -> Vec<Range<usize>> {
        let mut start = 0;
        self.tasks()
            .iter()
            .map(|(rows, _)| {
                let len = self.chunks_of(rows) * self.sizes.group_state();
                start += len;
                start - len..start
            })
            .collect()
    }

    /// The chunks of a task's rows.
    pub fn chunks(&self, rows: &Range<usize>) -> Vec<Range<usize>> {
        let chunk = self.sizes.chunk;
        rows.clone().step_by(chunk).map(|r| r..(r + chunk).min(rows.end)).collect()
    }
}

/// A chunk's x [L, H/G·P], B and C [L, N], inside xbc.
pub fn chunk_views<'a>(sizes: &Sizes, xbc: &'a [f32], rows: &Range<usize>, group: usize) -> [Mat<'a>; 3] {
    let (width, len) = (sizes.width(), rows.len());
    let [x, b, c] = sizes.columns(group).map(|column| &xbc[rows.start * width + column..]);
    [
        Mat::strided(x, len, sizes.group_width(), width),
        Mat::strided(b, len, sizes.state, width),
        Mat::strided(c, len, sizes.state, width),
    ]
}

/// Decay factors of one head over a chunk of L rows.
#[derive(Default)]
pub struct Decays {
    /// `[L]`: dt.
    pub dt: Vec<f32>,
    /// `[L]`: the step's own factor.
    pub step: Vec<f32>,
    /// `[L]`: from before the chunk to after row i.
    pub from_start: Vec<f32>,
    /// `[L]`: from after row j to the end of the chunk.
    pub to_end: Vec<f32>,
}

impl Decays {
    pub fn fill(&mut self, steps: &Steps, heads: usize, head: usize, rows: &Range<usize>) {
        let column = |values: &Tensor, into: &mut Vec<f32>| {
            into.clear();
            into.extend(rows.clone().map(|row| values.f32()[row * heads + head]));
        };
        column(&steps.dt, &mut self.dt);
        column(&steps.decay, &mut self.step);
        let mut product = 1.0;
        self.from_start.clear();
        self.from_start.extend(self.step.iter().map(|decay| {
            product = flush(product * decay);
            product
        }));
        self.to_end.clear();
        self.to_end.resize(rows.len(), 1.0);
        for j in (0..rows.len().saturating_sub(1)).rev() {
            self.to_end[j] = flush(self.to_end[j + 1] * self.step[j + 1]);
        }
    }
}

/// Products of decays below this are 0: they change no sum, and denormal numbers are slow.
#[inline(always)]
pub fn flush(decay: f32) -> f32 {
    if decay < 1e-30 { 0.0 } else { decay }
}

/// y·m per head.
pub fn mask_heads(y: &[f32], head_dim: usize, mask: &MaskRows, out: &mut [f32]) {
    let width = mask.width() * head_dim;
    for_rows(out, width, |first, out| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            let row = first + i;
            let heads = out.chunks_exact_mut(head_dim).zip(y[row * width..][..width].chunks_exact(head_dim));
            for ((out, y), m) in heads.zip(mask.row(row)) {
                out.iter_mut().zip(y).for_each(|(out, y)| *out = masked(*y, *m));
            }
        }
    });
}

/// [draws, C]: ⟨dy, unmasked y⟩ per interval of heads.
pub fn mask_grad(y: &[f32], head_dim: usize, mask: &MaskRows, dy: &[f32]) -> Vec<f32> {
    const BLOCK: usize = 64;
    let width = mask.width() * head_dim;
    sum_rows(y.len() / width, BLOCK, mask.grad_len(), |rows, acc| {
        for row in rows {
            let acc = mask.row_grad(acc, row);
            for h in 0..mask.width() {
                let at = row * width + h * head_dim;
                acc[mask.interval(h)] += dot(&dy[at..at + head_dim], &y[at..at + head_dim]);
            }
        }
    })
}
