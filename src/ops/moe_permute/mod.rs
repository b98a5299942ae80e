//! Rows gathered expert by expert, so that each expert sees its tokens as one matrix.

pub mod cases;
mod cpu;
pub mod reference;

use std::sync::Arc;

use crate::autograd::{Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Marks a (token, slot) pair that goes to no expert: it contributes nothing and gets no gradient.
pub const DROPPED: u32 = u32::MAX;

/// Where each (token, slot) pair's row lies once rows are sorted by expert. Within an expert, rows keep the tokens' order.
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
}

impl Dispatch {
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
        })
    }

    /// Sorted rows, M.
    pub fn rows(&self) -> usize {
        self.pairs.len()
    }

    /// Tokens, R.
    pub fn tokens(&self) -> usize {
        self.positions.len() / self.top_k
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
    let y = Tensor::build([dispatch.rows(), width], |y| cpu::forward(x.f32(), width, dispatch, y));
    let dispatch = dispatch.clone();
    Ok(tape.record1("moe_permute", &[x], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        ctx.add(0, Tensor::build([rows, width], |dx| cpu::backward(dy.f32(), width, &dispatch, dx)));
        Ok(())
    }))
}
