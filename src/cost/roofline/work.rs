//! What a layer computes and moves.

use crate::cost::contract::{Contract, Engine, Format, MoeBackend, Precision};
use crate::cost::device_spec::DeviceSpec;
use crate::cost::vllm::Weights;
use crate::engine::profile::Workload;
use crate::model::Config;
use crate::model::config::{Attention, Layer, Mamba, Moe, TensorSpec};

/// A pass over a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The whole input of the batch, chunk by chunk.
    Prefill,
    /// One token of every sequence, each with `context` tokens before it.
    Decode { context: usize },
}

/// Terms of [`Work::features`].
pub const FEATURES: usize = 5;

/// The work of a layer in a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Seconds of matrix products with weights, at the device's rate for their format.
    pub products: f64,
    /// Seconds of scans and attention, at the rate for activations.
    pub mixing: f64,
    /// Seconds of reading weights, caches and states.
    pub reading: f64,
    /// Seconds of reading and writing activations.
    pub activations: f64,
    /// Seconds of launches.
    pub launches: f64,
    /// Floating-point operations of all products.
    pub flops: f64,
    /// Bytes of all that is moved.
    pub bytes: f64,
}

impl Work {
    /// The terms that a calibration weighs.
    pub fn features(&self) -> [f64; FEATURES] {
        [self.products, self.mixing, self.reading, self.activations, self.launches]
    }

    /// Of a layer (`None`: of embedding, head and sampling) in a model like `parent` of hidden size `d`.
    pub fn of(
        layer: Option<&Layer>,
        d: usize,
        phase: Phase,
        parent: &Config,
        contract: &Contract,
        device: &DeviceSpec,
    ) -> Work {
        let backend = match &contract.engine {
            Engine::Vllm(vllm) => vllm.moe_backend,
            Engine::Builtin => MoeBackend::Triton,
        };
        let pass = Pass::new(phase, &contract.workload);
        let mut count =
            Count { d: d as f64, pass, precision: &contract.precision, backend, device, work: Work::default() };
        count.weights(layer, d, parent);
        match layer {
            Some(Layer::Mamba(m)) => count.mamba(m),
            Some(Layer::Moe(m)) => count.moe(m),
            Some(Layer::Attention(a)) => count.attention(a, phase, &contract.workload),
            Some(Layer::Mlp(m)) => count.dense(m.intermediate),
            None => count.rest(parent.vocab_size, contract.workload.batch),
        }
        count.work
    }
}

/// Rows and passes of a phase.
#[derive(Clone, Copy)]
struct Pass {
    /// Tokens of all passes.
    rows: f64,
    passes: f64,
    decode: bool,
    batch: f64,
}

impl Pass {
    fn new(phase: Phase, workload: &Workload) -> Pass {
        let batch = workload.batch as f64;
        match phase {
            Phase::Prefill => {
                let rows = workload.batch * workload.input_tokens;
                let passes = rows.div_ceil(workload.prefill_chunk.max(1));
                Pass { rows: rows as f64, passes: passes as f64, decode: false, batch }
            }
            Phase::Decode { .. } => Pass { rows: batch, passes: 1.0, decode: true, batch },
        }
    }
}

struct Count<'c> {
    d: f64,
    pass: Pass,
    precision: &'c Precision,
    backend: MoeBackend,
    device: &'c DeviceSpec,
    work: Work,
}

impl Count<'_> {
    fn product(&mut self, rows: f64, inputs: f64, outputs: f64, format: Format) {
        let flops = 2.0 * rows * inputs * outputs;
        self.work.flops += flops;
        self.work.products += flops / self.device.rate_or_higher(format);
    }

    fn mix(&mut self, flops: f64) {
        self.work.flops += flops;
        self.work.mixing += flops / self.device.rate_or_higher(self.precision.activations);
    }

    fn read(&mut self, bytes: f64) {
        self.work.bytes += bytes;
        self.work.reading += bytes / self.device.bandwidth;
    }

    /// Values per row that are written and read again.
    fn activate(&mut self, values: f64) {
        let bytes = 2.0 * self.pass.rows * values * self.precision.activations.bytes();
        self.work.bytes += bytes;
        self.work.activations += bytes / self.device.bandwidth;
    }

    fn launch(&mut self, kernels: f64) {
        self.work.launches += self.pass.passes * kernels * self.device.launch_us * 1e-6;
    }

    /// Weights are read in every pass: of a MoE layer, those of the experts that a token chose, on average.
    fn weights(&mut self, layer: Option<&Layer>, d: usize, parent: &Config) {
        let layers: Vec<Layer> = layer.into_iter().copied().collect();
        let config = Config { hidden_size: d, layers, mtp: None, ..parent.clone() };
        let of_layer = |spec: &TensorSpec| match layer {
            Some(_) => spec.name.starts_with("backbone.layers."),
            // Of the embedding only the tokens' rows are read.
            None => spec.name == "lm_head.weight" || spec.name == "backbone.norm_f.weight",
        };
        let tensors: Vec<TensorSpec> = config.tensors().into_iter().filter(of_layer).collect();
        let weights = Weights::of_tensors(&tensors, self.precision, self.backend);
        let touched = match layer {
            Some(Layer::Moe(m)) => self.touched(m) / m.experts as f64,
            _ => 1.0,
        };
        for c in &weights.components {
            let share = if c.component == "experts" { touched } else { 1.0 };
            self.read(self.pass.passes * share * (c.bytes + c.padding_bytes) as f64);
        }
    }

    /// Experts that at least one of a pass's tokens chose, where each token's choice is even: E·(1 − ((E − K)/E)^rows).
    fn touched(&self, m: &Moe) -> f64 {
        let (experts, top_k) = (m.experts as f64, m.top_k as f64);
        experts * (1.0 - ((experts - top_k) / experts).powf(self.pass.rows / self.pass.passes))
    }

    fn mamba(&mut self, m: &Mamba) {
        let (rows, inner, channels) = (self.pass.rows, m.inner() as f64, m.conv_channels() as f64);
        let format = self.precision.mamba;
        self.product(rows, self.d, m.in_proj_rows() as f64, format);
        self.product(rows, inner, self.d, format);
        let state = inner * m.state as f64;
        // Per token: the state's update and output; in prefill also the products within a chunk.
        let chunk = if self.pass.decode { 0.0 } else { m.chunk_size as f64 };
        let within = chunk * (m.groups * m.state) as f64 + chunk * inner;
        self.mix(rows * (6.0 * state + within + 2.0 * channels * m.conv_kernel as f64));
        let conv = channels * m.conv_kernel.saturating_sub(1) as f64 * self.precision.conv_state.bytes();
        let states = self.pass.batch * (state * self.precision.ssm_state.bytes() + conv);
        // Read and written once by every sequence; in prefill, by each of its passes.
        let times = if self.pass.decode { 1.0 } else { (self.pass.passes / self.pass.batch).max(1.0) };
        self.read(2.0 * times * states);
        self.activate(2.0 * self.d + m.in_proj_rows() as f64 + channels + 2.0 * inner);
        self.launch(if self.pass.decode { 6.0 } else { 12.0 });
    }

    fn moe(&mut self, m: &Moe) {
        let rows = self.pass.rows;
        let (f, k) = (m.intermediate as f64, m.top_k as f64);
        let width = m.latent.map_or(self.d, |latent| latent as f64);
        let experts = if self.backend.is_weight_only() { self.precision.activations } else { self.precision.experts };
        self.product(rows * k, width, 2.0 * f, experts);
        self.product(rows, self.d, m.experts as f64, self.precision.gate);
        if m.shared_intermediate > 0 {
            self.product(rows, self.d, 2.0 * m.shared_intermediate as f64, self.precision.shared_experts);
        }
        if m.latent.is_some() {
            self.product(rows, self.d, 2.0 * width, self.precision.latent);
        }
        self.activate(2.0 * self.d + k * (2.0 * width + f) + m.shared_intermediate as f64 + m.experts as f64);
        // This crate's own engine computes expert by expert.
        let launches = if self.device.flops.bf16.is_some() { 10.0 } else { 4.0 + 2.0 * self.touched(m) };
        self.launch(launches);
    }

    fn attention(&mut self, a: &Attention, phase: Phase, workload: &Workload) {
        let rows = self.pass.rows;
        let (queries, keys) = ((a.heads * a.head_dim) as f64, (2 * a.kv_heads * a.head_dim) as f64);
        self.product(rows, self.d, 2.0 * queries + keys, self.precision.attention);
        let (cached, input) = (workload.cached_tokens as f64, workload.input_tokens as f64);
        // Pairs of a query and a key, of the batch; and keys that are read.
        let (pairs, read) = match phase {
            Phase::Prefill => {
                let pairs = self.pass.batch * input * (cached + (input + 1.0) / 2.0);
                (pairs, pairs / (workload.prefill_chunk.min(workload.input_tokens).max(1)) as f64)
            }
            Phase::Decode { context } => {
                let pairs = self.pass.batch * (context + 1) as f64;
                (pairs, pairs)
            }
        };
        self.mix(4.0 * queries * pairs);
        self.read(read * keys * self.precision.kv_cache.bytes());
        self.activate(2.0 * self.d + 3.0 * queries + keys);
        self.launch(if self.pass.decode { 6.0 } else { 7.0 });
    }

    fn dense(&mut self, width: usize) {
        self.product(self.pass.rows, self.d, 2.0 * width as f64, self.precision.shared_experts);
        self.activate(2.0 * self.d + width as f64);
        self.launch(4.0);
    }

    /// Embedding of all rows; head and sampling of one row a sequence.
    fn rest(&mut self, vocab: usize, batch: usize) {
        self.product(batch as f64, self.d, vocab as f64, self.precision.lm_head);
        self.activate(2.0 * self.d);
        self.read((batch * vocab) as f64 * 3.0 * 4.0);
        self.launch(12.0);
    }
}
