//! Which short models to measure so that every row of a search space is measured.

use std::collections::{BTreeMap, BTreeSet};

use super::configurations::Configurations;
use super::contract::{Contract, Engine};
use super::table::{Key, Measure, REST, part_name};
use crate::device::MeasuredOn;
use crate::engine::profile::Workload;
use crate::model::Config;
use crate::model::config::Layer;
use crate::numerics::Philox;
use crate::supernet::SearchSpace;
use crate::{Result, run};

/// A short model: every layer another configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub hidden_size: usize,
    pub layers: Vec<Layer>,
    /// How often a repeat measures it: 2L − 1 for a configuration that L layers of one architecture share. The error of
    /// its row counts L times in a request, while those of L different rows partly cancel.
    pub times: usize,
}

/// All runs of a profile. Each (d, layer configuration) of the space is in exactly one.
#[derive(Clone, Debug)]
pub struct Plan {
    pub runs: Vec<Run>,
    pub workload: Workload,
    /// Of all that measured numbers depend on: results of another plan are not this one's.
    pub digest: String,
    parent: Config,
}

impl Plan {
    /// The fewest runs with at most `layers_per_run` layers each. Configurations that several layers of an architecture
    /// share, as Mamba's do where one gate is of them all, are put into the same runs, which are measured more often. Which
    /// of the others share a model is shuffled by `seed`, so that each holds layers of several kinds, as a real one does.
    pub fn new(space: &SearchSpace, contract: &Contract, layers_per_run: usize, seed: u64) -> Result<Plan> {
        let configurations = Configurations::new(space)?;
        let hidden_sizes: BTreeSet<usize> = configurations.hidden_sizes.iter().copied().collect();
        let mut runs = Vec::new();
        for hidden_size in hidden_sizes {
            let layers = shuffled(distinct(&configurations, hidden_size), seed, hidden_size as u64);
            runs.extend(deal(layers, layers_per_run.max(1)).into_iter().map(|dealt| {
                let sharing = dealt.iter().map(|(_, sharing)| *sharing).max().unwrap_or(1);
                let layers = dealt.into_iter().map(|(layer, _)| layer).collect();
                Run { hidden_size, layers, times: 2 * sharing - 1 }
            }));
        }
        let workload = contract.workload;
        let deployment = match contract.engine {
            Engine::Builtin => match MeasuredOn::current() {
                on if on.is_cpu() => "Cpu Builtin F32".into(),
                on => format!("{on} Builtin"),
            },
            _ => format!("{:?} {:?} {:?}", contract.device, contract.engine, contract.precision),
        };
        let text = format!(
            "{deployment} {} {workload:?} {} {} {runs:?}",
            contract.threads, space.parent.vocab_size, space.parent.tie_word_embeddings
        );
        Ok(Plan { runs, workload, digest: run::digest_bytes(text.as_bytes()), parent: space.parent.clone() })
    }

    /// The configuration of a run's model.
    pub fn config(&self, run: &Run) -> Config {
        Config { hidden_size: run.hidden_size, layers: run.layers.clone(), mtp: None, ..self.parent.clone() }
    }

    /// The rows that the runs measure.
    pub fn keys(&self) -> BTreeSet<Key> {
        self.runs.iter().flat_map(|run| self.keys_of(run)).collect()
    }

    /// The rows of one run.
    pub fn keys_of(&self, run: &Run) -> Vec<Key> {
        let contexts = self.workload.contexts();
        let mut places: Vec<(Measure, usize)> = contexts.iter().map(|(at, _)| (Measure::Decode, *at)).collect();
        places.extend(contexts.first().map(|_| (Measure::DecodeWorkspace, 0)));
        places.extend([Measure::Prefill, Measure::Weights, Measure::Cache, Measure::PrefillWorkspace].map(|m| (m, 0)));
        let parts: Vec<String> = run.layers.iter().map(part_name).chain([REST.into()]).collect();
        let key = |part: &String, (measure, context): &(Measure, usize)| Key {
            measure: *measure,
            context: *context,
            hidden_size: run.hidden_size,
            part: part.clone(),
        };
        parts.iter().flat_map(|part| places.iter().map(move |place| key(part, place))).collect()
    }

    /// (measurement, run) in the order to measure, of each run as many as [`Plan::measurements`]. All runs are measured as
    /// often as a repeat does before the next begins, each time in another order, so that a machine that becomes slower
    /// does not do so for the same configurations.
    pub fn order(&self, repeats: usize, seed: u64) -> Vec<(usize, usize)> {
        let once: Vec<(usize, usize)> =
            (0..self.runs.len()).flat_map(|run| (0..self.runs[run].times).map(move |time| (time, run))).collect();
        (0..repeats)
            .flat_map(|repeat| {
                let repeated = shuffled(once.clone(), seed, 1 << 32 | repeat as u64).into_iter();
                repeated.map(move |(time, run)| (self.measurements(run, repeat) + time, run))
            })
            .collect()
    }

    /// How often `repeats` repeats measure a run.
    pub fn measurements(&self, run: usize, repeats: usize) -> usize {
        repeats * self.runs[run].times
    }
}

/// Every configuration of d once, with the most layers that can have it in the same architecture.
///
/// Layers with gates of their own are counted as one: that all of them choose the same is rare.
fn distinct(configurations: &Configurations, hidden_size: usize) -> Vec<(Layer, usize)> {
    let contexts = (0..configurations.hidden_sizes.len()).filter(|c| configurations.hidden_sizes[*c] == hidden_size);
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut layers: Vec<(Layer, usize)> = Vec::new();
    for context in contexts {
        let mut sharing: BTreeMap<String, usize> = BTreeMap::new();
        for layer in &configurations.layers {
            for option in layer.options[context].iter().flatten() {
                let name = part_name(option);
                let count = sharing.entry(name.clone()).or_insert(0);
                *count = if layer.gates.is_empty() { *count + 1 } else { (*count).max(1) };
                let at = *found.entry(name).or_insert(layers.len());
                if at == layers.len() {
                    layers.push((*option, 0));
                }
                layers[at].1 = layers[at].1.max(*count);
            }
        }
    }
    layers
}

/// Hands out what is shared first, run after run, and the others to the runs in turn, like cards, while there is room.
fn deal(mut layers: Vec<(Layer, usize)>, layers_per_run: usize) -> Vec<Vec<(Layer, usize)>> {
    let mut runs = vec![Vec::new(); layers.len().div_ceil(layers_per_run)];
    // Stable: the order of the shuffle stays among equals.
    layers.sort_by_key(|(_, sharing)| std::cmp::Reverse(*sharing));
    let shared = layers.iter().take_while(|(_, sharing)| *sharing > 1).count();
    for (i, layer) in layers.drain(..shared).enumerate() {
        runs[i / layers_per_run].push(layer);
    }
    for layer in layers {
        // The emptiest, the first of equals.
        if let Some(run) = runs.iter_mut().min_by_key(|run| run.len()) {
            run.push(layer);
        }
    }
    runs
}

fn shuffled<T>(items: Vec<T>, seed: u64, stream: u64) -> Vec<T> {
    let noise = Philox::new(seed, stream);
    let mut keyed: Vec<(f64, T)> = items.into_iter().enumerate().map(|(i, x)| (noise.uniform(i as u64), x)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    keyed.into_iter().map(|(_, item)| item).collect()
}
