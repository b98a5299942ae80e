//! P and R: what passes need beside weights and caches.
//!
//! The engine frees a layer's buffers before the next layer begins, so each kind of buffer is as large as the widest layer
//! needs. Buffers of different kinds lie in different blocks of the allocator, which keeps them: they add up. Shapes follow
//! vLLM's modular MoE kernels (two workspaces of `[tokens · top_k, max(F, width)]` and an output), its Mamba-2 mixer (the
//! projection, the convolution, chunk states in f32) and attention that splits keys (partial outputs in f32).

use serde::Serialize;

use crate::cost::contract::{Contract, Format, MoeBackend, Precision, Vllm};
use crate::model::Config;
use crate::model::config::{Attention, Layer, Mamba, Moe};

/// Bytes of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Workspace {
    /// P: queries, keys, values, outputs and partial outputs of one prefill chunk.
    pub prefill_bytes: u64,
    /// R, of the widest MoE layer.
    pub moe: MoeBuffers,
    /// R, of the widest Mamba layer.
    pub mamba: MambaBuffers,
    /// R, of a dense layer: its hidden activations.
    pub mlp_bytes: u64,
    /// R: logits, and what the sampler sorts.
    pub sampler_bytes: u64,
    /// The place among the model's layers of the widest of each kind.
    pub widest_moe_layer: Option<usize>,
    pub widest_mamba_layer: Option<usize>,
}

/// Buffers of a MoE layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MoeBuffers {
    /// Inputs and outputs of the experts' products, by token and expert.
    pub matmul_bytes: u64,
    /// Inputs in the products' format where that is lower.
    pub quantised_bytes: u64,
    /// The layer's output and the shared expert's hidden activations.
    pub dense_bytes: u64,
}

/// Buffers of a Mamba layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MambaBuffers {
    /// in_proj's output and its input in the product's format.
    pub projection_bytes: u64,
    /// The convolution's and the scan's output.
    pub scan_bytes: u64,
    /// States of all chunks, products of B and C within chunks, time steps: f32.
    pub chunk_bytes: u64,
}

impl MoeBuffers {
    pub fn of(m: &Moe, d: usize, tokens: usize, precision: &Precision, backend: MoeBackend) -> MoeBuffers {
        let (tile_f, tile_width) = backend.tiles();
        let width = m.latent.unwrap_or(d).next_multiple_of(tile_width) as u64;
        let f = m.intermediate.next_multiple_of(tile_f) as u64;
        let activation = precision.activations.bytes() as u64;
        let (rows, tokens) = ((tokens * m.top_k) as u64, tokens as u64);
        // TensorRT-LLM's kernel keeps its intermediates to itself, in the products' format.
        let matmul_bytes = if backend == MoeBackend::Trtllm { 0 } else { 2 * rows * f.max(width) * activation };
        let low = !backend.is_weight_only() && precision.experts > Format::Bf16;
        let quantised_bytes =
            if low { (rows as f64 * (f + width) as f64 * precision.experts.bytes()) as u64 } else { 0 };
        let dense_bytes = tokens * (width + m.shared_intermediate as u64) * activation;
        MoeBuffers { matmul_bytes, quantised_bytes, dense_bytes }
    }

    pub fn total_bytes(&self) -> u64 {
        self.matmul_bytes + self.quantised_bytes + self.dense_bytes
    }
}

impl MambaBuffers {
    pub fn of(m: &Mamba, d: usize, tokens: usize, precision: &Precision) -> MambaBuffers {
        let activation = precision.activations.bytes();
        let low = if precision.mamba > Format::Bf16 { precision.mamba.bytes() } else { 0.0 };
        let chunks = tokens.div_ceil(m.chunk_size.max(1));
        let rows = tokens as f64;
        let states = chunks * m.inner() * m.state;
        let products = chunks * m.groups * m.chunk_size * m.chunk_size;
        let steps = 2 * tokens * m.heads;
        MambaBuffers {
            projection_bytes: (rows * (m.in_proj_rows() as f64 * activation + d as f64 * low)) as u64,
            scan_bytes: (rows * (m.conv_channels() + m.inner()) as f64 * activation) as u64,
            chunk_bytes: 4 * (states + products + steps) as u64,
        }
    }

    pub fn total_bytes(&self) -> u64 {
        self.projection_bytes + self.scan_bytes + self.chunk_bytes
    }
}

/// P of an attention layer.
pub fn prefill_bytes(a: &Attention, tokens: usize, precision: &Precision) -> u64 {
    let (queries, keys) = ((a.heads * a.head_dim) as f64, (2 * a.kv_heads * a.head_dim) as f64);
    let activation = precision.activations.bytes();
    // Partial outputs and their log-sums in f32.
    let partial = 4.0 * (queries + a.heads as f64);
    (tokens as f64 * ((2.0 * queries + keys) * activation + partial)) as u64
}

/// Logits in the activations' format and in f32, and the sampler's sorted values, indices, probabilities and sums.
pub fn sampler_bytes(vocab: usize, sequences: usize, precision: &Precision) -> u64 {
    let each = precision.activations.bytes() as u64 + 4 + 4 + 8 + 4 + 4;
    (sequences * vocab) as u64 * each
}

impl Workspace {
    pub fn of(config: &Config, contract: &Contract, vllm: &Vllm) -> Workspace {
        let (precision, d) = (&contract.precision, config.hidden_size);
        let tokens = contract.workload.prefill_chunk;
        let sequences = vllm.max_num_seqs.unwrap_or(contract.workload.batch);
        let mut workspace = Workspace {
            prefill_bytes: 0,
            moe: MoeBuffers::default(),
            mamba: MambaBuffers::default(),
            mlp_bytes: 0,
            sampler_bytes: sampler_bytes(config.vocab_size, sequences, precision),
            widest_moe_layer: None,
            widest_mamba_layer: None,
        };
        for (i, layer) in config.layers.iter().enumerate() {
            match layer {
                Layer::Moe(m) => {
                    let buffers = MoeBuffers::of(m, d, tokens, precision, vllm.moe_backend);
                    if buffers.total_bytes() > workspace.moe.total_bytes() {
                        (workspace.moe, workspace.widest_moe_layer) = (buffers, Some(i));
                    }
                }
                Layer::Mamba(m) => {
                    let buffers = MambaBuffers::of(m, d, tokens, precision);
                    if buffers.total_bytes() > workspace.mamba.total_bytes() {
                        (workspace.mamba, workspace.widest_mamba_layer) = (buffers, Some(i));
                    }
                }
                Layer::Attention(a) => {
                    workspace.prefill_bytes = workspace.prefill_bytes.max(prefill_bytes(a, tokens, precision));
                }
                Layer::Mlp(m) => {
                    let bytes = (tokens * m.intermediate) as u64 * precision.activations.bytes() as u64;
                    workspace.mlp_bytes = workspace.mlp_bytes.max(bytes);
                }
            }
        }
        workspace
    }

    /// R.
    pub fn runtime_bytes(&self) -> u64 {
        self.moe.total_bytes() + self.mamba.total_bytes() + self.mlp_bytes + self.sampler_bytes
    }

    /// P + R.
    pub fn total_bytes(&self) -> u64 {
        self.prefill_bytes + self.runtime_bytes()
    }
}
