//! The memory model as rows of a cost table, so that a search reads it as it reads measured rows.

use std::collections::BTreeSet;

use super::cache::PagedCaches;
use super::weights::Weights;
use super::workspace::{MambaBuffers, MoeBuffers, prefill_bytes, sampler_bytes};
use crate::Result;
use crate::cost::configurations::Configurations;
use crate::cost::contract::{Contract, Vllm};
use crate::cost::model::MIB;
use crate::cost::table::{Cost, Key, MODEL, Measure, REST, Table, part_name};
use crate::model::Config;
use crate::model::config::{Layer, LayerKind, TensorSpec};
use crate::supernet::{Axis, SearchSpace};

/// Bytes of every (d, layer configuration) of a space: weights, caches, workspace, and ε where the contract tells it, else 0.
///
/// Caches are paged by groups of layers, which is no sum over layers. The rows are the least sum that is never below: each
/// layer's own pages, a page more for an attention layer's last block, and the pages that fill up a group.
pub fn memory_rows(space: &SearchSpace, contract: &Contract) -> Result<Table> {
    let vllm = contract.vllm()?;
    let configurations = Configurations::new(space)?;
    let sizes: BTreeSet<usize> = configurations.hidden_sizes.iter().copied().collect();
    let rows = Rows {
        space,
        contract,
        vllm,
        largest: PagedCaches::of(&space.parent, &contract.precision, &contract.workload),
    };
    let mut table = Table::default();
    for d in sizes {
        rows.rest(&mut table, d);
        for (context, _) in configurations.hidden_sizes.iter().enumerate().filter(|(_, of)| **of == d) {
            for layer in configurations.layers.iter().flat_map(|layer| layer.options[context].iter().flatten()) {
                rows.layer(&mut table, d, layer);
            }
        }
    }
    let reserve = vllm.reserve_mib.unwrap_or(0.0) * MIB;
    put(&mut table, Measure::Reserve, 0, MODEL, reserve);
    Ok(table)
}

struct Rows<'s> {
    space: &'s SearchSpace,
    contract: &'s Contract,
    vllm: &'s Vllm,
    /// The parent's: no page of the space is larger.
    largest: PagedCaches,
}

impl Rows<'_> {
    fn rest(&self, table: &mut Table, d: usize) {
        let tensors = self.tensors(d, None);
        let c = &self.largest;
        let removable = self.space.gates.iter().any(|gate| gate.axis == Axis::KeepMamba);
        let fill = if removable { c.group_layers.saturating_sub(1) } else { c.padded_layers };
        let sequences = self.vllm.max_num_seqs.unwrap_or(self.contract.workload.batch);
        let sampler = sampler_bytes(self.space.parent.vocab_size, sequences, &self.contract.precision);
        self.put(table, d, REST, [self.weights(&tensors), c.sequences * fill as u64 * c.page_bytes, sampler]);
    }

    fn layer(&self, table: &mut Table, d: usize, layer: &Layer) {
        let (precision, workload) = (&self.contract.precision, &self.contract.workload);
        let tokens = workload.prefill_chunk;
        let c = &self.largest;
        let caches = match layer {
            Layer::Mamba(_) => c.sequences * self.page(layer),
            Layer::Attention(_) => c.sequences * (workload.capacity() as u64 * c.token_bytes + c.page_bytes),
            Layer::Moe(_) | Layer::Mlp(_) => 0,
        };
        let workspace = match layer {
            Layer::Moe(m) => MoeBuffers::of(m, d, tokens, precision, self.vllm.moe_backend).total_bytes(),
            Layer::Mamba(m) => MambaBuffers::of(m, d, tokens, precision).total_bytes(),
            Layer::Attention(a) => prefill_bytes(a, tokens, precision),
            Layer::Mlp(m) => (tokens * m.intermediate) as u64 * precision.activations.bytes() as u64,
        };
        self.put(table, d, &part_name(layer), [self.weights(&self.tensors(d, Some(layer))), caches, workspace]);
    }

    /// The page of a Mamba layer beside the parent's attention.
    fn page(&self, layer: &Layer) -> u64 {
        let attention = self.space.parent.layers.iter().find(|l| l.kind() == LayerKind::Attention);
        let layers = attention.into_iter().chain([layer]).copied().collect();
        let config = Config { layers, ..self.space.parent.clone() };
        PagedCaches::of(&config, &self.contract.precision, &self.contract.workload).page_bytes
    }

    /// The tensors of one layer, or of all that is no layer.
    fn tensors(&self, d: usize, layer: Option<&Layer>) -> Vec<TensorSpec> {
        let layers: Vec<Layer> = layer.into_iter().copied().collect();
        let config = Config { hidden_size: d, layers, mtp: None, ..self.space.parent.clone() };
        let of_layer = |spec: &TensorSpec| spec.name.starts_with("backbone.layers.") == layer.is_some();
        config.tensors().into_iter().filter(of_layer).collect()
    }

    fn weights(&self, tensors: &[TensorSpec]) -> u64 {
        Weights::of_tensors(tensors, &self.contract.precision, self.vllm.moe_backend).total_bytes
    }

    fn put(&self, table: &mut Table, d: usize, part: &str, [weights, caches, workspace]: [u64; 3]) {
        put(table, Measure::Weights, d, part, weights as f64);
        put(table, Measure::Cache, d, part, caches as f64);
        put(table, Measure::PrefillWorkspace, d, part, workspace as f64);
        put(table, Measure::DecodeWorkspace, d, part, 0.0);
    }
}

fn put(table: &mut Table, measure: Measure, hidden_size: usize, part: &str, bytes: f64) {
    let key = Key { measure, context: 0, hidden_size, part: part.into() };
    table.rows.insert(key, Cost { median: bytes, iqr: 0.0, repeats: 1 });
}
