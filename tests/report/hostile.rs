//! Reports that a run should never leave, and that must still be drawn.

use autocompress::report::*;

use crate::fixture::{Noise, map, report, screened};

pub const SCRIPT: &str = "</title><script>alert('x')</script>\"><img src=x onerror=alert(1)>&{{ 7*7 }}\u{1b}[31m";

/// All of them, by what is wrong.
pub fn all() -> Vec<(&'static str, Report)> {
    vec![
        ("names that are HTML", names()),
        ("empty lists", empty()),
        ("NaN", with_numbers(f64::NAN)),
        ("infinity", with_numbers(f64::INFINITY)),
        ("minus infinity", with_numbers(f64::NEG_INFINITY)),
        ("zero", with_numbers(0.0)),
        ("negative", with_numbers(-3.0)),
        ("huge", with_numbers(1e308)),
        ("tiny", with_numbers(5e-324)),
        ("some NaN", some_nan()),
        ("one limit, not met", one_limit()),
        ("all layers removed", removed()),
        ("no tasks", no_tasks()),
        ("zero steps", zero_steps()),
        ("one step", one_step()),
        ("lists of different lengths", ragged()),
        ("100 gates", report(&"ME*E".repeat(17))),
        ("a long run", long_run()),
        ("a screening", screened("MEME*E")),
        ("a screening of names that are HTML", screened_names()),
        ("a screening of nothing", screened_nothing()),
        ("a screening of NaN", screened_nan()),
        ("neither searched nor screened", Report { search: None, ..report("ME") }),
    ]
}

/// The search's part of a report that has one.
fn searched(report: &mut Report) -> &mut SearchResult {
    report.search.as_mut().unwrap()
}

fn screened_names() -> Report {
    let mut report = screened("MEME*E");
    let s = report.screening.as_mut().unwrap();
    s.reach = SCRIPT.to_owned();
    for candidate in &mut s.candidates {
        candidate.sizes.insert(SCRIPT.to_owned(), 3);
        candidate.rho.insert(SCRIPT.to_owned(), 0.5);
    }
    report
}

fn screened_nothing() -> Report {
    let mut report = screened("ME");
    report.screening.as_mut().unwrap().candidates.clear();
    report
}

fn screened_nan() -> Report {
    let mut report = screened("MEME*E");
    each_float(&mut report, &mut |number| *number = f64::NAN);
    report
}

fn names() -> Report {
    let mut report = report("MEM*E-");
    let bad = || SCRIPT.to_owned();
    report.name = bad();
    report.machine.processor = bad();
    report.machine.system = bad();
    report.deployment.device = bad();
    report.deployment.engine = bad();
    report.deployment.precision = bad();
    for limit in &mut report.limits {
        limit.resource = bad();
        limit.unit = bad();
    }
    report.parent.folder = bad();
    report.student.folder = bad();
    for layer in report.parent.layers.iter_mut().chain(&mut report.student.layers) {
        layer.kind = bad();
        layer.sizes.insert(bad(), 3);
    }
    report.quality.tasks.iter_mut().for_each(|t| t.name = bad());
    report.quality.losses.iter_mut().for_each(|l| l.name = bad());
    let s = searched(&mut report);
    s.slack = bad();
    s.architectures = bad();
    for gate in &mut s.gates {
        gate.name = bad();
        gate.axis = bad();
    }
    s.rho.insert(bad(), vec![1.0; 200]);
    s.distillation_norms.insert(bad(), vec![1.0; 200]);
    s.budget_norms.insert(bad(), vec![1.0; 200]);
    report.repair.rho_before.insert(bad(), 1.5);
    report.repair.gates_changed = vec![bad(), bad()];
    for round in &mut report.repair.rounds {
        round.measured.insert(bad(), 1.0);
    }
    report.cost_model.points.iter_mut().for_each(|p| p.name = bad());
    report.cost_model.median_error.insert(bad(), 0.1);
    report.cost_model.table.iter_mut().for_each(|r| r.part = bad());
    let r = &mut report.reproduce;
    (r.version, r.command, r.recipe) = (bad(), bad(), bad());
    r.inputs.insert(bad(), bad());
    r.seconds.insert(bad(), 3.0);
    report
}

fn empty() -> Report {
    let mut report = report("");
    report.name.clear();
    report.limits.clear();
    report.quality.losses.clear();
    report.quality.tasks.clear();
    report.quality.mean = None;
    zero(&mut report);
    let s = searched(&mut report);
    s.gates.clear();
    s.rho.clear();
    s.distillation_norms.clear();
    s.budget_norms.clear();
    report.repair.rho_before.clear();
    report.repair.rho_after.clear();
    report.repair.gates_changed.clear();
    report.repair.rounds.clear();
    report.cost_model.points.clear();
    report.cost_model.median_error.clear();
    report.cost_model.worst_error.clear();
    report.cost_model.margin.clear();
    report.cost_model.table.clear();
    report.reproduce.inputs.clear();
    report.reproduce.seconds.clear();
    (report.parent.parameters, report.student.parameters) = (0, 0);
    report
}

/// Every float is `value`.
fn with_numbers(value: f64) -> Report {
    let mut report = report("MEME*E");
    each_float(&mut report, &mut |number| *number = value);
    report
}

/// About one float in five is not one.
fn some_nan() -> Report {
    let mut report = report("MEME*E");
    let mut noise = Noise::new(3);
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    each_float(&mut report, &mut |number| {
        if noise.next() < 0.2 {
            *number = bad[(noise.next() * 3.0) as usize];
        }
    });
    report
}

fn each_float(report: &mut Report, change: &mut dyn FnMut(&mut f64)) {
    for l in &mut report.limits {
        [&mut l.limit, &mut l.parent_predicted, &mut l.parent_measured].into_iter().for_each(&mut *change);
        [&mut l.student_predicted, &mut l.student_measured, &mut l.student_iqr].into_iter().for_each(&mut *change);
    }
    if let Some(s) = &mut report.search {
        [&mut s.delta, &mut s.converged_at].into_iter().for_each(&mut *change);
    }
    for l in &mut report.quality.losses {
        [&mut l.parent, &mut l.extracted, &mut l.student].into_iter().for_each(&mut *change);
    }
    for m in [&mut report.parent, &mut report.student] {
        m.layers.iter_mut().for_each(|l| change(&mut l.request_ms));
        [&mut m.prefill_ms, &mut m.decode_step_ms, &mut m.request_ms].into_iter().for_each(&mut *change);
        [&mut m.tokens_per_second, &mut m.peak_mib].into_iter().for_each(&mut *change);
        m.resident_mib.iter_mut().for_each(&mut *change);
    }
    let q = &mut report.quality;
    for t in q.tasks.iter_mut().chain(&mut q.mean) {
        [&mut t.parent, &mut t.extracted, &mut t.student].into_iter().for_each(&mut *change);
    }
    [&mut q.held_out_before_recovery, &mut q.held_out_after_recovery].into_iter().for_each(&mut *change);
    if let Some(s) = &mut report.search {
        s.gates.iter_mut().flat_map(|g| g.probabilities.iter_mut().flatten()).for_each(&mut *change);
        let lists = [&mut s.distillation, &mut s.penalty, &mut s.kappa, &mut s.tau];
        lists.into_iter().flatten().for_each(&mut *change);
        let maps = [&mut s.rho, &mut s.distillation_norms, &mut s.budget_norms];
        maps.into_iter().flat_map(|m| m.values_mut().flatten()).for_each(&mut *change);
    }
    if let Some(s) = &mut report.screening {
        change(&mut s.floor);
        for c in &mut s.candidates {
            c.rho.values_mut().chain(&mut c.losses).chain(&mut c.score).for_each(&mut *change);
            change(&mut c.first_loss);
        }
    }
    let r = &mut report.repair;
    r.rho_before.values_mut().chain(r.rho_after.values_mut()).for_each(&mut *change);
    for round in &mut r.rounds {
        let maps = [&mut round.target, &mut round.predicted, &mut round.measured, &mut round.limit];
        maps.into_iter().flat_map(|m| m.values_mut()).for_each(&mut *change);
    }
    report.recovery.loss.iter_mut().chain([&mut report.recovery.final_loss]).for_each(&mut *change);
    let c = &mut report.cost_model;
    for p in &mut c.points {
        [&mut p.predicted_ms, &mut p.measured_ms, &mut p.predicted_mib, &mut p.measured_mib]
            .into_iter()
            .for_each(&mut *change);
    }
    for row in &mut c.table {
        [&mut row.prefill_ms, &mut row.decode_us, &mut row.weights_bytes].into_iter().for_each(&mut *change);
        [&mut row.cache_bytes, &mut row.workspace_bytes].into_iter().for_each(&mut *change);
    }
    let maps = [&mut c.margin, &mut c.median_error, &mut c.worst_error, &mut report.reproduce.seconds];
    maps.into_iter().flat_map(|m| m.values_mut()).for_each(&mut *change);
}

pub fn one_limit() -> Report {
    let mut report = report("MEME*EME");
    report.limits.truncate(1);
    let limit = &mut report.limits[0];
    limit.limit = limit.student_measured / 1.016;
    limit.met = false;
    report.met = false;
    searched(&mut report).rho.retain(|name, _| name == "latency");
    report
}

fn removed() -> Report {
    let mut report = report("MEMEMEM*");
    for layer in &mut report.student.layers {
        *layer = LayerResult { kind: "removed".to_owned(), sizes: map([]), parameters: 0, request_ms: 0.0 };
    }
    report
}

fn no_tasks() -> Report {
    let mut report = report("MEME*EME");
    report.quality.tasks.clear();
    report.quality.mean = None;
    report
}

fn zero(report: &mut Report) {
    let s = searched(report);
    s.steps.clear();
    [&mut s.distillation, &mut s.penalty, &mut s.kappa, &mut s.tau].into_iter().for_each(Vec::clear);
    [&mut s.rho, &mut s.distillation_norms, &mut s.budget_norms]
        .into_iter()
        .flat_map(|m| m.values_mut())
        .for_each(Vec::clear);
    s.gates.iter_mut().for_each(|g| g.probabilities.clear());
    report.recovery.steps.clear();
    report.recovery.loss.clear();
}

fn zero_steps() -> Report {
    let mut report = report("MEME*EME");
    zero(&mut report);
    report
}

fn one_step() -> Report {
    let mut report = report("MEME*EME");
    searched(&mut report).steps.truncate(1);
    searched(&mut report).gates.iter_mut().for_each(|g| g.probabilities.truncate(1));
    report.recovery.steps.truncate(1);
    report
}

fn ragged() -> Report {
    let mut report = report("MEME*EME");
    let s = searched(&mut report);
    s.distillation.truncate(7);
    s.tau.clear();
    s.gates[0].probabilities.truncate(3);
    s.gates[1].probabilities.iter_mut().for_each(|p| p.truncate(1));
    s.gates[2].candidates.clear();
    s.gates[3].chosen = 999;
    s.budget_norms.remove("experts");
    report.student.layers.truncate(3);
    report.recovery.loss.extend([1.0; 50]);
    report
}

fn long_run() -> Report {
    let mut report = report("MEME*EME");
    report.recovery.steps = (0..200_000).collect();
    report.recovery.loss = (0..200_000).map(|i| 1.0 / (1.0 + i as f64 / 100.0) + (i % 17) as f64 * 1e-3).collect();
    report
}
