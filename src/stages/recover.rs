//! Recovery: a student learns its parent's token distribution (logit distillation alone, METHOD: forward KL).

use crate::Result;
use crate::autograd::{Gradients, Params, Tape};
use crate::data::Batch;
use crate::model::Lm;
use crate::ops::distill_loss::DistillOptions;
use crate::train::{Job, StepState, Student, distillation};

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
        let tape = Tape::new();
        let student = Student { lm: &self.student, masks: None, recompute: self.recompute };
        let loss = distillation(&tape, self.parent, student, batch, &self.options)?;
        let value = f64::from(loss.value().item());
        tape.backward(&loss, share, grads)?;
        Ok(value)
    }
}
