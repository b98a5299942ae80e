//! Measuring: the recovered student beside its parent, in the same process, request by request in turn.

use serde::{Deserialize, Serialize};

use super::{Compression, extract, profile};
use crate::cost::{Contract, Limits, MIB, Measurement, Prediction, measure};
use crate::report::LimitResult;
use crate::{Result, files};

const MEASURE: &str = "measure/measure.json";

/// `measure/measure.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
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

/// Holds a measured student to the contract's limits; of each pair the parent's comes first.
///
/// A share of the parent's cost is of the parent's in the same measurement: a machine that has become slower has become so
/// for both.
pub fn judge(contract: &Contract, predicted: [&Prediction; 2], measured: [&Measurement; 2]) -> Vec<LimitResult> {
    let resolved = contract.resolve(measured[0].request.median, measured[0].peak_bytes as f64).limits;
    let Limits { latency_of_parent, memory_of_parent, throughput_of_parent, .. } = contract.limits;
    let latency = resolved.latency_ms.map(|limit| {
        let of_predicted = |p: &Prediction| 1e3 * p.request_seconds;
        let of_measured = |m: &Measurement| 1e3 * m.request.median;
        let iqr = 1e3 * measured[1].request.iqr;
        judged("latency", limit, latency_of_parent, predicted.map(of_predicted), measured.map(of_measured), iqr)
    });
    let memory = resolved.memory_mib.map(|limit| {
        let of_predicted = |p: &Prediction| p.memory_bytes / MIB;
        let of_measured = |m: &Measurement| m.peak_bytes as f64 / MIB;
        judged("memory", limit, memory_of_parent, predicted.map(of_predicted), measured.map(of_measured), 0.0)
    });
    let throughput = resolved.throughput.map(|limit| {
        let of_predicted = |p: &Prediction| contract.generated_tokens() / p.request_seconds;
        let of_measured = |m: &Measurement| m.throughput(contract);
        let iqr = of_measured(measured[1]) * measured[1].request.iqr / measured[1].request.median;
        let share = throughput_of_parent;
        judged("throughput", limit, share, predicted.map(of_predicted), measured.map(of_measured), iqr)
    });
    [latency, memory, throughput].into_iter().flatten().collect()
}

fn judged(
    resource: &str,
    limit: f64,
    share_of_parent: Option<f64>,
    predicted: [f64; 2],
    measured: [f64; 2],
    student_iqr: f64,
) -> LimitResult {
    let at_least = resource == "throughput";
    let met = if at_least { measured[1] >= limit } else { measured[1] <= limit };
    LimitResult {
        resource: resource.into(),
        unit: unit_of(resource).into(),
        at_least,
        limit,
        share_of_parent,
        parent_predicted: predicted[0],
        parent_measured: measured[0],
        student_predicted: predicted[1],
        student_measured: measured[1],
        student_iqr,
        met,
    }
}

/// Measures and writes `measure/measure.json`.
pub fn run(c: &Compression) -> Result<()> {
    let model = profile::read(c)?.model;
    let student = c.load("recovered")?;
    let measured = measure(&[&c.parent, &student], &c.contract, c.recipe.measure.repeats)?;
    let parent = model.predict(&c.space.parent_choice())?;
    let predicted = model.predict(&extract::read(c)?.choice)?;
    let limits = judge(&c.contract, [&parent, &predicted], [&measured[0], &measured[1]]);
    c.run.folder("measure")?;
    let met = limits.iter().all(|limit| limit.met);
    files::write_json(&c.path(MEASURE), &Measured { parent: measured[0], student: measured[1], met, limits })
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Measured> {
    files::read_json(&c.path(MEASURE), "a measurement")
}
