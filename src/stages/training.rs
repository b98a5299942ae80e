//! The table of a recipe that says how something is trained, the same for every job.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::device::Precision;
use crate::ops::adamw::AdamWOptions;
use crate::train::{Options, Schedule};
use crate::{Error, Result};

/// Steps, batches, learning rate, optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    pub steps: u64,
    /// Sequences per step.
    pub sequences: usize,
    /// Tokens per sequence.
    pub length: usize,
    /// Parts that a step's sequences are computed in, one after another.
    #[serde(default = "one")]
    pub micro_batches: usize,
    pub learning_rate: f32,
    /// Where the cosine ends.
    #[serde(default)]
    pub min_learning_rate: f32,
    #[serde(default)]
    pub warmup_steps: u64,
    #[serde(default = "default_decay")]
    pub weight_decay: f32,
    #[serde(default = "default_beta1")]
    pub beta1: f32,
    #[serde(default = "default_beta2")]
    pub beta2: f32,
    /// Largest global gradient norm.
    #[serde(default = "default_norm")]
    pub max_grad_norm: f32,
    /// Recompute each block in backward instead of keeping its activations.
    #[serde(default)]
    pub recompute: bool,
    /// Seed of the data's order and of all other noise of the steps.
    #[serde(default)]
    pub seed: u64,
    #[serde(default = "default_checkpoint")]
    pub checkpoint_every: u64,
    /// `"fp8"` or `"nvfp4"` quantise the operands of the layers' products, on the CPU too; `"bf16"` (the default) and `"f32"` are
    /// for a GPU. `--precision` goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// The part of the layers, counted from the end, that is not quantised; by default 0 with FP8 and 0.15 with NVFP4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wide_layers: Option<f64>,
}

fn one() -> usize {
    1
}
fn default_decay() -> f32 {
    0.1
}
fn default_beta1() -> f32 {
    0.9
}
fn default_beta2() -> f32 {
    0.95
}
fn default_norm() -> f32 {
    1.0
}
fn default_checkpoint() -> u64 {
    100
}

impl Training {
    /// Refuses values out of range; `file` and `table` ("train", "search.training") say where they were read.
    pub fn check(&self, file: &Path, table: &str) -> Result<()> {
        let fault = |keys: &str, found: String, expected: &str| {
            Err(Error::input(file, format!("{table}.{keys}"), found, expected))
        };
        if self.steps == 0 || self.sequences == 0 || self.length < 2 {
            let found = format!("{} steps of {} × {}", self.steps, self.sequences, self.length);
            return fault("steps, sequences, length", found, "at least 1, 1 and 2");
        }
        if self.micro_batches == 0 || !self.sequences.is_multiple_of(self.micro_batches) {
            return fault("micro_batches", self.micro_batches.to_string(), &format!("a divisor of {}", self.sequences));
        }
        if self.sequences.checked_mul(self.length).is_none() {
            let found = format!("{} × {}", self.sequences, self.length);
            return fault("sequences, length", found, "fewer than 2^64 tokens");
        }
        let (rate, least) = (self.learning_rate, self.min_learning_rate);
        let below_one = "at least 0, below 1";
        let finite = 0.0..f32::INFINITY;
        let numbers = [
            ("learning_rate", rate, rate > 0.0 && rate.is_finite(), "a finite number above 0"),
            ("min_learning_rate", least, (0.0..=rate).contains(&least), &format!("from 0 to {table}.learning_rate")),
            ("weight_decay", self.weight_decay, finite.contains(&self.weight_decay), "a finite number from 0"),
            ("beta1", self.beta1, (0.0..1.0).contains(&self.beta1), below_one),
            ("beta2", self.beta2, (0.0..1.0).contains(&self.beta2), below_one),
            ("max_grad_norm", self.max_grad_norm, self.max_grad_norm > 0.0, "above 0"),
        ];
        for (key, found, fits, expected) in numbers {
            if !fits {
                return fault(key, found.to_string(), expected);
            }
        }
        if let Some(share) = self.wide_layers.filter(|share| !(0.0..=1.0).contains(share)) {
            return fault("wide_layers", share.to_string(), "from 0 to 1");
        }
        if self.checkpoint_every == 0 {
            return fault("checkpoint_every", "0".into(), "at least 1");
        }
        Ok(())
    }

    /// `table` is the one of the recipe that these were read from.
    pub fn options(&self, table: &'static str) -> Options {
        Options {
            table,
            steps: self.steps,
            sequences: self.sequences,
            length: self.length,
            micro_batches: self.micro_batches,
            schedule: Schedule {
                peak: self.learning_rate,
                floor: self.min_learning_rate,
                warmup: self.warmup_steps,
                steps: self.steps,
            },
            max_norm: self.max_grad_norm,
            optimizer: AdamWOptions {
                beta1: self.beta1,
                beta2: self.beta2,
                eps: 1e-8,
                weight_decay: self.weight_decay,
            },
            seed: self.seed,
            checkpoint_every: self.checkpoint_every,
            precision: self.precision,
            wide_layers: self.wide_layers,
        }
    }

    /// Bytes that training `parameters` of them needs at the least: weights, gradients and two moments in f32, a batch's
    /// tokens and targets, and the hidden states of `width` between `layers` layers for one micro-batch. `None` where they
    /// pass 64 bits.
    pub fn least_memory(&self, parameters: u64, width: usize, layers: usize) -> Option<u64> {
        let tokens = self.sequences.checked_mul(self.length)? as u64;
        let row = (width as u64).checked_mul(layers as u64)?.checked_mul(4)?;
        let hidden = (tokens / self.micro_batches.max(1) as u64).checked_mul(row)?;
        parameters.checked_mul(16)?.checked_add(hidden)?.checked_add(tokens.checked_mul(8)?)
    }
}
