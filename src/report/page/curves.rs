//! The curves of search and recovery.

use serde::Serialize;

use super::gates::{band, leading};
use super::panel::{Panel, left_out};
use crate::report::chart::{LineChart, Mark, Series, Smoothing, line_key, point_key};
use crate::report::number::{count, large, ratio, short, written};
use crate::report::{Report, SearchResult};

/// Values over a factor of this are drawn on a logarithmic axis.
const SPREAD: f64 = 20.0;

/// Axes as a legend has room for.
const AXES: [(&str, &str); 6] = [
    ("hidden_size", "d"),
    ("mamba.heads", "H"),
    ("keep", "keep"),
    ("experts", "E"),
    ("intermediate", "F"),
    ("shared_intermediate", "S"),
];

#[derive(Serialize)]
pub(super) struct Search {
    architectures: String,
    all_architectures: String,
    converged: bool,
    /// Whether every gate's leading candidate counts as decided.
    decided: bool,
    steps: usize,
    tokens: String,
    draws: usize,
    converged_at: String,
    /// Whether every limit's slack is penalised, not the binding one's alone.
    each_slack: bool,
    panels: Vec<Panel>,
}

pub(super) fn chart<'a>(label: &'a str, unit: &'a str, steps: &'a [u64], series: Vec<Series<'a>>) -> LineChart<'a> {
    LineChart {
        label,
        unit,
        steps,
        series,
        smoothing: Smoothing::None,
        log_from: f64::INFINITY,
        band: None,
        rules: Vec::new(),
        marks: Vec::new(),
        zero_based: true,
    }
}

pub(super) fn keys(names: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    names.into_iter().enumerate().map(|(i, name)| (line_key(i), name)).collect()
}

pub(super) fn search(search: &SearchResult) -> Search {
    let panels =
        vec![distillation(search), penalty(search), rho(search), certainty(search), norms(search), annealing(search)];
    Search {
        architectures: large(&search.architectures),
        all_architectures: search.architectures.clone(),
        converged: search.converged,
        decided: decided(search),
        steps: search.steps.len(),
        tokens: count(search.tokens),
        draws: search.draws,
        converged_at: written(search.converged_at),
        each_slack: search.slack != "binding",
        panels,
    }
}

fn decided(search: &SearchResult) -> bool {
    search.gates.iter().all(|gate| {
        let last = gate.probabilities.last().and_then(|probabilities| leading(probabilities));
        last.is_some_and(|(_, probability)| probability >= search.converged_at)
    })
}

fn one<'a>(name: &'a str, values: &'a [f64]) -> Vec<Series<'a>> {
    vec![Series { name, style: 0, values }]
}

fn distillation(search: &SearchResult) -> Panel {
    let series = one("KL", &search.distillation);
    let chart = LineChart {
        smoothing: Smoothing::Mean,
        log_from: SPREAD,
        ..chart("KL from the parent to the masked supernet over steps", "nats per token", &search.steps, series)
    };
    Panel::new("Distillation loss", chart.draw()).note(left_out(&search.distillation))
}

fn penalty(search: &SearchResult) -> Panel {
    let series = one("penalty", &search.penalty);
    let chart = LineChart {
        smoothing: Smoothing::Mean,
        log_from: SPREAD,
        ..chart("Budget penalty over steps", "α · penalty", &search.steps, series)
    };
    Panel::new("Budget penalty", chart.draw()).note(left_out(&search.penalty))
}

fn rho(search: &SearchResult) -> Panel {
    let series = search.rho.iter().enumerate().map(|(style, (name, values))| Series { name, style, values });
    let base = chart(
        "Expected cost over target of each limit, over steps",
        "expected cost / target",
        &search.steps,
        series.collect(),
    );
    let [low, high] = band(search);
    let chart = LineChart { band: Some([low, high]), zero_based: false, ..base };
    let title = format!("ρ of each limit; the band is {}–{} %", written(100.0 * low), written(100.0 * high));
    Panel::new(title, chart.draw()).keys(keys(search.rho.keys().cloned())).note(left_out(search.rho.values().flatten()))
}

/// The least certain gate decides when the search may end.
fn certainty(search: &SearchResult) -> Panel {
    let mut least = Vec::new();
    let mut median = Vec::new();
    for step in 0..search.steps.len() {
        let leads = search.gates.iter().filter_map(|gate| leading(gate.probabilities.get(step)?));
        let mut leads: Vec<f64> = leads.map(|(_, p)| p).collect();
        leads.sort_by(f64::total_cmp);
        least.push(leads.first().copied().unwrap_or(f64::NAN));
        median.push(leads.get(leads.len() / 2).copied().unwrap_or(f64::NAN));
    }
    let series = vec![
        Series { name: "least certain gate", style: 0, values: &least },
        Series { name: "median gate", style: 1, values: &median },
    ];
    let base = chart("Probability of the leading candidate over steps", "probability", &search.steps, series);
    let rule = format!("{}: decided", written(search.converged_at));
    let chart = LineChart { rules: vec![(search.converged_at, &rule)], ..base };
    Panel::new("Leading candidate’s probability", chart.draw())
        .keys(keys(["least certain gate".to_owned(), "median gate".to_owned()]))
}

/// Of gradient norms, from which on the smaller one steers nothing.
const MOST_RATIO: f64 = 1e6;

fn norms(search: &SearchResult) -> Panel {
    let mut axes: Vec<&String> = search.distillation_norms.keys().collect();
    axes.sort_by_key(|axis| AXES.iter().position(|(name, _)| name == axis).unwrap_or(AXES.len()));
    let ratios: Vec<(String, Vec<f64>)> = axes
        .into_iter()
        .filter_map(|axis| {
            let (distillation, budget) = (&search.distillation_norms[axis], search.budget_norms.get(axis)?);
            let letter = AXES.iter().find(|(name, _)| name == axis).map_or(axis.as_str(), |(_, letter)| letter);
            // Without a budget gradient to speak of, within the band, there is no ratio.
            let of = |(d, b): (&f64, &f64)| Some(ratio(*d, *b)).filter(|r| *r < MOST_RATIO).unwrap_or(f64::NAN);
            Some((letter.to_owned(), distillation.iter().zip(budget).map(of).collect()))
        })
        .collect();
    let series = ratios.iter().enumerate().map(|(style, (name, values))| Series { name, style, values });
    let base = chart(
        "Ratio of gradient norms, distillation over budget, by axis",
        "‖∂KL‖ / ‖∂penalty‖",
        &search.steps,
        series.collect(),
    );
    let chart = LineChart { smoothing: Smoothing::Median, log_from: 4.0, rules: vec![(1.0, "equal")], ..base };
    Panel::new("Gradient norms: distillation / budget", chart.draw())
        .keys(keys(ratios.iter().map(|r| r.0.clone())))
        .note("Median of 11 steps.")
}

fn annealing(search: &SearchResult) -> Panel {
    let series = vec![
        Series { name: "κ, sharpness of the logits", style: 0, values: &search.kappa },
        Series { name: "τ, temperature of a draw", style: 1, values: &search.tau },
    ];
    let base = chart("Kappa and tau over steps", "κ, τ", &search.steps, series);
    let chart = LineChart { log_from: SPREAD, ..base };
    Panel::new("Annealing", chart.draw()).keys(keys(["κ (logits)".to_owned(), "τ (draws)".to_owned()]))
}

#[derive(Serialize)]
pub(super) struct Recovery {
    tokens: String,
    steps: usize,
    final_loss: String,
    window: usize,
    before: String,
    after: String,
    gained: String,
    panel: Panel,
}

pub(super) fn recovery(report: &Report) -> Recovery {
    let (recovery, quality) = (&report.recovery, &report.quality);
    let (before, after) = (quality.held_out_before_recovery, quality.held_out_after_recovery);
    let base = chart(
        "KL from parent to student over the steps of recovery",
        "nats per token",
        &recovery.steps,
        one("KL", &recovery.loss),
    );
    let chart = LineChart {
        smoothing: Smoothing::Mean,
        log_from: SPREAD,
        marks: vec![(Mark::First, before, "held out, as cut out"), (Mark::Last, after, "held out, recovered")],
        ..base
    };
    let keys = [
        (line_key(0), "training batches, mean of 11 steps".to_owned()),
        (point_key("hollow"), "held out, as cut out".to_owned()),
        (point_key("student"), "held out, recovered".to_owned()),
    ];
    Recovery {
        tokens: count(recovery.tokens),
        steps: recovery.steps.len(),
        final_loss: short(recovery.final_loss),
        window: recovery.loss.len().min(25),
        before: short(before),
        after: short(after),
        gained: crate::report::number::percent(1.0 - ratio(after, before), 0),
        panel: Panel::new("KL from parent to student", chart.draw()).keys(keys).note(left_out(&recovery.loss)),
    }
}
