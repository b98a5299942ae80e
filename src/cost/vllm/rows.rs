//! The memory model as rows of a cost table, so that a search reads it as it reads measured rows.

use std::collections::BTreeSet;

use super::cache::PagedCaches;
use super::weights::Weights;
use super::workspace::{MambaBuffers, MoeBuffers, prefill_bytes, sampler_bytes};
use crate::Result;
use crate::cost::configurations::{Configurations, LayerConfigurations};
use crate::cost::contract::{Contract, Vllm};
use crate::cost::model::MIB;
use crate::cost::resource::{CountTerm, LayerTerm, Resource};
use crate::cost::table::{Cost, Key, MODEL, Measure, REST, Table, part_name};
use crate::model::Config;
use crate::model::config::{Layer, LayerKind, TensorSpec};
use crate::supernet::SearchSpace;

/// Bytes of every (d, layer configuration) of a space: weights, caches, workspace, and ε where the contract tells it, else 0.
///
/// Caches are paged by groups of layers, which is no sum over layers: a row has what a layer uses itself, a Mamba layer its
/// pages and an attention layer its tokens. [`paged_caches`] has the whole.
pub fn memory_rows(space: &SearchSpace, contract: &Contract) -> Result<Table> {
    let vllm = contract.vllm()?;
    let configurations = Configurations::new(space)?;
    let sizes: BTreeSet<usize> = configurations.hidden_sizes.iter().copied().collect();
    let rows =
        Rows { space, contract, vllm, parent: PagedCaches::of(&space.parent, &contract.precision, &contract.workload) };
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
    /// The parent's, for the bytes of a token.
    parent: PagedCaches,
}

impl Rows<'_> {
    fn rest(&self, table: &mut Table, d: usize) {
        let tensors = self.tensors(d, None);
        let sequences = self.vllm.max_num_seqs.unwrap_or(self.contract.workload.batch);
        let sampler = sampler_bytes(self.space.parent.vocab_size, sequences, &self.contract.precision);
        self.put(table, d, REST, [self.weights(&tensors), 0, sampler]);
    }

    fn layer(&self, table: &mut Table, d: usize, layer: &Layer) {
        let (precision, workload) = (&self.contract.precision, &self.contract.workload);
        let tokens = workload.prefill_chunk;
        let c = &self.parent;
        let caches = match layer {
            Layer::Mamba(_) => c.sequences * self.page(layer),
            Layer::Attention(_) => c.sequences * workload.capacity() as u64 * c.token_bytes,
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

/// The caches of every architecture: of each context, by the number of Mamba layers that are kept.
///
/// `own`: a resource of the space's layers, whose gates and contexts the result has. Layers that may be removed are equal
/// within a context; of a parent whose Mamba layers differ, the largest stands for all.
pub fn paged_caches(
    own: &Resource,
    space: &SearchSpace,
    contract: &Contract,
    configurations: &Configurations,
) -> Resource {
    let contexts = 0..own.constant.len();
    let is_removable = |layer: &&LayerConfigurations| {
        let mut options = layer.options.iter().flatten();
        options.clone().any(Option::is_none) && options.any(|option| matches!(option, Some(Layer::Mamba(_))))
    };
    let removable: Vec<&LayerConfigurations> = configurations.layers.iter().filter(is_removable).collect();
    let kept = |layer: &&LayerConfigurations| LayerTerm {
        gates: layer.gates.clone(),
        values: (layer.options.iter())
            .map(|options| options.iter().map(|option| f64::from(u8::from(option.is_some()))).collect())
            .collect(),
    };
    let bytes = |context: usize| -> Vec<f64> {
        let first = |layer: &LayerConfigurations| layer.options[context].iter().flatten().next().copied();
        let fixed: Vec<Layer> =
            configurations.layers.iter().filter(|layer| !is_removable(layer)).filter_map(first).collect();
        let mut others: Vec<Layer> = removable.iter().filter_map(|layer| first(layer)).collect();
        let heads = |layer: &Layer| match layer {
            Layer::Mamba(m) => m.heads * m.head_dim * m.state,
            _ => 0,
        };
        others.sort_by_key(|layer| std::cmp::Reverse(heads(layer)));
        let of = |kept: usize| {
            let layers = fixed.iter().chain(&others[..kept]).copied().collect();
            let config = Config { layers, ..space.parent.clone() };
            PagedCaches::of(&config, &contract.precision, &contract.workload).total_bytes as f64
        };
        (0..=others.len()).map(of).collect()
    };
    let values: Vec<Vec<f64>> = contexts.map(bytes).collect();
    let none = |term: &LayerTerm| LayerTerm {
        gates: term.gates.clone(),
        values: term.values.iter().map(|values| vec![0.0; values.len()]).collect(),
    };
    let layers = own.layers.iter().map(none).collect();
    if removable.is_empty() {
        return Resource { constant: values.iter().map(|of| of[0]).collect(), layers, ..own.clone() };
    }
    let counted = CountTerm { kept: removable.iter().map(kept).collect(), values };
    Resource { constant: vec![0.0; own.constant.len()], layers, counted: Some(counted), ..own.clone() }
}

fn put(table: &mut Table, measure: Measure, hidden_size: usize, part: &str, bytes: f64) {
    let key = Key { measure, context: 0, hidden_size, part: part.into() };
    table.rows.insert(key, Cost { median: bytes, iqr: 0.0, repeats: 1 });
}
