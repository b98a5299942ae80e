//! Recovery: a student learns its parent's token distribution (logit distillation alone, METHOD: forward KL).

use crate::autograd::{Gradients, Params, Tape};
use crate::data::{Batch, IGNORE};
use crate::model::{Input, Lm};
use crate::ops::distill_loss::{DistillOptions, Head, TeacherHead, distill_loss};
use crate::tensor::Segments;
use crate::train::{Job, StepState};
use crate::{Error, Result};

/// Distils `parent` into `student`. Both read the same tokens; positions count where the batch has a target.
pub struct Recover<'p> {
    pub student: Lm,
    pub parent: &'p Lm,
    pub options: DistillOptions,
    pub recompute: bool,
}

impl Job for Recover<'_> {
    fn params(&self) -> &Params {
        &self.student.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.student.params
    }

    fn micro_batch(&mut self, batch: &Batch, share: f32, _: &StepState, grads: &mut Gradients) -> Result<f64> {
        let segments = Segments::from_offsets(&batch.segments)
            .ok_or_else(|| Error::contract("recover", "segments", &batch.segments, "offsets that rise from 0"))?;
        let input = Input::new(&batch.tokens, &segments);
        let quiet = Tape::inference();
        let taught = self.parent.forward(&quiet, &input)?.hidden;
        let head = self.parent.head(&quiet);
        let tape = Tape::new();
        let hidden = self.student.forward(&tape, &Input { recompute: self.recompute, ..input })?.hidden;
        let valid: Vec<bool> = batch.targets.iter().map(|target| *target != IGNORE).collect();
        let student = Head { hidden: &hidden, weight: &self.student.head(&tape) };
        let teacher = TeacherHead { hidden: taught.value(), weight: head.value() };
        let loss = distill_loss(&tape, student, teacher, &valid, &self.options)?;
        let value = f64::from(loss.value().item());
        tape.backward(&loss, share, grads)?;
        Ok(value)
    }
}
