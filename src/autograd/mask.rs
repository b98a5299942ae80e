//! Soft architecture masks, as the probabilities of the candidates that keep a component.

use std::sync::Arc;

use super::tape::Var;
use crate::device::parallel::dot;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Which draw each row of a flat activation belongs to.
#[derive(Clone, Debug)]
pub enum Draws {
    /// One draw for all rows.
    One,
    /// Row r belongs to draw `of_sequence[r / length]`: equal sequences, in order.
    Sequences { length: usize, of_sequence: Arc<[u32]> },
    /// Row r belongs to draw `of_row[r]`: rows in any order, as after a permutation.
    Rows(Arc<[u32]>),
    /// The same, u32 on a GPU: a kernel put the rows in order, and no number of it is known here.
    Gpu(Tensor),
}

impl Draws {
    #[inline]
    pub fn of(&self, row: usize) -> usize {
        match self {
            Draws::One => 0,
            Draws::Sequences { length, of_sequence } => of_sequence[row / length] as usize,
            Draws::Rows(of_row) => of_row[row] as usize,
            Draws::Gpu(_) => unreachable!("draws on a GPU are read by kernels"),
        }
    }

    /// The draws of rows `order[0], order[1], …`.
    pub fn permuted(&self, order: &[u32]) -> Draws {
        match self {
            Draws::One => Draws::One,
            _ => Draws::Rows(order.iter().map(|row| self.of(*row as usize) as u32).collect()),
        }
    }

    fn check(&self, rows: usize, draws: usize) -> Result<()> {
        let (covered, largest) = match self {
            Draws::One => (rows, 0),
            Draws::Sequences { length, of_sequence } => {
                (of_sequence.len() * length, of_sequence.iter().copied().max().unwrap_or(0))
            }
            Draws::Rows(of_row) => (of_row.len(), of_row.iter().copied().max().unwrap_or(0)),
            Draws::Gpu(of_row) => (of_row.numel(), 0),
        };
        if covered != rows {
            return Err(Error::contract("mask", "rows with a draw", covered, format!("{rows}")));
        }
        if largest as usize >= draws {
            return Err(Error::contract("mask", "draw of a row", largest, format!("a draw below {draws}")));
        }
        Ok(())
    }
}

/// A mask over the components of one axis, sorted by importance.
///
/// The candidates of the axis are widths `ends[0] ≤ … ≤ ends[C−1]`; the component with rank i (0-based) has the mask value
/// `keep[draw, c]` of the first c with i < ends\[c\]: the probability of all candidates that keep it. Components come in
/// groups of `ends[C−1]` (Mamba heads in head groups, experts in routing groups; elsewhere one group), and each group is
/// masked alike. The gradient is one sum per draw and interval, never one per component.
#[derive(Clone, Debug)]
pub struct Mask {
    /// `[C]`, rising; the last is the number of components of a group.
    pub ends: Arc<[usize]>,
    /// [draws, C].
    pub keep: Var,
    pub draws: Draws,
}

impl Mask {
    pub fn new(ends: &[usize], keep: Var, draws: Draws) -> Result<Mask> {
        if ends.is_empty() || ends.windows(2).any(|w| w[0] > w[1]) {
            return Err(Error::contract("mask", "ends", ends, "at least one, rising"));
        }
        if keep.dims().len() != 2 || keep.dims()[1] != ends.len() {
            return Err(Error::contract("mask", "keep", keep.dims(), format!("[draws, {}]", ends.len())));
        }
        Ok(Mask { ends: ends.into(), keep, draws })
    }

    /// The same probabilities over other rows.
    pub fn with_draws(&self, draws: Draws) -> Mask {
        Mask { draws, ..self.clone() }
    }

    /// Refuses a mask that does not fit an axis of `width` components over `rows` rows.
    pub fn check(&self, width: usize, rows: usize) -> Result<()> {
        let period = self.ends[self.ends.len() - 1];
        if period == 0 || !width.is_multiple_of(period) {
            return Err(Error::contract("mask", "ends", &self.ends, format!("a last end that divides {width}")));
        }
        self.draws.check(rows, self.keep.dims()[0])
    }

    /// The mask's values for an axis of `width` components (a multiple of the group's) over `rows` rows.
    pub fn rows(&self, width: usize, rows: usize) -> Result<MaskRows> {
        self.check(width, rows)?;
        let period = self.ends[self.ends.len() - 1];
        let draws = self.keep.dims()[0];
        let keep = self.keep.f32();
        let mut table = Vec::with_capacity(draws * width);
        let mut totals = Vec::with_capacity(draws);
        let c = self.ends.len();
        for draw in 0..draws {
            let first = table.len();
            for _ in 0..width / period {
                let mut start = 0;
                for (end, keep) in self.ends.iter().zip(&keep[draw * c..]) {
                    table.extend(std::iter::repeat_n(*keep, end - start));
                    start = *end;
                }
            }
            totals.push(table[first..].iter().map(|m| f64::from(*m)).sum::<f64>() as f32);
        }
        Ok(MaskRows { table, totals, width, period, draws: self.draws.clone(), ends: self.ends.clone() })
    }
}

/// A mask spelled out: one value per draw and component.
pub struct MaskRows {
    table: Vec<f32>,
    totals: Vec<f32>,
    width: usize,
    period: usize,
    pub draws: Draws,
    ends: Arc<[usize]>,
}

impl MaskRows {
    /// `[width]`, for row r of the activation.
    #[inline]
    pub fn row(&self, row: usize) -> &[f32] {
        let first = self.draws.of(row) * self.width;
        &self.table[first..first + self.width]
    }

    /// Σ over the components of the row's mask.
    #[inline]
    pub fn total(&self, row: usize) -> f32 {
        self.totals[self.draws.of(row)]
    }

    pub fn width(&self) -> usize {
        self.width
    }

    /// The group of components within which `ends` count.
    pub fn period(&self) -> usize {
        self.period
    }

    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// Elements of the gradient, [draws, C].
    pub fn grad_len(&self) -> usize {
        self.totals.len() * self.ends.len()
    }

    /// Components that interval c holds, over all groups.
    pub fn interval_len(&self, c: usize) -> usize {
        let start = if c == 0 { 0 } else { self.ends[c - 1] };
        (self.ends[c] - start) * (self.width / self.period)
    }

    /// The interval of component i.
    #[inline]
    pub fn interval(&self, i: usize) -> usize {
        let rank = i % self.period;
        self.ends.partition_point(|end| *end <= rank)
    }

    /// Adds a row's mask gradient ⟨∂L/∂out, unmasked out⟩ per interval to `acc` [draws, C].
    pub fn add_products(&self, acc: &mut [f32], row: usize, grad_out: &[f32], unmasked: &[f32]) {
        let acc = self.row_grad(acc, row);
        for group in (0..self.width).step_by(self.period) {
            let mut start = group;
            for (sum, end) in acc.iter_mut().zip(self.ends.iter()) {
                let end = group + end;
                *sum += dot(&grad_out[start..end], &unmasked[start..end]);
                start = end;
            }
        }
    }

    /// Adds a row's gradient ∂L/∂(Σ m) to every interval: each component of the interval moves the sum by one.
    pub fn add_total(&self, acc: &mut [f32], row: usize, grad_total: f32) {
        let acc = self.row_grad(acc, row);
        for (c, sum) in acc.iter_mut().enumerate() {
            *sum += grad_total * self.interval_len(c) as f32;
        }
    }

    /// The slice of `acc` [draws, C] that belongs to the row's draw.
    #[inline]
    pub fn row_grad<'g>(&self, acc: &'g mut [f32], row: usize) -> &'g mut [f32] {
        let c = self.ends.len();
        let first = self.draws.of(row) * c;
        &mut acc[first..first + c]
    }
}

/// x·m, where a mask of exactly 0 gives exactly 0 whatever x is.
#[inline(always)]
pub fn masked(x: f32, m: f32) -> f32 {
    if m == 0.0 { 0.0 } else { x * m }
}
