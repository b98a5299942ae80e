//! What a model takes of a GPU's memory under vLLM, from its configuration alone.
//!
//! M̂ = W + C + P + R + ε (docs/method.md, "Cost model"): weights as the kernels hold them, paged caches, prefill's workspace
//! of attention, buffers sized by the widest layer of a kind, and what is left, which only a measurement tells.

mod cache;
mod rows;
mod weights;
mod workspace;

pub use cache::PagedCaches;
pub use rows::{memory_rows, paged_caches};
pub use weights::{ComponentWeights, Weights, component};
pub use workspace::{MambaBuffers, MoeBuffers, Workspace};

use serde::Serialize;

use super::contract::Contract;
use super::model::MIB;
use crate::Result;
use crate::model::Config;
use crate::model::config::Layer;

/// Every term of a model's memory, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// W.
    pub weights: Weights,
    /// C.
    pub caches: PagedCaches,
    /// P and R.
    pub workspace: Workspace,
    /// ε; `None` where the contract does not tell.
    pub reserve_bytes: Option<u64>,
    /// W + C + P + R, and ε where it is known.
    pub total_bytes: u64,
    pub conventional: Conventional,
}

/// What people estimate: weights, KV cache, states, the activations of a MoE layer; nothing padded, rounded or held twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Conventional {
    pub weights_bytes: u64,
    pub kv_cache_bytes: u64,
    pub state_bytes: u64,
    /// `[prefill_chunk · top_k, F]` of the widest MoE layer.
    pub moe_buffer_bytes: u64,
    pub total_bytes: u64,
}

impl Memory {
    /// # Errors
    /// [`crate::Error::Input`] where the contract is not of vLLM.
    pub fn of(config: &Config, contract: &Contract) -> Result<Memory> {
        let vllm = contract.vllm()?;
        let weights = Weights::of(config, &contract.precision, vllm.moe_backend);
        let caches = PagedCaches::of(config, &contract.precision, &contract.workload);
        let workspace = Workspace::of(config, contract, vllm);
        let reserve_bytes = vllm.reserve_mib.map(|mib| (mib * MIB) as u64);
        let known = weights.total_bytes + caches.total_bytes + workspace.total_bytes();
        Ok(Memory {
            total_bytes: known + reserve_bytes.unwrap_or(0),
            conventional: Conventional::of(config, contract, &weights, &caches),
            weights,
            caches,
            workspace,
            reserve_bytes,
        })
    }

    /// What ε must be for the model to take `measured` bytes.
    pub fn reserve_for(&self, measured: f64) -> f64 {
        measured - (self.total_bytes - self.reserve_bytes.unwrap_or(0)) as f64
    }

    /// By how much the conventional formula is below this model, as a share of it.
    pub fn shortfall(&self) -> f64 {
        1.0 - self.conventional.total_bytes as f64 / self.total_bytes as f64
    }
}

impl Conventional {
    fn of(config: &Config, contract: &Contract, weights: &Weights, caches: &PagedCaches) -> Conventional {
        let w = &contract.workload;
        let tokens = (w.batch * w.capacity()) as u64;
        let kv_cache_bytes = tokens * caches.token_bytes * caches.attention_layers as u64;
        let state_bytes = w.batch as u64 * caches.state_bytes * caches.mamba_layers as u64;
        let rows = w.prefill_chunk as u64;
        let activation = contract.precision.activations.bytes() as u64;
        let of_layer = |layer: &Layer| match layer {
            Layer::Moe(m) => rows * (m.top_k * m.intermediate) as u64 * activation,
            _ => 0,
        };
        let moe_buffer_bytes = config.layers.iter().map(of_layer).max().unwrap_or(0);
        let weights_bytes = weights.total_bytes - weights.padding_bytes;
        let total_bytes = weights_bytes + kv_cache_bytes + state_bytes + moe_buffer_bytes;
        Conventional { weights_bytes, kv_cache_bytes, state_bytes, moe_buffer_bytes, total_bytes }
    }
}
