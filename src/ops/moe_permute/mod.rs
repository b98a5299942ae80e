//! Rows gathered expert by expert, so that each expert sees its tokens as one matrix.

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use std::sync::Arc;

use super::grouped_gemm::ExpertRows;
use crate::autograd::{Draws, Tape, Var};
use crate::device::cuda::Cuda;
use crate::tensor::Tensor;
use crate::{Error, Result};

pub(in crate::ops) use cuda::Sorted;

/// Marks a (token, slot) pair that goes to no expert: it contributes nothing and gets no gradient.
pub const DROPPED: u32 = u32::MAX;

/// Where each (token, slot) pair's row lies once rows are sorted by expert. Within an expert, rows keep the tokens' order.
///
/// Pairs that a GPU chose stay there: the arrays here are then empty, and the ops alone look at what the kernels made.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// [E + 1]: expert e's rows are offsets\[e\] .. offsets[e+1].
    pub offsets: Arc<[usize]>,
    /// `[M]`: the pair r·K + k that a sorted row came from. M is R·K less the dropped pairs.
    pub pairs: Arc<[u32]>,
    /// [R·K]: the sorted row of each pair, or [`DROPPED`].
    pub positions: Arc<[u32]>,
    /// [R·K]: the expert of each pair, or [`DROPPED`].
    pub experts: Arc<[u32]>,
    pub top_k: usize,
    /// E.
    count: usize,
    /// The draw of each sorted row, where it was asked for.
    draws: Option<Draws>,
    on_gpu: Option<Sorted>,
}

impl Dispatch {
    /// From the experts of each token, u32 [R, K], among `count` experts, wherever they are. With the tokens' `draws`,
    /// [`Dispatch::draws`] has those of the sorted rows.
    pub fn of(experts: &Tensor, top_k: usize, count: usize, draws: Option<&Draws>) -> Result<Dispatch> {
        let Some(gpu) = experts.gpu() else {
            let mut dispatch = Dispatch::new(experts.values::<u32>(), top_k, count)?;
            dispatch.draws = draws.map(|draws| draws.permuted(&dispatch.tokens_of_rows()));
            return Ok(dispatch);
        };
        let sorted = Sorted::new(gpu, experts, top_k, count, draws)?;
        let draws = draws.map(|_| sorted.draw_of.clone().map_or(Draws::One, Draws::Gpu));
        let (offsets, empty): (Arc<[usize]>, Arc<[u32]>) = (Arc::new([]), Arc::new([]));
        let (pairs, positions, experts) = (empty.clone(), empty.clone(), empty);
        Ok(Dispatch { offsets, pairs, positions, experts, top_k, count, draws, on_gpu: Some(sorted) })
    }

    /// From the experts of each token, [R, K], among `count` experts.
    pub fn new(experts: &[u32], top_k: usize, count: usize) -> Result<Dispatch> {
        if top_k == 0 || !experts.len().is_multiple_of(top_k) || experts.len() > DROPPED as usize {
            return Err(Error::contract(
                "moe_permute",
                "experts",
                experts.len(),
                format!("rows of {top_k}, below 2³²"),
            ));
        }
        if let Some(e) = experts.iter().find(|e| **e != DROPPED && **e as usize >= count) {
            return Err(Error::contract("moe_permute", "expert", e, format!("below {count}")));
        }
        let mut offsets = vec![0usize; count + 1];
        for e in experts.iter().filter(|e| **e != DROPPED) {
            offsets[*e as usize + 1] += 1;
        }
        for e in 0..count {
            offsets[e + 1] += offsets[e];
        }
        let mut next = offsets.clone();
        let mut pairs = vec![0u32; offsets[count]];
        let mut positions = vec![DROPPED; experts.len()];
        for (pair, e) in experts.iter().enumerate().filter(|(_, e)| **e != DROPPED) {
            let at = &mut next[*e as usize];
            pairs[*at] = pair as u32;
            positions[pair] = *at as u32;
            *at += 1;
        }
        Ok(Dispatch {
            offsets: offsets.into(),
            pairs: pairs.into(),
            positions: positions.into(),
            experts: experts.into(),
            top_k,
            count,
            draws: None,
            on_gpu: None,
        })
    }

    /// Sorted rows, M. On a GPU all R·K pairs have one.
    pub fn rows(&self) -> usize {
        self.on_gpu.as_ref().map_or(self.pairs.len(), |sorted| sorted.chosen.numel())
    }

    /// Tokens, R.
    pub fn tokens(&self) -> usize {
        self.on_gpu.as_ref().map_or(self.positions.len(), |sorted| sorted.chosen.numel()) / self.top_k
    }

    /// E.
    pub fn experts(&self) -> usize {
        self.count
    }

    /// The draw of each sorted row, of a dispatch that was asked for it.
    pub fn draws(&self) -> Option<&Draws> {
        self.draws.as_ref()
    }

    /// Where each expert's rows are.
    pub fn expert_rows(&self) -> ExpertRows<'_> {
        match &self.on_gpu {
            Some(sorted) => ExpertRows::Gpu(&sorted.offsets),
            None => ExpertRows::Host(&self.offsets),
        }
    }

    /// [E + 1] of u32: the row offsets of the experts, where the dispatch is.
    pub fn loads(&self) -> Result<Tensor> {
        match &self.on_gpu {
            Some(sorted) => Ok(sorted.offsets.part(0, [self.count + 1])),
            None => Ok(Tensor::from_slice([self.count + 1], &super::gpu::sizes(&self.offsets)?)),
        }
    }

    /// As kernels take it: what they made, or the same sort of the pairs here.
    pub(in crate::ops) fn sorted(&self, gpu: &Arc<Cuda>) -> Result<Sorted> {
        if let Some(sorted) = &self.on_gpu {
            return Ok(sorted.clone());
        }
        let chosen = Tensor::from_slice([self.experts.len()], &self.experts).to_gpu(gpu)?;
        Sorted::new(gpu, &chosen, self.top_k, self.count, None)
    }

    /// With the arrays in this machine's memory, without the draws.
    ///
    /// # Errors
    /// On a GPU, where the driver fails.
    pub fn to_host(&self) -> Result<Dispatch> {
        match &self.on_gpu {
            Some(sorted) => Dispatch::new(sorted.chosen.to_host()?.values::<u32>(), self.top_k, self.count),
            None => Ok(Dispatch { draws: None, ..self.clone() }),
        }
    }

    /// `[M]`: the token of each sorted row.
    pub fn tokens_of_rows(&self) -> Vec<u32> {
        self.pairs.iter().map(|pair| pair / self.top_k as u32).collect()
    }
}

/// x [R, L] → [M, L], the rows of the tokens in the order of `dispatch`.
pub fn moe_permute(tape: &Tape<'_>, x: &Var, dispatch: &Dispatch) -> Result<Var> {
    let (rows, width) = (x.shape().rows(), x.shape().last());
    if rows != dispatch.tokens() {
        return Err(Error::contract("moe_permute", "x", x.dims(), format!("[{}, L]", dispatch.tokens())));
    }
    if let Some(gpu) = x.value().gpu() {
        return cuda::moe_permute(gpu, tape, x, dispatch.sorted(gpu)?, (dispatch.top_k, dispatch.rows()));
    }
    let y = Tensor::build([dispatch.rows(), width], |y| cpu::forward(x.f32(), width, dispatch, y));
    let dispatch = dispatch.clone();
    Ok(tape.record1("moe_permute", &[x], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        ctx.add(0, Tensor::build([rows, width], |dx| cpu::backward(dy.f32(), width, &dispatch, dx)));
        Ok(())
    }))
}
