//! Recovery: a student learns its parent's token distribution (logit distillation alone, docs/method.md: forward KL).

use crate::Result;
use crate::autograd::{Gradients, Params, Tape};
use crate::data::Batch;
use crate::device::Place;
use crate::model::{Lm, Purpose};
use crate::ops::distill_loss::DistillOptions;
use crate::train::{Job, StepState, Student, distillation};

/// Distils `parent` into `student`. Both read the same tokens; positions count where the batch has a target.
pub struct Recover<'p> {
    pub student: Lm,
    pub parent: &'p Lm,
    pub options: DistillOptions,
    pub recompute: bool,
    /// The parent on the GPU that the student learns on.
    teacher: Option<Lm>,
}

impl<'p> Recover<'p> {
    pub fn new(student: Lm, parent: &'p Lm, options: DistillOptions, recompute: bool) -> Recover<'p> {
        Recover { student, parent, options, recompute, teacher: None }
    }
}

impl Job for Recover<'_> {
    fn params(&self) -> &Params {
        &self.student.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.student.params
    }

    fn place(&mut self, place: &Place) -> Result<()> {
        self.teacher = Some(self.parent.placed(place, Purpose::Inference)?);
        self.student = self.student.placed(place, Purpose::Training)?;
        Ok(())
    }

    fn micro_batch(&mut self, batch: &Batch, share: f32, state: &StepState, grads: &mut Gradients) -> Result<f64> {
        let tape = Tape::new();
        let products = state.products_of(batch);
        let student = Student { lm: &self.student, masks: None, recompute: self.recompute, products };
        let loss =
            distillation(&tape, self.teacher.as_ref().unwrap_or(self.parent), student, batch, &self.options)?.loss;
        tape.backward(&loss, share, grads)?;
        Ok(f64::from(loss.value().read_item()?))
    }
}
