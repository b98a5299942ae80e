//! What a search or a recovery takes of many GPUs, from configurations alone.
//!
//! The layout that is priced: sequences are split over the GPUs; weights, masters, moments and gradients of both models are
//! sharded over all of them, and each layer's weights are gathered while it computes. Costs of communication are not known
//! here: they are part of the utilisation that is stated.

use serde::Serialize;

use crate::model::Config;
use crate::model::config::{Layer, Mamba, TensorSpec};

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainedPart {
    /// The weights of the second model: a joint search, or a recovery.
    Weights,
    /// A router alone: the second model is the parent's weights, masked.
    Router,
}

/// A training job beside a frozen parent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Job {
    pub trained: TrainedPart,
    pub steps: u64,
    /// Sequences of a step, over all GPUs.
    pub sequences: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Recompute each block in backward instead of keeping its activations.
    pub recompute: bool,
    /// Tokens whose logits exist at a time; `None`: a sequence's.
    pub logit_chunk: Option<usize>,
}

/// Bytes of one GPU. The micro-batch is one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrainingBytes {
    /// BF16, sharded.
    pub parent: u64,
    /// The supernet's or the student's, BF16, sharded; 0 where it is the parent's.
    pub weights: u64,
    /// F32, sharded.
    pub masters: u64,
    /// Both of AdamW's, F32, sharded.
    pub moments: u64,
    /// BF16, sharded.
    pub gradients: u64,
    /// The widest layer of each model and its gradient, whole, and the next one on its way.
    pub gathered: u64,
    pub activations: u64,
    /// Both models' logits and the gradient, BF16.
    pub logits: u64,
    pub total: u64,
}

/// What a job takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrainingCost {
    pub bytes: TrainingBytes,
    /// Sequences that each GPU computes one after another in a step.
    pub micro_batches: usize,
    pub tokens_per_step: u64,
    pub tokens: u64,
    /// Of all GPUs.
    pub flops_per_step: f64,
    pub hours: f64,
}

impl Job {
    /// The cost on `gpus` GPUs of `rate` operations per second, of which `utilisation` is reached.
    pub fn cost(&self, parent: &Config, model: &Config, gpus: usize, rate: f64, utilisation: f64) -> TrainingCost {
        let tokens_per_step = (self.sequences * self.length) as u64;
        let flops_per_step = tokens_per_step as f64 * self.flops_per_token(parent, model);
        TrainingCost {
            bytes: self.bytes(parent, model, gpus),
            micro_batches: self.sequences.div_ceil(gpus),
            tokens_per_step,
            tokens: self.steps * tokens_per_step,
            flops_per_step,
            hours: flops_per_step * self.steps as f64 / (gpus as f64 * rate * utilisation) / 3600.0,
        }
    }

    /// The parent's forward; the model's forward, its backward to activations and, where weights are trained, to them; and
    /// where blocks are recomputed another forward. The head is computed for every token.
    pub fn flops_per_token(&self, parent: &Config, model: &Config) -> f64 {
        let passes =
            2.0 + f64::from(u8::from(self.trained == TrainedPart::Weights)) + f64::from(u8::from(self.recompute));
        forward_flops(parent, self.length) + passes * forward_flops(model, self.length)
    }

    fn bytes(&self, parent: &Config, model: &Config, gpus: usize) -> TrainingBytes {
        let (of_parent, of_model) = (parent.parameters().total, model.parameters().total);
        let trained = if self.trained == TrainedPart::Weights { of_model } else { 0 };
        let shard = |bytes: u64| bytes.div_ceil(gpus as u64);
        let (widest, other) = (widest_layer(parent), widest_layer(model));
        let gathered = match self.trained {
            TrainedPart::Weights => 2 * 2 * widest + 2 * 2 * other + 2 * other,
            // Each layer is gathered once for both.
            TrainedPart::Router => 2 * 2 * widest,
        };
        let each: Vec<u64> = model.layers.iter().map(|layer| kept_values(layer, model.hidden_size)).collect();
        let d = model.hidden_size as u64;
        let values = match self.recompute {
            true => (each.len() as u64 + 1) * d + each.iter().copied().max().unwrap_or(0),
            false => d + each.iter().sum::<u64>(),
        };
        let rows = self.logit_chunk.unwrap_or(self.length).min(self.length) as u64;
        let mut bytes = TrainingBytes {
            parent: shard(2 * of_parent),
            weights: shard(2 * trained),
            masters: shard(4 * trained),
            moments: shard(8 * trained),
            gradients: shard(2 * trained),
            gathered,
            activations: 2 * self.length as u64 * values,
            logits: 3 * 2 * rows * model.vocab_size as u64,
            total: 0,
        };
        bytes.total = bytes.parent
            + bytes.weights
            + bytes.masters
            + bytes.moments
            + bytes.gradients
            + bytes.gathered
            + bytes.activations
            + bytes.logits;
        bytes
    }
}

/// Floating-point operations of a forward pass per token of a sequence of `length`: two for each weight of a product that the
/// token uses (not the embedding's), attention over half of the sequence, and the scan.
pub fn forward_flops(config: &Config, length: usize) -> f64 {
    let used = |spec: &TensorSpec| match spec.shape.len() {
        0 | 1 => 0.0,
        _ if spec.name == "backbone.embeddings.weight" => 0.0,
        _ => spec.elements() as f64,
    };
    let products: f64 = config.tensors().iter().map(used).sum();
    let tied = if config.tie_word_embeddings { (config.vocab_size * config.hidden_size) as f64 } else { 0.0 };
    let idle_and_mixing = |layer: &Layer| match layer {
        Layer::Moe(m) => {
            let width = m.latent.unwrap_or(config.hidden_size);
            -2.0 * (2 * (m.experts - m.top_k) * m.intermediate * width) as f64
        }
        Layer::Attention(a) => 4.0 * (a.heads * a.head_dim) as f64 * (length + 1) as f64 / 2.0,
        Layer::Mamba(m) => scan_flops(m),
        Layer::Mlp(_) => 0.0,
    };
    2.0 * (products + tied) + config.layers.iter().map(idle_and_mixing).sum::<f64>()
}

/// Per token: update and output of the states, and the products within a chunk.
fn scan_flops(m: &Mamba) -> f64 {
    let (inner, chunk) = (m.inner() as f64, m.chunk_size as f64);
    6.0 * inner * m.state as f64 + chunk * ((m.groups * m.state) as f64 + inner)
}

/// Values per token that a layer keeps for its backward: inputs of norms and products, and what gates multiply.
fn kept_values(layer: &Layer, d: usize) -> u64 {
    let values = match layer {
        Layer::Mamba(m) => 2 * d + m.in_proj_rows() + m.conv_channels() + 2 * m.inner(),
        Layer::Moe(m) => {
            let width = m.latent.unwrap_or(d);
            let latent = if m.latent.is_some() { 2 * width } else { 0 };
            2 * d + 2 * m.experts + m.top_k * (2 * width + 2 * m.intermediate) + 2 * m.shared_intermediate + latent
        }
        Layer::Attention(a) => 2 * d + 2 * a.heads * a.head_dim + 2 * a.kv_heads * a.head_dim,
        Layer::Mlp(m) => 2 * d + 2 * m.intermediate,
    };
    values as u64
}

/// Parameters of the largest layer, embedding or head.
fn widest_layer(config: &Config) -> u64 {
    let of_layer = |layer: &Layer| {
        let alone = Config { layers: vec![*layer], mtp: None, ..config.clone() };
        let within = |spec: &&TensorSpec| spec.name.starts_with("backbone.layers.");
        alone.tensors().iter().filter(within).map(|spec| spec.elements() as u64).sum::<u64>()
    };
    let head = (config.vocab_size * config.hidden_size) as u64;
    config.layers.iter().map(of_layer).max().unwrap_or(0).max(head)
}
