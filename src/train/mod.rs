//! The one training loop: accumulation, clipping, schedule, checkpoints, metrics. A job gives it a step.

mod distill;
mod progress;
mod run;
mod schedule;
mod state;

pub use distill::{Distilled, Student, distillation};
pub use progress::Progress;
pub use run::{Options, Summary, train};
pub use schedule::Schedule;
pub use state::Numbers;

use crate::Result;
use crate::autograd::{Gradients, Params};
use crate::data::Batch;
use crate::device::Place;
use crate::model::{Products, StepProducts};

/// What a step knows of where it stands.
#[derive(Clone, Copy, Debug)]
pub struct StepState {
    /// Counted from 0.
    pub step: u64,
    pub learning_rate: f32,
    pub seed: u64,
    /// B, sequences of the step.
    pub sequences: usize,
    /// How many of them come before this micro-batch.
    pub first_sequence: usize,
    /// How the products of the model that learns are quantised, where they are.
    pub products: Option<Products>,
}

impl StepState {
    /// The products of this micro-batch.
    pub fn products_of(&self, batch: &Batch) -> Option<StepProducts> {
        let micro_batch = self.first_sequence / batch.sequences.max(1);
        let of = |products| StepProducts { products, seed: self.seed, step: self.step, micro_batch };
        self.products.map(of)
    }
}

/// A kind of training. The loop owns the optimizer, the job the parameters and the loss.
pub trait Job {
    fn params(&self) -> &Params;
    fn params_mut(&mut self) -> &mut Params;

    /// Moves the models to a GPU, before the first step. What was there for reading stays readable.
    ///
    /// # Errors
    /// Where the GPU's memory is too small.
    fn place(&mut self, _place: &Place) -> Result<()> {
        Ok(())
    }

    /// Forward and backward of one micro-batch. Its gradients, times `share` (its part of the step's valid tokens), are added
    /// to `grads`. Returns the mean loss over its valid tokens, in nats.
    fn micro_batch(&mut self, batch: &Batch, share: f32, state: &StepState, grads: &mut Gradients) -> Result<f64>;

    /// After the update, before the next step.
    fn after_step(&mut self, _state: &StepState) -> Result<()> {
        Ok(())
    }

    /// Whether the job has reached its end, asked after [`Job::after_step`]: no step follows, nor when it is resumed.
    fn finished(&self) -> bool {
        false
    }

    /// Adds the job's own numbers to the step's line in `metrics.jsonl`.
    fn metrics(&self, _line: &mut serde_json::Map<String, serde_json::Value>) {}
}

/// The processes that train together. One today: sums over it are the identity.
#[derive(Clone, Copy, Debug, Default)]
pub struct World;

impl World {
    /// Σ over the world of the squared global norm's parts.
    pub fn sum(&self, value: f64) -> f64 {
        value
    }
}
