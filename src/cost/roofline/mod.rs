//! Times from arithmetic: for a device that is not at hand.
//!
//! A layer's time is a sum of what it computes over the device's rate, what it moves over the bandwidth, and its launches
//! ([`Work`]). Each term has a coefficient, 1 until measured rows calibrate it ([`Calibration`]). What comes out is an
//! estimate, and every row says so: it has 0 repeats.

mod calibration;
mod work;

pub use calibration::{Calibration, Fit, halves};
pub use work::{FEATURES, Phase, Work};

use std::collections::BTreeSet;

use super::configurations::Configurations;
use super::contract::{Contract, Engine};
use super::device_spec::DeviceSpec;
use super::plan::Plan;
use super::table::{Cost, Key, Measure, REST, Table, part_name};
use super::vllm::memory_rows;
use crate::model::config::Layer;
use crate::supernet::SearchSpace;
use crate::{Error, Result};

/// A layer configuration, or `None` for what is no layer, at a hidden size.
pub type Part = (usize, Option<Layer>);

/// Every (d, layer configuration) of a space, each once.
pub fn parts(space: &SearchSpace) -> Result<Vec<Part>> {
    let configurations = Configurations::new(space)?;
    let mut seen = BTreeSet::new();
    let mut parts = Vec::new();
    for (context, d) in configurations.hidden_sizes.iter().enumerate() {
        if seen.insert((*d, REST.to_owned())) {
            parts.push((*d, None));
        }
        for layer in configurations.layers.iter().flat_map(|layer| layer.options[context].iter().flatten()) {
            if seen.insert((*d, part_name(layer))) {
                parts.push((*d, Some(*layer)));
            }
        }
    }
    Ok(parts)
}

/// The row of a part in a phase.
pub fn key(part: &Part, phase: Phase) -> Key {
    let (measure, context) = match phase {
        Phase::Prefill => (Measure::Prefill, 0),
        Phase::Decode { context } => (Measure::Decode, context),
    };
    Key { measure, context, hidden_size: part.0, part: part.1.as_ref().map_or_else(|| REST.into(), part_name) }
}

/// The phases of a contract's workload: prefill, and a decode step at each of its contexts.
pub fn phases(contract: &Contract) -> Vec<Phase> {
    let contexts = contract.workload.contexts();
    std::iter::once(Phase::Prefill)
        .chain(contexts.iter().map(|(context, _)| Phase::Decode { context: *context }))
        .collect()
}

/// The table that a space needs under a contract: rows of `measured` where it has them, else estimates that `measured`
/// calibrates. Of vLLM, bytes are the memory model's.
///
/// # Errors
/// [`Error::Usage`] where the contract is of this crate's own engine and `measured` lacks bytes: those are measured in no time.
pub fn estimate(space: &SearchSpace, contract: &Contract, measured: &Table) -> Result<(Table, Calibration)> {
    let device = DeviceSpec::of(&contract.device)?;
    let calibration = Calibration::of(space, contract, &device, measured)?;
    let mut table = match contract.engine {
        Engine::Vllm(_) => memory_rows(space, contract)?,
        Engine::Builtin => Table::default(),
    };
    for part in parts(space)? {
        for phase in phases(contract) {
            let seconds = calibration.seconds(&part, phase, &space.parent, contract, &device);
            table.rows.insert(key(&part, phase), Cost { median: seconds, iqr: 0.0, repeats: 0 });
        }
    }
    let needed = Plan::new(space, contract, 10, 0)?.keys();
    if !measured.rows.is_empty() && !measured.rows.keys().any(|key| needed.contains(key)) {
        let rows = measured.rows.len();
        return Err(Error::Usage(format!(
            "the cost table: found none of its {rows} rows needed, expected rows of this space and workload"
        )));
    }
    // An estimate among them is made again, by what is measured now.
    let is_estimate = |(key, cost): &(&Key, &Cost)| cost.repeats == 0 && key.measure.is_time();
    let known = measured.rows.iter().filter(|row| !is_estimate(row));
    let known = known.filter(|(key, _)| needed.contains(key) || key.measure == Measure::Reserve);
    table.rows.extend(known.map(|(key, cost)| (key.clone(), *cost)));
    match needed.iter().find(|key| !table.rows.contains_key(key)) {
        Some(key) => Err(Error::Usage(format!("the measured table has no row for {key}, and bytes are not estimated"))),
        None => Ok((table, calibration)),
    }
}

/// (predicted, measured) seconds of the rows of `other`, calibrated on `known` alone.
pub fn held_out(space: &SearchSpace, contract: &Contract, known: &Table, other: &Table) -> Result<Vec<(f64, f64)>> {
    let device = DeviceSpec::of(&contract.device)?;
    let calibration = Calibration::of(space, contract, &device, known)?;
    let mut pairs = Vec::new();
    for part in parts(space)? {
        for phase in phases(contract) {
            if let Some(cost) = other.rows.get(&key(&part, phase)).filter(|cost| cost.repeats > 0 && cost.median > 0.0)
            {
                pairs.push((calibration.seconds(&part, phase, &space.parent, contract, &device), cost.median));
            }
        }
    }
    Ok(pairs)
}
