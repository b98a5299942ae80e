//! Which short models to measure so that every row of a search space is measured.

use std::collections::BTreeSet;

use super::configurations::Configurations;
use super::contract::{Contract, Engine};
use super::table::{Key, Measure, REST, part_name};
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
    /// The fewest runs with at most `layers_per_run` layers each. Which configurations share a model is shuffled by `seed`,
    /// so that each holds layers of several kinds, as a real one does.
    pub fn new(space: &SearchSpace, contract: &Contract, layers_per_run: usize, seed: u64) -> Result<Plan> {
        let configurations = Configurations::new(space)?;
        let hidden_sizes: BTreeSet<usize> = configurations.hidden_sizes.iter().copied().collect();
        let mut runs = Vec::new();
        for hidden_size in hidden_sizes {
            let layers = shuffled(distinct(&configurations, hidden_size), seed, hidden_size as u64);
            let count = layers.len().div_ceil(layers_per_run.max(1));
            // Dealt like cards: runs differ by at most one layer.
            let run = |i| Run { hidden_size, layers: layers.iter().skip(i).step_by(count).copied().collect() };
            runs.extend((0..count).map(run));
        }
        let workload = contract.workload;
        let deployment = match contract.engine {
            Engine::Builtin => "Cpu Builtin F32".into(),
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

    /// (repeat, run) in the order to measure: every run once before any comes again, each time in another order, so that
    /// a machine that becomes slower does not do so for the same configurations.
    pub fn order(&self, repeats: usize, seed: u64) -> Vec<(usize, usize)> {
        (0..repeats)
            .flat_map(|repeat| {
                let runs = shuffled((0..self.runs.len()).collect(), seed, 1 << 32 | repeat as u64);
                runs.into_iter().map(move |run| (repeat, run))
            })
            .collect()
    }
}

/// Every configuration of d, once.
fn distinct(configurations: &Configurations, hidden_size: usize) -> Vec<Layer> {
    let contexts = (0..configurations.hidden_sizes.len()).filter(|c| configurations.hidden_sizes[*c] == hidden_size);
    let mut seen = BTreeSet::new();
    let mut layers = Vec::new();
    for context in contexts {
        for option in configurations.layers.iter().flat_map(|layer| layer.options[context].iter().flatten()) {
            if seen.insert(part_name(option)) {
                layers.push(*option);
            }
        }
    }
    layers
}

fn shuffled<T>(items: Vec<T>, seed: u64, stream: u64) -> Vec<T> {
    let noise = Philox::new(seed, stream);
    let mut keyed: Vec<(f64, T)> = items.into_iter().enumerate().map(|(i, x)| (noise.uniform(i as u64), x)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    keyed.into_iter().map(|(_, item)| item).collect()
}
