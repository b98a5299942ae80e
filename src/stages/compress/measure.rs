//! Measuring: the recovered student beside its parent, in the same process, request by request in turn.

use serde::{Deserialize, Serialize};

use super::profile::Basis;
use super::{Compression, extract, profile};
use crate::cost::{Contract, MIB, Measurement, Prediction, measure};
use crate::device::MeasuredOn;
use crate::report::LimitResult;
use crate::{Result, files};

const MEASURE: &str = "measure/measure.json";

/// `measure/measure.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    #[serde(default)]
    pub measured_on: MeasuredOn,
    pub parent: Measurement,
    pub student: Measurement,
    pub met: bool,
    pub limits: Vec<LimitResult>,
}

/// The unit that a resource's limit is told in.
pub fn unit_of(resource: &str) -> &'static str {
    match resource {
        "memory" => "MiB",
        "throughput" => "tokens/s",
        _ => "ms",
    }
}

/// A cost model's number (seconds of a request, bytes) in the unit that a resource's limit is told in.
pub fn in_unit(contract: &Contract, resource: &str, cost: f64) -> f64 {
    match resource {
        "memory" => cost / MIB,
        "throughput" => contract.generated_tokens() / cost,
        _ => 1e3 * cost,
    }
}

/// What is predicted to be taken of a resource, in the same unit.
pub fn predicted_in_unit(contract: &Contract, resource: &str, prediction: &Prediction) -> f64 {
    let cost = if resource == "memory" { prediction.memory_bytes } else { prediction.request_seconds };
    in_unit(contract, resource, cost)
}

/// A limit, and what a model takes of it, in the limit's unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    pub resource: &'static str,
    pub unit: &'static str,
    /// Whether more is better: the limit is a least value.
    pub at_least: bool,
    pub limit: f64,
    /// The share of the parent's that the contract asks for, where it asks for one.
    pub share_of_parent: Option<f64>,
    pub measured: f64,
    pub met: bool,
}

/// Holds a measured model to the contract's limits: to all of them beside its `parent`, else to those that are no share of
/// the parent's.
pub fn hold(contract: &Contract, parent: Option<&Measurement>, model: &Measurement) -> Vec<Held> {
    let limits = match parent {
        Some(parent) => contract.resolve(parent.request.median, parent.peak_bytes as f64).limits,
        None => contract.limits,
    };
    let shares = &contract.limits;
    let limits = [
        ("latency", limits.latency_ms, shares.latency_of_parent),
        ("memory", limits.memory_mib, shares.memory_of_parent),
        ("throughput", limits.throughput, shares.throughput_of_parent),
    ];
    let held = |(resource, limit, share_of_parent): (&'static str, Option<f64>, Option<f64>)| {
        let limit = limit?;
        let at_least = resource == "throughput";
        let cost = if resource == "memory" { model.peak_bytes as f64 } else { model.request.median };
        let measured = in_unit(contract, resource, cost);
        let met = if at_least { measured >= limit } else { measured <= limit };
        Some(Held { resource, unit: unit_of(resource), at_least, limit, share_of_parent, measured, met })
    };
    limits.into_iter().filter_map(held).collect()
}

/// Holds a measured student to the contract's limits; of each pair the parent's comes first.
///
/// A share of the parent's cost is of the parent's in the same measurement: a machine that has become slower has become so
/// for both.
pub fn judge(contract: &Contract, predicted: [&Prediction; 2], measured: [&Measurement; 2]) -> Vec<LimitResult> {
    let student = measured[1];
    let result = |held: Held| {
        let predicted = predicted.map(|p| predicted_in_unit(contract, held.resource, p));
        let cost = if held.resource == "memory" { measured[0].peak_bytes as f64 } else { measured[0].request.median };
        let student_iqr = match held.resource {
            "memory" => 0.0,
            _ => held.measured * student.request.iqr / student.request.median,
        };
        LimitResult {
            resource: held.resource.into(),
            unit: held.unit.into(),
            at_least: held.at_least,
            limit: held.limit,
            share_of_parent: held.share_of_parent,
            parent_predicted: predicted[0],
            parent_measured: in_unit(contract, held.resource, cost),
            student_predicted: predicted[1],
            student_measured: held.measured,
            student_iqr,
            met: held.met,
        }
    };
    hold(contract, Some(measured[0]), student).into_iter().map(result).collect()
}

/// Measures and writes `measure/measure.json`.
pub fn run(c: &Compression) -> Result<()> {
    let profile::Profile { model, basis, .. } = profile::read_here(c)?;
    let Basis::Here { measured_on, .. } = basis else { return c.contract.measured_here() };
    let student = c.load("recovered")?;
    let measured = measure(&[&c.parent, &student], &c.contract, c.recipe.measure.repeats)?;
    let parent = model.predict(&c.space.parent_choice())?;
    let predicted = model.predict(&extract::read(c)?.choice)?;
    let limits = judge(&c.contract, [&parent, &predicted], [&measured[0], &measured[1]]);
    c.run.folder("measure")?;
    let met = limits.iter().all(|limit| limit.met);
    let measured = Measured { measured_on, parent: measured[0], student: measured[1], met, limits };
    files::write_json(&c.path(MEASURE), &measured)
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Measured> {
    files::read_json(&c.path(MEASURE), "a measurement")
}
