//! Next-token cross-entropy, fused with the LM head: a block of logits exists only while its rows are worked on.

pub mod cases;
mod cpu;
pub(in crate::ops) mod cuda;
pub mod reference;
pub(in crate::ops) mod rows;
pub(in crate::ops) mod softmax;

use crate::autograd::{Backward, Tape, Var};
use crate::tensor::{Shape, Tensor};
use crate::{Error, Result};

/// The target of a row that does not count.
pub const NOT_COUNTED: u32 = u32::MAX;

/// The loss of one row, see [`token_losses`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLoss {
    /// −ln p(target); 0 of a row that does not count.
    pub nats: f32,
    /// The id of the largest logit, the lowest among equals; [`NOT_COUNTED`] of a row that does not count, or of NaN only.
    pub top: u32,
}

/// hidden [R, d], head [V, d], targets `[R]` (`u32::MAX`: not counted) → mean of −ln softmax(hidden·headᵀ)\[target\] in nats
/// over the counted rows, a scalar; 0 with zero gradients if none counts. A target that is not below V is an error.
///
/// Where a gradient is wanted, the same pass turns each block of logits into its gradient and multiplies it out, so that
/// backward only scales.
pub fn cross_entropy(tape: &Tape<'_>, hidden: &Var, head: &Var, targets: &[u32]) -> Result<Var> {
    let counted = check("cross_entropy", hidden.value(), head.value(), targets)?;
    if let Some(gpu) = hidden.value().gpu() {
        return cuda::cross_entropy(gpu, tape, hidden, head, targets);
    }
    let problem = problem(hidden.value(), head.value(), targets, counted);
    let grad = |of: &Var| (tape.is_recording() && of.needs_grad()).then(|| Tensor::build(of.shape().clone(), |_| {}));
    let (mut d_hidden, mut d_head) = (grad(hidden), grad(head));
    let loss = cpu::forward(&problem, d_hidden.as_mut().map(Tensor::f32_mut), d_head.as_mut().map(Tensor::f32_mut));
    Ok(tape.record1("cross_entropy", &[hidden, head], Tensor::scalar(loss), move |ctx| {
        add_scaled(ctx, d_hidden, d_head);
        Ok(())
    }))
}

/// Backward of a loss (inputs: hidden states and head) whose gradients were made in forward, for a seed of 1.
pub(in crate::ops) fn add_scaled(ctx: &mut Backward<'_>, d_hidden: Option<Tensor>, d_head: Option<Tensor>) {
    let Some(seed) = ctx.output(0).map(|seed| seed.item()) else { return };
    if let Some(mut d_hidden) = d_hidden {
        rows::scale(d_hidden.f32_mut(), seed);
        ctx.add(0, d_hidden);
    }
    if let Some(d_head) = d_head {
        ctx.accumulate(1, d_head.shape(), |values, accumulate| {
            rows::write_scaled(values, d_head.f32(), seed, accumulate);
        });
    }
}

/// The loss and the most likely token of every row, for evaluation: arguments and errors as [`cross_entropy`]'s, one entry
/// per row of `hidden`. Rows that do not count cost nothing, and so have no `top`.
pub fn token_losses(hidden: &Tensor, head: &Tensor, targets: &[u32]) -> Result<Vec<TokenLoss>> {
    let counted = check("token_losses", hidden, head, targets)?;
    if let Some(gpu) = hidden.gpu() {
        return cuda::token_losses(gpu, hidden, head, targets);
    }
    Ok(cpu::token_losses(&problem(hidden, head, targets, counted)))
}

fn problem<'a>(hidden: &'a Tensor, head: &'a Tensor, targets: &'a [u32], counted: Vec<usize>) -> cpu::Problem<'a> {
    let (vocab, d) = (head.shape().rows(), head.shape().last());
    cpu::Problem { hidden: hidden.f32(), head: head.f32(), targets, counted, d, vocab }
}

/// The rows that count, of inputs that fit.
fn check(op: &'static str, hidden: &Tensor, head: &Tensor, targets: &[u32]) -> Result<Vec<usize>> {
    let shapes: (&Shape, &Shape) = (hidden.shape(), head.shape());
    let &[vocab, d] = shapes.1.dims() else {
        return Err(Error::contract(op, "head", shapes.1, "[V, d]"));
    };
    if shapes.0.dims() != [targets.len(), d] {
        return Err(Error::contract(op, "hidden", shapes.0, format!("[{}, {d}] (targets, head's d)", targets.len())));
    }
    let wrong = targets.iter().position(|target| *target != NOT_COUNTED && *target as usize >= vocab);
    if let Some(at) = wrong {
        let expected = format!("ids below {vocab}, the head's rows, but position {at} has another");
        return Err(Error::contract(op, "targets", targets[at], expected));
    }
    Ok((0..targets.len()).filter(|row| targets[*row] != NOT_COUNTED).collect())
}
