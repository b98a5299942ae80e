use rayon::prelude::*;

use super::rows::{gather, scatter};
use super::{NOT_COUNTED, TokenLoss, softmax};
use crate::autograd::round_stored;
use crate::device::gemm::{Mat, par_matmul};
use crate::device::parallel::rows_per_task;
use crate::device::pool::Buffer;

/// Logits of a block, and the fewest rows that still keep the products at the matrix rate.
const BLOCK_LOGITS: usize = 1 << 20;
const FEWEST_ROWS: usize = 128;

pub struct Problem<'a> {
    /// [R, d]
    pub hidden: &'a [f32],
    /// [V, d]
    pub head: &'a [f32],
    /// `[R]`
    pub targets: &'a [u32],
    /// Rows with a target, rising.
    pub counted: Vec<usize>,
    pub d: usize,
    pub vocab: usize,
}

impl Problem<'_> {
    /// Calls `work(counted rows, their hidden states, their logits [rows, V])` block by block.
    fn for_blocks(&self, mut work: impl FnMut(&[usize], &[f32], &mut [f32])) {
        if self.counted.is_empty() {
            return;
        }
        let (d, vocab) = (self.d, self.vocab);
        let block = (BLOCK_LOGITS / vocab).max(FEWEST_ROWS).min(self.counted.len());
        let mut logits = Buffer::unwritten(block * vocab);
        for rows in self.counted.chunks(block) {
            let hidden = gather(self.hidden, d, rows, 1.0);
            let logits = &mut logits[..rows.len() * vocab];
            par_matmul(Mat::new(&hidden, rows.len(), d), Mat::new(self.head, vocab, d).t(), logits, vocab, false);
            work(rows, &hidden, logits);
        }
    }

    fn target(&self, row: usize) -> usize {
        self.targets[row] as usize
    }
}

/// The mean loss; the gradients of the mean, written in full, where they are wanted.
pub fn forward(problem: &Problem, mut d_hidden: Option<&mut [f32]>, mut d_head: Option<&mut [f32]>) -> f32 {
    let (d, vocab, count) = (problem.d, problem.vocab, problem.counted.len());
    if let Some(d_hidden) = d_hidden.as_mut().filter(|_| count < problem.targets.len()) {
        d_hidden.fill(0.0);
    }
    if let Some(d_head) = d_head.as_mut().filter(|_| count == 0) {
        d_head.fill(0.0);
    }
    let wanted = d_hidden.is_some() || d_head.is_some();
    let (mut total, mut first) = (0.0, true);
    problem.for_blocks(|rows, hidden, logits| {
        let losses: Vec<f64> = (logits.par_chunks_exact_mut(vocab).zip(rows))
            .with_min_len(rows_per_task(vocab))
            .map(|(logits, row)| {
                let loss = Loss::of(logits, problem.target(*row));
                if wanted {
                    loss.gradient(logits, problem.target(*row), 1.0 / count as f64);
                    round_stored(logits);
                }
                loss.nats
            })
            .collect();
        total += losses.iter().sum::<f64>();
        if let Some(d_hidden) = &mut d_hidden {
            scatter(d_hidden, d, rows, |out| {
                par_matmul(Mat::new(logits, rows.len(), vocab), Mat::new(problem.head, vocab, d), out, d, false);
            });
        }
        if let Some(d_head) = &mut d_head {
            let logits = Mat::new(logits, rows.len(), vocab).t();
            par_matmul(logits, Mat::new(hidden, rows.len(), d), d_head, d, !first);
        }
        first = false;
    });
    if count == 0 { 0.0 } else { (total / count as f64) as f32 }
}

struct Loss {
    nats: f64,
    /// Σ exp(logit − largest).
    sum: f64,
}

impl Loss {
    /// Turns logits into exp(logit − largest).
    fn of(logits: &mut [f32], target: usize) -> Loss {
        let largest = softmax::max(logits);
        let below = f64::from(largest) - f64::from(logits[target]);
        let sum = softmax::exp_sum(logits, largest);
        Loss { nats: below + sum.ln(), sum }
    }

    /// Turns what [`Loss::of`] left into (softmax − one-hot)·scale.
    fn gradient(&self, exponentials: &mut [f32], target: usize, scale: f64) {
        let factor = (scale / self.sum) as f32;
        exponentials.iter_mut().for_each(|x| *x *= factor);
        exponentials[target] -= scale as f32;
    }
}

pub fn token_losses(problem: &Problem) -> Vec<TokenLoss> {
    let mut losses = vec![TokenLoss { nats: 0.0, top: NOT_COUNTED }; problem.targets.len()];
    problem.for_blocks(|rows, _, logits| {
        let block: Vec<TokenLoss> = (logits.par_chunks_exact_mut(problem.vocab).zip(rows))
            .with_min_len(rows_per_task(problem.vocab))
            .map(|(logits, row)| {
                let largest = softmax::max(logits);
                let top = logits.iter().position(|logit| *logit == largest).map_or(NOT_COUNTED, |at| at as u32);
                TokenLoss { nats: Loss::of(logits, problem.target(*row)).nats as f32, top }
            })
            .collect();
        rows.iter().zip(block).for_each(|(row, loss)| losses[*row] = loss);
    });
    losses
}
