//! Causal grouped-query attention (Ainslie et al., 2023), tile by tile with an online softmax (Dao et al., 2022): no score
//! matrix is ever stored, and backward recomputes each tile from the saved log-sum-exp.

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use std::ops::Range;

use crate::autograd::{Tape, Var};
use crate::tensor::{Segments, Tensor};
use crate::{Error, Result};

/// Query head h attends with key-value head ⌊h / (heads / kv_heads)⌋.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionDims {
    /// Query heads Hq, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key-value heads Hkv.
    pub kv_heads: usize,
    pub head_dim: usize,
}

impl AttentionDims {
    /// Query heads per key-value head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

/// q [R, Hq·D], k and v [Rk, Hkv·D] → softmax(q·kᵀ / √D)·v per head, [R, Hq·D].
///
/// The queries of segment i attend to rows `keys[i]` of k and v. They are the last ones of that sequence: query t of n_q
/// sees keys j ≤ n_k − n_q + t, so cached decoding and prefill in chunks need no other mask. A query that sees no key gives
/// 0 (log-sum-exp −∞) and zero gradients. Key ranges may overlap, as with a shared prefix.
pub fn attention(
    tape: &Tape<'_>,
    q: &Var,
    k: &Var,
    v: &Var,
    dims: &AttentionDims,
    queries: &Segments,
    keys: &[Range<usize>],
) -> Result<Var> {
    check(q, k, v, dims, queries, keys)?;
    if let Some(gpu) = q.value().gpu() {
        return cuda::attention(gpu, tape, [q, k, v], dims, queries, keys);
    }
    let problem = cpu::Problem { dims: *dims, queries: queries.clone(), keys: keys.to_vec() };
    let mut lse = Tensor::build([queries.rows(), dims.heads], |_| {});
    let out = Tensor::build(q.shape().clone(), |out| {
        cpu::forward(&problem, [q.f32(), k.f32(), v.f32()], out, lse.f32_mut());
    });
    let saved = [q, k, v].map(|input| input.value().clone());
    let result = out.clone();
    Ok(tape.record1("attention", &[q, k, v], out, move |ctx| {
        let Some(dout) = ctx.output(0) else { return Ok(()) };
        let [q, k, v] = &saved;
        let inputs =
            cpu::Saved { q: q.f32(), k: k.f32(), v: v.f32(), out: result.f32(), lse: lse.f32(), dout: dout.f32() };
        let [dq, dk, dv] = cpu::backward(&problem, &inputs);
        ctx.add(0, dq.reshape(q.shape().clone()));
        ctx.add(1, dk.reshape(k.shape().clone()));
        ctx.add(2, dv.reshape(v.shape().clone()));
        Ok(())
    }))
}

fn check(q: &Var, k: &Var, v: &Var, dims: &AttentionDims, queries: &Segments, keys: &[Range<usize>]) -> Result<()> {
    const OP: &str = "attention";
    let &AttentionDims { heads, kv_heads, head_dim } = dims;
    let width = heads.checked_mul(head_dim).filter(|width| *width > 0 && kv_heads > 0 && heads % kv_heads == 0);
    let Some(width) = width else {
        return Err(Error::contract(OP, "dims", dims, "query heads a multiple of the key-value heads, none of them 0"));
    };
    if q.dims() != [queries.rows(), width] {
        return Err(Error::contract(OP, "q", q.dims(), format!("[{}, {width}]", queries.rows())));
    }
    let kv_width = kv_heads * head_dim;
    if k.dims().len() != 2 || k.dims()[1] != kv_width {
        return Err(Error::contract(OP, "k", k.dims(), format!("[Rk, {kv_width}]")));
    }
    if v.dims() != k.dims() {
        return Err(Error::contract(OP, "v", v.dims(), format!("{:?}, k's", k.dims())));
    }
    if keys.len() != queries.count() {
        return Err(Error::contract(OP, "keys", keys.len(), format!("{} ranges, one a segment", queries.count())));
    }
    if let Some(range) = keys.iter().find(|range| range.start > range.end || range.end > k.dims()[0]) {
        return Err(Error::contract(OP, "keys", range, format!("a range of k's {} rows", k.dims()[0])));
    }
    Ok(())
}
