use std::ops::Range;

use rayon::prelude::*;

use crate::autograd::round_stored;
use crate::device::gemm::{Mat, par_matmul};
use crate::device::parallel::rows_per_task;
use crate::device::pool::Buffer;
use crate::numerics::exp_to_88;
use crate::ops::cross_entropy::rows::{Gathered, gather, scale, scatter};
use crate::ops::cross_entropy::softmax;
use crate::tensor::Tensor;

/// Logits of one model that exist at a time, and the fewest rows that still keep the products at the matrix rate.
const BLOCK_LOGITS: usize = 1 << 20;
const FEWEST_ROWS: usize = 64;

pub struct Problem {
    /// hidden [R, d_s], weight [V, d_s]
    pub student: (Tensor, Tensor),
    /// hidden [R, d_t], weight [V, d_t]
    pub teacher: (Tensor, Tensor),
    /// Valid rows, rising.
    pub valid: Vec<usize>,
    /// Tokens of a chunk, 1 ≤ chunk ≤ vocab.
    pub chunk: usize,
    pub vocab: usize,
    /// 1 / temperature.
    pub scale: f32,
}

/// Where the student's gradients go; `weight`'s flag says whether to add.
pub struct Grads<'a> {
    pub hidden: Option<&'a mut [f32]>,
    pub weight: Option<(&'a mut [f32], bool)>,
}

/// Running sums of a row over the chunks seen so far: with M the largest logit and l = Σ e^(logit − M) of either model,
/// `cross` is Σ e^(t − M_t)·((t − M_t) − (s − M_s)).
///
/// The divergence is then cross/l_t − ln l_t + ln l_s: every term is of the size of the divergence and of ln V, however
/// large the logits are.
#[derive(Clone, Copy)]
pub struct Statistics {
    teacher: (f32, f64),
    student: (f32, f64),
    cross: f64,
}

impl Statistics {
    /// The shift is the most negative number instead of −∞, so that −∞ − shift is still −∞.
    const EMPTY: Statistics = Statistics { teacher: (-f32::MAX, 0.0), student: (-f32::MAX, 0.0), cross: 0.0 };

    /// Adds a chunk of logits and leaves e^(logit − M) in their place.
    fn add(&mut self, teacher: &mut [f32], student: &mut [f32]) {
        let shifts = (softmax::max(teacher).max(self.teacher.0), softmax::max(student).max(self.student.0));
        let moved = (f64::from(self.teacher.0) - f64::from(shifts.0), f64::from(self.student.0) - f64::from(shifts.1));
        let kept = moved.0.exp();
        // Where nothing is kept the product could be 0·∞.
        self.cross = if kept > 0.0 { kept * (self.cross + self.teacher.1 * (moved.0 - moved.1)) } else { 0.0 };
        let sums = softmax::kl_sums(teacher, student, shifts);
        self.teacher = (shifts.0, self.teacher.1 * kept + sums.teacher);
        self.student = (shifts.1, self.student.1 * moved.1.exp() + sums.student);
        self.cross += sums.cross;
    }

    fn divergence(&self) -> f64 {
        self.cross / self.teacher.1 - self.teacher.1.ln() + self.student.1.ln()
    }
}

/// Rows that are worked on together: their hidden states, scaled, and the scratch of their logits.
struct Block<'a> {
    rows: &'a [usize],
    student: Gathered<'a>,
    teacher: Gathered<'a>,
}

struct Scratch {
    teacher: Buffer<f32>,
    student: Buffer<f32>,
}

impl Problem {
    pub fn is_one_chunk(&self) -> bool {
        self.chunk == self.vocab
    }

    fn block_rows(&self) -> usize {
        (BLOCK_LOGITS / self.chunk).max(FEWEST_ROWS).min(self.valid.len()).max(1)
    }

    fn scratch(&self) -> Scratch {
        let len = self.block_rows() * self.chunk;
        Scratch { teacher: Buffer::unwritten(len), student: Buffer::unwritten(len) }
    }

    fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        self.valid.chunks(self.block_rows()).map(|rows| Block {
            rows,
            student: gather(self.student.0.f32(), self.student.0.shape().last(), rows, self.scale),
            teacher: gather(self.teacher.0.f32(), self.teacher.0.shape().last(), rows, self.scale),
        })
    }

    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (chunk, vocab) = (self.chunk, self.vocab);
        (0..vocab).step_by(chunk).map(move |start| start..(start + chunk).min(vocab))
    }

    /// The block's logits of a chunk, [rows, chunk] of the teacher and of the student.
    fn logits<'s>(
        &self,
        block: &Block,
        chunk: &Range<usize>,
        scratch: &'s mut Scratch,
    ) -> (&'s mut [f32], &'s mut [f32]) {
        let product = |hidden: &[f32], weight: &Tensor, out: &mut [f32]| {
            let (hidden, weight) = (Mat::new(hidden, block.rows.len(), weight.shape().last()), slab(weight, chunk));
            par_matmul(hidden, weight.t(), out, chunk.len(), false);
        };
        let len = block.rows.len() * chunk.len();
        let (teacher, student) = (&mut scratch.teacher[..len], &mut scratch.student[..len]);
        product(&block.teacher, &self.teacher.1, teacher);
        product(&block.student, &self.student.1, student);
        (teacher, student)
    }

    /// The mean loss, and what backward needs of every valid row.
    pub fn loss(&self) -> (f32, Vec<Statistics>) {
        let mut statistics = vec![Statistics::EMPTY; self.valid.len()];
        let mut scratch = self.scratch();
        for (block, statistics) in self.blocks().zip(statistics.chunks_mut(self.block_rows())) {
            for chunk in self.chunks() {
                let (teacher, student) = self.logits(&block, &chunk, &mut scratch);
                for_row_pairs(teacher, student, statistics, |t, s, statistics| statistics.add(t, s));
            }
        }
        (mean(&statistics), statistics)
    }

    /// The gradients of seed·(mean loss), from logits computed again.
    pub fn gradients(&self, statistics: &[Statistics], seed: f32, grads: Grads) {
        let weight = f64::from(seed) / self.valid.len() as f64;
        self.accumulate(&mut statistics.to_vec(), weight, grads, |teacher, student, statistics| {
            let shifts = (statistics.teacher.0, statistics.student.0);
            teacher.iter_mut().for_each(|t| *t = exp_to_88(*t - shifts.0));
            student.iter_mut().for_each(|s| *s = exp_to_88(*s - shifts.1));
        });
    }

    /// Both at once, for a vocabulary of one chunk: the mean loss and its gradients.
    pub fn loss_and_gradients(&self, grads: Grads) -> f32 {
        let mut statistics = vec![Statistics::EMPTY; self.valid.len()];
        let weight = 1.0 / self.valid.len() as f64;
        self.accumulate(&mut statistics, weight, grads, |teacher, student, statistics| {
            statistics.add(teacher, student)
        });
        mean(&statistics)
    }

    /// Walks over the logits, lets `exponentials` put e^(logit − M) in their place, and multiplies their gradient out.
    fn accumulate(
        &self,
        statistics: &mut [Statistics],
        weight: f64,
        mut grads: Grads,
        exponentials: impl Fn(&mut [f32], &mut [f32], &mut Statistics) + Sync,
    ) {
        self.clear(&mut grads);
        let d = self.student.1.shape().last();
        let mut scratch = self.scratch();
        for (i, (block, statistics)) in self.blocks().zip(statistics.chunks_mut(self.block_rows())).enumerate() {
            let rows = block.rows.len();
            let mut products = |mut d_hidden: Option<&mut [f32]>| {
                for chunk in self.chunks() {
                    let (teacher, student) = self.logits(&block, &chunk, &mut scratch);
                    for_row_pairs(teacher, student, statistics, |teacher, student, statistics| {
                        exponentials(teacher, student, statistics);
                        difference(teacher, student, statistics, weight);
                        round_stored(student);
                    });
                    let grad = Mat::new(student, rows, chunk.len());
                    if let Some(d_hidden) = &mut d_hidden {
                        par_matmul(grad, slab(&self.student.1, &chunk), d_hidden, d, chunk.start > 0);
                    }
                    if let Some((d_weight, adds)) = &mut grads.weight {
                        let d_weight = &mut d_weight[chunk.start * d..chunk.end * d];
                        par_matmul(grad.t(), Mat::new(&block.student, rows, d), d_weight, d, *adds || i > 0);
                    }
                }
            };
            match grads.hidden.as_deref_mut() {
                None => products(None),
                Some(out) => scatter(out, d, block.rows, |d_hidden| {
                    products(Some(&mut *d_hidden));
                    scale(d_hidden, self.scale);
                }),
            }
        }
    }

    /// Zeros where no block will write.
    fn clear(&self, grads: &mut Grads) {
        if let Some(hidden) = grads.hidden.as_mut().filter(|_| self.valid.len() < self.student.0.shape().rows()) {
            hidden.fill(0.0);
        }
        if let Some((weight, _)) = grads.weight.as_mut().filter(|(_, adds)| self.valid.is_empty() && !adds) {
            weight.fill(0.0);
        }
    }
}

/// Rows `chunk` of a weight [V, d].
fn slab<'a>(weight: &'a Tensor, chunk: &Range<usize>) -> Mat<'a> {
    let d = weight.shape().last();
    Mat::new(&weight.f32()[chunk.start * d..chunk.end * d], chunk.len(), d)
}

/// Calls `work` on every row of both logits and its statistics, in parallel.
fn for_row_pairs(
    teacher: &mut [f32],
    student: &mut [f32],
    statistics: &mut [Statistics],
    work: impl Fn(&mut [f32], &mut [f32], &mut Statistics) + Sync,
) {
    let width = student.len() / statistics.len();
    (teacher.par_chunks_exact_mut(width).zip(student.par_chunks_exact_mut(width)).zip(statistics))
        .with_min_len(rows_per_task(width))
        .for_each(|((teacher, student), statistics)| work(teacher, student, statistics));
}

/// From e^(logit − M) to the gradient of the logits, (p_student − p_teacher)·weight, in `student`.
fn difference(teacher: &[f32], student: &mut [f32], statistics: &Statistics, weight: f64) {
    let (a, b) = ((weight / statistics.student.1) as f32, (weight / statistics.teacher.1) as f32);
    for (s, t) in student.iter_mut().zip(teacher) {
        *s = *s * a - *t * b;
    }
}

fn mean(statistics: &[Statistics]) -> f32 {
    let total: f64 = statistics.iter().map(Statistics::divergence).sum();
    if statistics.is_empty() { 0.0 } else { (total / statistics.len() as f64) as f32 }
}
