//! Limits held against times from arithmetic: nothing is measured, and everything here says so.

use super::check::Finding;
use super::{Contract, Engine, Limits};
use crate::Result;
use crate::cost::model::{CostModel, MIB};
use crate::cost::plan::Plan;
use crate::cost::resource::Resource;
use crate::cost::roofline;
use crate::cost::table::{Cost, Key, MODEL, Measure, Table};
use crate::cost::vllm::Memory;
use crate::model::Config;
use crate::supernet::SearchSpace;

/// What every finding ends with.
const HOW: &str = "an estimate at the device's peak rates: engines take longer";

/// How much longer engines may take than arithmetic says: a parent is told to keep a limit only where it does so all the same.
const SLOWER: f64 = 2.0;

/// Limits that even the smallest architecture of the space misses, and a parent that already keeps them all. `space` is that
/// of the parent alone where no other is known.
pub fn findings(contract: &Contract, parent: &Config, space: Option<&SearchSpace>) -> Result<Vec<Finding>> {
    let alone = SearchSpace { parent: parent.clone(), gates: Vec::new() };
    let estimate = Estimate::of(contract, space.unwrap_or(&alone))?;
    let mut findings = Vec::new();
    if space.is_some() {
        findings.extend(estimate.times.iter().filter(|time| time.smallest > time.limit).map(unreachable));
    }
    findings.extend(estimate.nothing_to_do());
    Ok(findings)
}

/// A limit on the time of a request.
struct Time {
    key: &'static str,
    /// Seconds, as the others: at most.
    limit: f64,
    smallest: f64,
    parent: f64,
    /// Whether the limit is a share of the parent's: what is slower is so for both.
    is_share: bool,
    /// Of the whole batch, where the limit is on tokens per second.
    tokens: Option<f64>,
}

struct Estimate {
    times: Vec<Time>,
    /// Bytes of the parent and their limit; `None` without one, and where memory is not known.
    memory: Option<(f64, f64)>,
    /// Whether all limits are among these.
    complete: bool,
}

impl Estimate {
    fn of(contract: &Contract, space: &SearchSpace) -> Result<Estimate> {
        let (table, _) = roofline::estimate(space, contract, &without_bytes(contract, space)?)?;
        let parent = space.parent_choice();
        let request = CostModel::new(space, contract, &table)?.predict(&parent)?.request_seconds;
        let bytes = match contract.engine {
            Engine::Vllm(_) => Some(Memory::of(&space.parent, contract)?.total_bytes as f64),
            Engine::Builtin => None,
        };
        let resolved = contract.resolve(request, bytes.unwrap_or(f64::NAN));
        let model = CostModel::new(space, &resolved, &table)?;
        let time = |resource: &Resource| {
            let is_throughput = resource.name == "throughput";
            let (key, is_share) = match (is_throughput, &contract.limits) {
                (true, Limits { throughput: Some(_), .. }) => ("limits.throughput", false),
                (true, _) => ("limits.throughput_of_parent", true),
                (false, Limits { latency_ms: Some(_), .. }) => ("limits.latency_ms", false),
                (false, _) => ("limits.latency_of_parent", true),
            };
            Time {
                key,
                is_share,
                limit: resource.limit,
                smallest: resource.smallest(),
                parent: resource.cost(&parent.0),
                tokens: is_throughput.then(|| contract.generated_tokens()),
            }
        };
        let memory_limit = resolved.limits.memory_mib.map(|mib| mib * MIB);
        Ok(Estimate {
            times: model.resources.iter().filter(|resource| resource.name != "memory").map(time).collect(),
            memory: bytes.zip(memory_limit),
            complete: memory_limit.is_none() || bytes.is_some(),
        })
    }

    /// Where the parent keeps every limit, with a factor of [`SLOWER`] to spare.
    fn nothing_to_do(&self) -> Option<Finding> {
        let slower = |time: &Time| if time.is_share { 1.0 } else { SLOWER };
        let within = self.times.iter().all(|time| slower(time) * time.parent <= time.limit)
            && self.memory.is_none_or(|(bytes, limit)| bytes <= limit);
        if !(within && self.complete) {
            return None;
        }
        let times = self.times.iter().map(|time| {
            let [parent, limit] = [time.parent, time.limit].map(|seconds| time.text(seconds));
            format!("{} about {parent}, limit {limit}", time.key.trim_start_matches("limits."))
        });
        let memory =
            self.memory.map(|(bytes, limit)| format!("memory {:.0} MiB, limit {:.0} MiB", bytes / MIB, limit / MIB));
        let list: Vec<String> = times.chain(memory).collect();
        Some(Finding {
            at: "limits".into(),
            contradiction: false,
            estimate: true,
            found: format!("a parent that already keeps every limit: {}", list.join("; ")),
            expected: format!("tighter limits, or nothing to compress ({HOW})"),
        })
    }
}

impl Time {
    fn text(&self, seconds: f64) -> String {
        match self.tokens {
            Some(tokens) => format!("{:.0} tokens/s", tokens / seconds),
            None => format!("{:.1} ms", 1e3 * seconds),
        }
    }
}

fn unreachable(time: &Time) -> Finding {
    let bound = if time.tokens.is_some() { "most" } else { "least" };
    Finding {
        at: time.key.into(),
        contradiction: false,
        estimate: true,
        found: time.text(time.limit),
        expected: format!(
            "at {bound} about {}, which the smallest architecture of the space reaches ({HOW})",
            time.text(time.smallest)
        ),
    }
}

/// Rows of bytes for the engine whose bytes are measured and not estimated: all 0, and not read.
fn without_bytes(contract: &Contract, space: &SearchSpace) -> Result<Table> {
    let mut table = Table::default();
    if contract.engine == Engine::Builtin {
        let is_time = |key: &Key| matches!(key.measure, Measure::Prefill | Measure::Decode);
        let keys = Plan::new(space, contract, 10, 0)?.keys().into_iter().filter(|key| !is_time(key));
        let reserve = Key { measure: Measure::Reserve, context: 0, hidden_size: 0, part: MODEL.into() };
        table.rows.extend(keys.chain([reserve]).map(|key| (key, Cost { median: 0.0, iqr: 0.0, repeats: 0 })));
    }
    Ok(table)
}
