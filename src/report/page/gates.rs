//! The gates over steps, and what the repair changed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::panel::{Panel, capitalised};
use crate::report::chart::{Stack, before_after};
use crate::report::number::{percent, power, precise};
use crate::report::{GateCurve, Report, RoundResult, SearchResult};

/// No penalty in this range of ρ.
pub(super) fn band(search: &SearchResult) -> [f64; 2] {
    [1.0 - search.delta, 1.0]
}

/// Where an architecture's ρ should be.
fn wanted(report: &Report) -> [f64; 2] {
    match (&report.search, &report.screening) {
        (Some(search), _) => band(search),
        (None, Some(screening)) => [screening.floor, 1.0],
        (None, None) => [1.0, 1.0],
    }
}

#[derive(Serialize)]
pub(super) struct Gates {
    /// Of the whole model.
    model: Vec<Panel>,
    /// Per layer, by axis.
    axes: Vec<AxisGates>,
    count: usize,
}

#[derive(Serialize)]
struct AxisGates {
    name: String,
    candidates: String,
    gates: Vec<SmallGate>,
}

#[derive(Serialize)]
struct SmallGate {
    layer: usize,
    chosen: String,
    /// Whether the repair moved it away from the leading candidate.
    changed: bool,
    svg: String,
}

/// What an axis is called, with its letter.
fn axis_name(axis: &str) -> String {
    match axis {
        "hidden_size" => "hidden size d",
        "mamba.heads" => "Mamba heads H",
        "keep" => "Mamba layer kept",
        "experts" => "experts E",
        "intermediate" => "routed width F",
        "shared_intermediate" => "shared width S",
        other => other,
    }
    .to_owned()
}

fn candidate_name(gate: &GateCurve, size: usize) -> String {
    match (gate.axis.as_str(), size) {
        ("keep", 0) => "cut".to_owned(),
        ("keep", _) => "keep".to_owned(),
        _ => size.to_string(),
    }
}

pub(super) fn gates(report: &Report, search: &SearchResult) -> Gates {
    let changed = |gate: &GateCurve| report.repair.gates_changed.contains(&gate.name);
    let model = search.gates.iter().filter(|g| g.layer.is_none()).map(|gate| {
        let note = if changed(gate) { "Changed by the repair." } else { "" };
        let chosen = candidate_name(gate, gate.chosen);
        Panel::new(format!("{} → {chosen}", axis_name(&gate.axis)), draw(gate, &search.steps, |s| s.panel())).note(note)
    });
    let mut axes: Vec<AxisGates> = Vec::new();
    let mut sorted: Vec<&GateCurve> = search.gates.iter().filter(|g| g.layer.is_some()).collect();
    sorted.sort_by_key(|gate| gate.layer);
    for gate in sorted {
        let name = capitalised(&axis_name(&gate.axis));
        let small = SmallGate {
            layer: gate.layer.unwrap_or(0),
            chosen: candidate_name(gate, gate.chosen),
            changed: changed(gate),
            svg: draw(gate, &search.steps, |s| s.small()),
        };
        match axes.iter_mut().find(|axis| axis.name == name) {
            Some(axis) => axis.gates.push(small),
            None => {
                let sizes: Vec<String> = gate.candidates.iter().map(|size| candidate_name(gate, *size)).collect();
                axes.push(AxisGates { name, candidates: sizes.join(" · "), gates: vec![small] });
            }
        }
    }
    Gates { model: model.collect(), axes, count: search.gates.len() }
}

fn draw(gate: &GateCurve, steps: &[u64], how: fn(&Stack<'_>) -> String) -> String {
    let candidates: Vec<String> = gate.candidates.iter().map(|size| candidate_name(gate, *size)).collect();
    let ends = last_probabilities(gate);
    let ends: Vec<String> =
        candidates.iter().zip(ends).map(|(name, p)| format!("{name}: {}", percent(*p, 1))).collect();
    let label =
        format!("{}: {} in the student; at the end {}", gate.name, candidate_name(gate, gate.chosen), ends.join(", "));
    how(&Stack {
        label: &label,
        steps,
        candidates: &candidates,
        probabilities: &gate.probabilities,
        chosen: gate.candidates.iter().position(|size| *size == gate.chosen),
    })
}

fn last_probabilities(gate: &GateCurve) -> &[f64] {
    gate.probabilities.last().map_or(&[], Vec::as_slice)
}

/// The largest of a gate's probabilities at a step, and which candidate's.
pub(super) fn leading(probabilities: &[f64]) -> Option<(usize, f64)> {
    let finite = probabilities.iter().copied().enumerate().filter(|(_, p)| p.is_finite());
    finite.max_by(|a, b| a.1.total_cmp(&b.1))
}

#[derive(Serialize)]
pub(super) struct Repair {
    gates: usize,
    changed: Vec<ChangedGate>,
    rho: Vec<RhoRow>,
    rounds: Vec<RoundRow>,
}

#[derive(Serialize)]
struct ChangedGate {
    name: String,
    from: String,
    to: String,
}

#[derive(Serialize)]
struct RhoRow {
    resource: String,
    before: String,
    after: String,
    picture: String,
}

#[derive(Serialize)]
struct RoundRow {
    round: usize,
    resource: String,
    target: String,
    predicted: String,
    measured: String,
    limit: String,
    gates_changed: usize,
    met: bool,
    /// The first line of its round.
    first: bool,
}

pub(super) fn repair(report: &Report) -> Repair {
    let repair = &report.repair;
    let gates = report.search.as_ref().map_or(&[][..], |search| &search.gates);
    let changed = repair.gates_changed.iter().map(|name| changed_gate(name, gates)).collect();
    let mut resources: Vec<&String> = repair.rho_before.keys().chain(repair.rho_after.keys()).collect();
    resources.sort_unstable();
    resources.dedup();
    let rho = resources.into_iter().map(|resource| {
        let of = |map: &BTreeMap<String, f64>| map.get(resource).copied().unwrap_or(f64::NAN);
        let (before, after) = (of(&repair.rho_before), of(&repair.rho_after));
        RhoRow {
            resource: resource.clone(),
            before: percent(before, 2),
            after: percent(after, 2),
            picture: before_after(before, after, wanted(report)),
        }
    });
    let rounds = repair.rounds.iter().enumerate().flat_map(|(i, round)| round_rows(i + 1, round, &report.limits));
    Repair { gates: repair.gates, changed, rho: rho.collect(), rounds: rounds.collect() }
}

fn changed_gate(name: &str, gates: &[GateCurve]) -> ChangedGate {
    let Some(gate) = gates.iter().find(|gate| gate.name == name) else {
        return ChangedGate { name: name.to_owned(), from: "?".to_owned(), to: "?".to_owned() };
    };
    let last = last_probabilities(gate);
    let tell = |c: usize| {
        let size = gate.candidates.get(c).map_or("?".to_owned(), |size| candidate_name(gate, *size));
        last.get(c).map_or(size.clone(), |p| format!("{size} ({})", chance(*p)))
    };
    let chosen = gate.candidates.iter().position(|size| *size == gate.chosen);
    ChangedGate {
        name: name.to_owned(),
        from: leading(last).map_or("?".to_owned(), |(c, _)| tell(c)),
        to: chosen.map_or_else(|| gate.chosen.to_string(), tell),
    }
}

/// A probability, also where a percentage would round it to nothing.
fn chance(p: f64) -> String {
    if p > 0.0 && p < 5e-4 { power(p, 0) } else { percent(p, 1) }
}

fn round_rows(number: usize, round: &RoundResult, limits: &[crate::report::LimitResult]) -> Vec<RoundRow> {
    let rows = round.measured.keys().enumerate().map(|(i, resource)| {
        let unit = limits.iter().find(|l| l.resource == *resource).map_or("", |l| &l.unit);
        let show = |map: &BTreeMap<String, f64>| map.get(resource).copied().map_or("–".to_owned(), precise);
        RoundRow {
            round: number,
            resource: if unit.is_empty() { resource.clone() } else { format!("{resource}, {unit}") },
            target: show(&round.target),
            predicted: show(&round.predicted),
            measured: show(&round.measured),
            limit: show(&round.limit),
            gates_changed: round.gates_changed,
            met: round.met,
            first: i == 0,
        }
    });
    rows.collect()
}
