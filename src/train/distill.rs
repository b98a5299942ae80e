//! Logit distillation of one model into another, over a batch.

use crate::Result;
use crate::autograd::{Tape, Var};
use crate::data::{Batch, IGNORE};
use crate::model::{Input, Lm, Masks, Output, StepProducts};
use crate::ops::distill_loss::{DistillOptions, Head, TeacherHead, distill_loss};
use crate::tensor::Tensor;

/// A model that learns, and how it runs.
pub struct Student<'s, 'm> {
    pub lm: &'s Lm,
    pub masks: Option<&'m Masks>,
    pub recompute: bool,
    pub products: Option<StepProducts>,
}

/// A batch distilled.
pub struct Distilled {
    pub loss: Var,
    /// The student's [`Output::loads`](crate::model::Output::loads).
    pub loads: Vec<Tensor>,
}

/// KL from `parent` to `student` in nats, mean over the batch's valid tokens, on `tape` for the student alone.
pub fn distillation<'s>(
    tape: &Tape<'s>,
    parent: &Lm,
    student: Student<'s, '_>,
    batch: &Batch,
    options: &DistillOptions,
) -> Result<Distilled> {
    let segments = batch.rows()?;
    let input = Input::new(&batch.tokens, &segments);
    let quiet = Tape::inference();
    let taught = parent.forward(&quiet, &input)?.hidden;
    let parent_head = parent.head(&quiet);
    let Student { lm, masks, recompute, products } = student;
    let Output { hidden, loads } = lm.forward(tape, &Input { masks, recompute, products, ..input })?;
    let valid: Vec<bool> = batch.targets.iter().map(|target| *target != IGNORE).collect();
    let student = Head { hidden: &hidden, weight: &lm.head(tape) };
    let teacher = TeacherHead { hidden: taught.value(), weight: parent_head.value() };
    Ok(Distilled { loss: distill_loss(tape, student, teacher, &valid, options)?, loads })
}
