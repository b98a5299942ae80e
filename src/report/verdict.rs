//! The answer in words, the same on the page and in the terminal.

use super::number::{count_of, percent, precise, ratio, short};
use super::{LimitResult, Report};

/// Whether the student is within every limit: the report's own word, unless a limit contradicts it.
pub(super) fn met(report: &Report) -> bool {
    report.met && report.limits.iter().all(limit_met)
}

/// A limit's own word, but what was not measured is not met.
pub(super) fn limit_met(limit: &LimitResult) -> bool {
    limit.met && limit.student_measured.is_finite()
}

/// "every limit is met", or which is not and by how much.
pub(super) fn verdict(report: &Report) -> String {
    if report.limits.is_empty() {
        return "no limit was set".to_owned();
    }
    let missed: Vec<String> = report.limits.iter().filter(|l| !limit_met(l)).map(miss).collect();
    match missed.as_slice() {
        [] if report.met => "every limit is met".to_owned(),
        [] => "the limits are not met, although each alone is".to_owned(),
        missed => format!("not met: {}", missed.join("; ")),
    }
}

/// "latency by 0.700 ms (1.8 %)".
fn miss(limit: &LimitResult) -> String {
    let gap = (limit.student_measured - limit.limit).abs();
    let share = percent(ratio(gap, limit.limit.abs()), 1);
    format!("{} by {} {} ({share})", limit.resource, short(gap), limit.unit)
}

/// "The student has 0.83 M of 1.66 M parameters, needs 38.10 ms of 39.20 ms allowed and 4.93 MiB of 5.00 MiB allowed."
pub(super) fn sentence(report: &Report) -> String {
    let parameters = count_of(report.student.parameters, report.parent.parameters);
    let mut clauses = vec![format!("has {parameters} parameters")];
    for limit in &report.limits {
        let (measured, allowed, unit) = (precise(limit.student_measured), precise(limit.limit), &limit.unit);
        clauses.push(match (limit.resource.as_str(), limit.at_least) {
            (_, true) => format!("gives {measured} {unit} where at least {allowed} are asked for"),
            ("latency", _) if !limit_met(limit) => {
                format!("needs {measured} {unit} where {allowed} {unit} are allowed")
            }
            ("memory", _) if !limit_met(limit) => format!("takes {measured} {unit} where {allowed} {unit} are allowed"),
            ("latency", _) => format!("needs {measured} {unit} of {allowed} {unit} allowed"),
            ("memory", _) => format!("takes {measured} {unit} of {allowed} {unit} allowed"),
            (name, _) => format!("has a {name} of {measured} {unit} where {allowed} {unit} is allowed"),
        });
    }
    let last = clauses.pop().unwrap_or_default();
    match clauses.is_empty() {
        true => format!("The student {last}."),
        false => format!("The student {} and {last}.", clauses.join(", ")),
    }
}

/// Measured / limit.
pub(super) fn limit_use(limit: &LimitResult) -> f64 {
    ratio(limit.student_measured, limit.limit)
}

/// "≤" or "≥".
pub(super) fn sign(limit: &LimitResult) -> &'static str {
    if limit.at_least { "≥" } else { "≤" }
}
