//! Logit distillation (Hinton, Vinyals & Dean, 2015), fused with both LM heads: the logits of a block of rows and a chunk of
//! the vocabulary exist only while they are worked on.

pub mod cases;
mod cpu;
mod cuda;
mod options;
pub mod reference;

use super::cross_entropy::add_scaled;
use crate::autograd::{Tape, Var};
use crate::tensor::{Shape, Tensor};
use crate::{Error, Result};

pub use options::{DistillOptions, Divergence};

/// The student: hidden [R, d_s] after the final norm, weight [V, d_s] of its LM head.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    pub hidden: &'a Var,
    pub weight: &'a Var,
}

/// The frozen teacher: hidden [R, d_t], weight [V, d_t]; d_t need not be d_s.
#[derive(Clone, Copy)]
pub struct TeacherHead<'a> {
    pub hidden: &'a Tensor,
    pub weight: &'a Tensor,
}

/// KL(teacher ‖ student) over the whole vocabulary in nats, mean over the rows with `valid` `[R]` set; 0 with zero gradients
/// if none is. Both logits are divided by the temperature, without a T² factor. Gradients for the student alone.
///
/// A token of teacher probability 0 (logit −∞, or underflow) adds nothing. Options out of range are errors.
/// Up to `options.vocab_chunk` tokens the gradients are made in the forward pass; beyond, backward computes the logits again. On a GPU it
/// always does, and what exists at a time are the logits of a block of rows.
pub fn distill_loss(
    tape: &Tape<'_>,
    student: Head<'_>,
    teacher: TeacherHead<'_>,
    valid: &[bool],
    options: &DistillOptions,
) -> Result<Var> {
    options.check()?;
    let vocab = check(&student, &teacher, valid)?;
    if let Some(gpu) = student.hidden.value().gpu() {
        return cuda::distill_loss(gpu, tape, student, teacher, valid, options.temperature);
    }
    let problem = cpu::Problem {
        student: (student.hidden.value().clone(), student.weight.value().clone()),
        teacher: (teacher.hidden.clone(), teacher.weight.clone()),
        valid: (0..valid.len()).filter(|row| valid[*row]).collect(),
        chunk: options.vocab_chunk.min(vocab),
        vocab,
        scale: 1.0 / options.temperature,
    };
    Ok(if problem.is_one_chunk() { one_pass(tape, student, problem) } else { two_passes(tape, student, problem) })
}

/// All logits of a block of rows exist at once: their gradient is made in the same pass, backward only scales it.
fn one_pass(tape: &Tape<'_>, student: Head<'_>, problem: cpu::Problem) -> Var {
    let grad = |of: &Var| (tape.is_recording() && of.needs_grad()).then(|| Tensor::build(of.shape().clone(), |_| {}));
    let (mut d_hidden, mut d_weight) = (grad(student.hidden), grad(student.weight));
    let loss = if d_hidden.is_none() && d_weight.is_none() {
        problem.loss().0
    } else {
        problem.loss_and_gradients(cpu::Grads {
            hidden: d_hidden.as_mut().map(Tensor::f32_mut),
            weight: d_weight.as_mut().map(|grad| (grad.f32_mut(), false)),
        })
    };
    tape.record1(OP, &[student.hidden, student.weight], Tensor::scalar(loss), move |ctx| {
        add_scaled(ctx, d_hidden, d_weight);
        Ok(())
    })
}

/// Chunk by chunk, and again in backward, when the sums over the vocabulary are known.
fn two_passes(tape: &Tape<'_>, student: Head<'_>, problem: cpu::Problem) -> Var {
    let (loss, statistics) = problem.loss();
    let (hidden_shape, weight_shape) = (student.hidden.shape().clone(), student.weight.shape().clone());
    tape.record1(OP, &[student.hidden, student.weight], Tensor::scalar(loss), move |ctx| {
        let Some(seed) = ctx.output(0).map(|seed| seed.item()) else { return Ok(()) };
        let mut d_hidden = ctx.needs(0).then(|| Tensor::build(hidden_shape, |_| {}));
        if ctx.needs(1) {
            // One walk over the logits serves both gradients.
            ctx.accumulate(1, &weight_shape, |values, accumulate| {
                let hidden = d_hidden.as_mut().map(Tensor::f32_mut);
                problem.gradients(&statistics, seed, cpu::Grads { hidden, weight: Some((values, accumulate)) });
            });
        } else {
            let hidden = d_hidden.as_mut().map(Tensor::f32_mut);
            problem.gradients(&statistics, seed, cpu::Grads { hidden, weight: None });
        }
        if let Some(d_hidden) = d_hidden {
            ctx.add(0, d_hidden);
        }
        Ok(())
    })
}

const OP: &str = "distill_loss";

/// The vocabulary, of heads and hidden states that fit.
fn check(student: &Head<'_>, teacher: &TeacherHead<'_>, valid: &[bool]) -> Result<usize> {
    let (s, t): (&Shape, &Shape) = (student.weight.shape(), teacher.weight.shape());
    let &[vocab, d_s] = s.dims() else {
        return Err(Error::contract(OP, "student weight", s, "[V, d_s]"));
    };
    let &[teacher_vocab, d_t] = t.dims() else {
        return Err(Error::contract(OP, "teacher weight", t, "[V, d_t]"));
    };
    if teacher_vocab != vocab || vocab == 0 {
        return Err(Error::contract(OP, "teacher weight", t, format!("the student's vocabulary, {vocab}, not empty")));
    }
    let rows = valid.len();
    if student.hidden.dims() != [rows, d_s] {
        return Err(Error::contract(OP, "student hidden", student.hidden.dims(), format!("[{rows}, {d_s}]")));
    }
    if teacher.hidden.dims() != [rows, d_t] {
        return Err(Error::contract(OP, "teacher hidden", teacher.hidden.dims(), format!("[{rows}, {d_t}]")));
    }
    Ok(vocab)
}
