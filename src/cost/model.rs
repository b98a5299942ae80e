//! The cost model: resources of a search space under a contract, from measured rows.

use super::configurations::{Configurations, LayerConfigurations};
use super::contract::{Contract, Engine};
use super::resource::{LayerTerm, Resource};
use super::table::{MODEL, Measure, REST, Table, part_name};
use super::vllm::paged_caches;
use crate::Result;
use crate::engine::profile::Workload;
use crate::model::config::{Layer, LayerKind};
use crate::supernet::{Choice, SearchSpace};

/// Bytes.
pub const MIB: f64 = (1 << 20) as f64;

/// What every architecture of a space costs under a contract.
///
/// Latency is additive: T̂ = T₀(d) + Σ_ℓ t_ℓ(a_ℓ; d), prefill and decode apart (docs/method.md, "Cost model"). Memory is W + C +
/// the widest part's workspace + ε: the engine frees a part's workspace before the next begins, so prefill's and decode's share
/// it. C is the sum of the layers' caches in the built-in engine; vLLM pages them by groups of layers, so that it depends on
/// how many layers are kept.
#[derive(Clone, Debug)]
pub struct CostModel {
    /// One for each limit of the contract: "latency" (seconds of a request), "memory" (bytes), "throughput" (seconds of a
    /// request, at most what the limit allows).
    pub resources: Vec<Resource>,
    space: SearchSpace,
    workload: Workload,
    prefill: Resource,
    decode: Resource,
    weights: Resource,
    caches: Resource,
    /// What of the caches is a layer's own.
    own_caches: Resource,
    workspace: Resource,
    /// Bytes.
    reserve: f64,
}

/// The predicted cost of an architecture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    pub prefill_seconds: f64,
    /// The mean over the workload's steps.
    pub decode_step_seconds: f64,
    /// Prefill and all decode steps.
    pub request_seconds: f64,
    /// Weights + caches + workspace + reserve.
    pub memory_bytes: f64,
    /// W.
    pub weights_bytes: f64,
    /// C.
    pub cache_bytes: f64,
    /// P and R.
    pub workspace_bytes: f64,
    /// ε.
    pub reserve_bytes: f64,
    /// What is no layer. Its `cache_bytes` are what fills up pages and groups of layers.
    pub rest: PartPrediction,
    /// One per layer of the parent; all 0 where it is removed.
    pub layers: Vec<PartPrediction>,
}

/// The share of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartPrediction {
    pub prefill_seconds: f64,
    pub decode_step_seconds: f64,
    pub weights_bytes: f64,
    pub cache_bytes: f64,
    /// Of this layer alone: the model needs the largest, not the sum.
    pub workspace_bytes: f64,
}

impl CostModel {
    /// # Errors
    /// [`crate::Error::Usage`] naming the first row that `table` lacks.
    pub fn new(space: &SearchSpace, contract: &Contract, table: &Table) -> Result<CostModel> {
        CostModel::build(space, contract, table, table.get(Measure::Reserve, 0, 0, MODEL)?)
    }

    /// The model with ε = 0: what ε is measured against.
    pub(super) fn without_reserve(space: &SearchSpace, contract: &Contract, table: &Table) -> Result<CostModel> {
        CostModel::build(space, contract, table, 0.0)
    }

    fn build(space: &SearchSpace, contract: &Contract, table: &Table, reserve: f64) -> Result<CostModel> {
        let configurations = Configurations::new(space)?;
        let tables = Tables { space, configurations: &configurations };
        let workload = contract.workload;
        let contexts = workload.contexts();
        let row = |measure| move |d: usize, part: &str| table.get(measure, 0, d, part);
        let prefill = tables.resource("prefill", "s", &row(Measure::Prefill))?;
        let decode = tables.resource("decode step", "s", &|d, part| {
            let costs = contexts.iter().map(|(at, weight)| Ok(weight * table.get(Measure::Decode, *at, d, part)?));
            // The sum of no floats is −0.
            Ok(0.0 + costs.sum::<Result<f64>>()?)
        })?;
        let weights = tables.resource("weights", "B", &row(Measure::Weights))?;
        let own_caches = tables.resource("caches", "B", &row(Measure::Cache))?;
        let caches = match contract.engine {
            Engine::Builtin => own_caches.clone(),
            Engine::Vllm(_) => paged_caches(&own_caches, space, contract, &configurations),
        };
        let workspace = tables.resource("workspace", "B", &|d, part| {
            let prefill = table.get(Measure::PrefillWorkspace, 0, d, part)?;
            let decode = if contexts.is_empty() { 0.0 } else { table.get(Measure::DecodeWorkspace, 0, d, part)? };
            Ok(prefill.max(decode))
        })?;
        let workspace = match contract.engine {
            Engine::Builtin => widest(workspace),
            Engine::Vllm(_) => widest_of_each_kind(workspace, &configurations),
        };
        let mut model = CostModel {
            resources: Vec::new(),
            space: space.clone(),
            workload,
            prefill,
            decode,
            weights,
            caches,
            own_caches,
            workspace,
            reserve,
        };
        model.resources = model.limited(contract);
        Ok(model)
    }

    fn limited(&self, contract: &Contract) -> Vec<Resource> {
        let steps = self.workload.output_tokens as f64;
        let request = |name: &str, limit| Resource {
            name: name.into(),
            limit,
            ..combine(&self.prefill, &self.decode, |prefill, decode| prefill + steps * decode)
        };
        let memory = |limit| Resource {
            name: "memory".into(),
            limit,
            constant: (self.weights.constant.iter().zip(&self.caches.constant))
                .map(|(w, c)| w + c + self.reserve)
                .collect(),
            widest: self.workspace.widest.clone(),
            counted: self.caches.counted.clone(),
            ..combine(&self.weights, &self.caches, |w, c| w + c)
        };
        let latency = contract.limits.latency_ms.map(|ms| request("latency", ms / 1e3));
        let memory = contract.limits.memory_mib.map(|mib| memory(mib * MIB));
        let throughput = contract.serving_seconds().map(|seconds| request("throughput", seconds));
        [latency, memory, throughput].into_iter().flatten().collect()
    }

    /// The cost of one architecture.
    ///
    /// # Errors
    /// [`crate::Error::Contract`] where the choice is of another space.
    pub fn predict(&self, choice: &Choice) -> Result<Prediction> {
        self.space.check(choice)?;
        let choice = choice.0.as_slice();
        let part = |at: Option<usize>, resource: &Resource, terms: &[LayerTerm]| {
            let context = resource.combination(&resource.global_gates, choice);
            match at {
                Some(layer) => terms[layer].values[context][resource.combination(&terms[layer].gates, choice)],
                None => resource.constant[context],
            }
        };
        // In every group of the widest, the rest comes after the layers; only one group has a part's value.
        let workspace_of = |at: usize| self.workspace.widest.iter().map(|g| part(Some(at), &self.workspace, g)).sum();
        let parts = |at: Option<usize>| PartPrediction {
            prefill_seconds: part(at, &self.prefill, &self.prefill.layers),
            decode_step_seconds: part(at, &self.decode, &self.decode.layers),
            weights_bytes: part(at, &self.weights, &self.weights.layers),
            cache_bytes: part(at, &self.own_caches, &self.own_caches.layers),
            workspace_bytes: workspace_of(at.unwrap_or(self.prefill.layers.len())),
        };
        let (prefill, decode) = (self.prefill.cost(choice), self.decode.cost(choice));
        let (weights, caches) = (self.weights.cost(choice), self.caches.cost(choice));
        let workspace = self.workspace.cost(choice);
        let mut rest = parts(None);
        rest.cache_bytes += caches - self.own_caches.cost(choice);
        Ok(Prediction {
            prefill_seconds: prefill,
            decode_step_seconds: decode,
            request_seconds: prefill + self.workload.output_tokens as f64 * decode,
            memory_bytes: weights + caches + workspace + self.reserve,
            weights_bytes: weights,
            cache_bytes: caches,
            workspace_bytes: workspace,
            reserve_bytes: self.reserve,
            rest,
            layers: (0..self.prefill.layers.len()).map(|layer| parts(Some(layer))).collect(),
        })
    }

    /// The search space it prices.
    pub fn space(&self) -> &SearchSpace {
        &self.space
    }

    pub fn workload(&self) -> &Workload {
        &self.workload
    }
}

/// Makes resources from a value per (d, part).
struct Tables<'t> {
    space: &'t SearchSpace,
    configurations: &'t Configurations,
}

impl Tables<'_> {
    /// A sum over layers without a limit; a removed layer costs 0.
    fn resource(&self, name: &str, unit: &str, value: &dyn Fn(usize, &str) -> Result<f64>) -> Result<Resource> {
        let Configurations { global_gates, hidden_sizes, layers } = self.configurations;
        let term = |layer: &LayerConfigurations| -> Result<LayerTerm> {
            let values = (layer.options.iter().zip(hidden_sizes))
                .map(|(options, d)| {
                    let cost = |option: &Option<_>| option.as_ref().map_or(Ok(0.0), |l| value(*d, &part_name(l)));
                    options.iter().map(cost).collect::<Result<Vec<f64>>>()
                })
                .collect::<Result<_>>()?;
            Ok(LayerTerm { gates: layer.gates.clone(), values })
        };
        Ok(Resource {
            name: name.into(),
            unit: unit.into(),
            limit: f64::INFINITY,
            candidates: self.space.gates.iter().map(|gate| gate.candidates.len()).collect(),
            global_gates: global_gates.clone(),
            constant: hidden_sizes.iter().map(|d| value(*d, REST)).collect::<Result<_>>()?,
            layers: layers.iter().map(term).collect::<Result<_>>()?,
            widest: Vec::new(),
            counted: None,
        })
    }
}

/// The largest part instead of the sum: the layers, then the rest.
fn widest(sum: Resource) -> Resource {
    let rest = LayerTerm { gates: Vec::new(), values: sum.constant.iter().map(|v| vec![*v]).collect() };
    let mut group = sum.layers;
    group.push(rest);
    Resource { constant: vec![0.0; sum.constant.len()], layers: Vec::new(), widest: vec![group], ..sum }
}

/// The largest layer of each kind, and the rest: buffers of different kinds do not share memory. A layer of two kinds (a MoE
/// layer that may become a dense one) is in both groups, in each with the values of its kind.
fn widest_of_each_kind(sum: Resource, configurations: &Configurations) -> Resource {
    let kinds = [LayerKind::Mamba, LayerKind::Moe, LayerKind::Attention, LayerKind::Mlp];
    let of_kind = |kind: LayerKind| -> Vec<LayerTerm> {
        let term = |(term, layer): (&LayerTerm, &LayerConfigurations)| LayerTerm {
            gates: term.gates.clone(),
            values: (term.values.iter().zip(&layer.options))
                .map(|(values, options)| {
                    let is = |option: &Option<Layer>| option.as_ref().is_some_and(|l| l.kind() == kind);
                    values.iter().zip(options).map(|(v, option)| if is(option) { *v } else { 0.0 }).collect()
                })
                .collect(),
        };
        let none = LayerTerm { gates: Vec::new(), values: vec![vec![0.0]; sum.constant.len()] };
        sum.layers.iter().zip(&configurations.layers).map(term).chain([none]).collect()
    };
    let mut rest: Vec<LayerTerm> = (sum.layers.iter())
        .map(|_| LayerTerm { gates: Vec::new(), values: vec![vec![0.0]; sum.constant.len()] })
        .collect();
    rest.push(LayerTerm { gates: Vec::new(), values: sum.constant.iter().map(|v| vec![*v]).collect() });
    let groups = kinds.into_iter().map(of_kind).chain([rest]).collect();
    Resource { constant: vec![0.0; sum.constant.len()], layers: Vec::new(), widest: groups, ..sum }
}

/// Two sums over the same layers as one, value by value; `of` is linear.
fn combine(a: &Resource, b: &Resource, of: impl Fn(f64, f64) -> f64) -> Resource {
    let values = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| of(*a, *b)).collect::<Vec<f64>>();
    let term = |(a, b): (&LayerTerm, &LayerTerm)| LayerTerm {
        gates: a.gates.clone(),
        values: a.values.iter().zip(&b.values).map(|(a, b)| values(a, b)).collect(),
    };
    Resource {
        constant: values(&a.constant, &b.constant),
        layers: a.layers.iter().zip(&b.layers).map(term).collect(),
        ..a.clone()
    }
}
