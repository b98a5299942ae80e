//! The top of the page: the answer, the limits, the two models, the scores.

use serde::Serialize;

use super::panel::{Panel, capitalised};
use crate::report::chart::{self, Bar, BudgetBars};
use crate::report::number::{count, percent, precise, ratio, short};
use crate::report::verdict::{limit_met, limit_use, met, sentence, sign, verdict};
use crate::report::{LimitResult, LossResult, ModelResult, Report, TaskResult};

#[derive(Serialize)]
pub(super) struct Answer {
    met: bool,
    headline: String,
    sentence: String,
    limits: Vec<LimitRow>,
    models: Vec<ModelRow>,
    scores: Vec<ScoreRow>,
    losses: Vec<LossRow>,
    held_out: [String; 2],
    held_out_tokens: String,
    budgets: Vec<Panel>,
}

#[derive(Serialize)]
struct LimitRow {
    name: String,
    limit: String,
    share: String,
    parent: String,
    predicted: String,
    measured: String,
    iqr: String,
    used: String,
    bar: String,
    met: bool,
    /// Whether the limit lies within half the interquartile range of the measurement.
    close: bool,
}

#[derive(Serialize)]
struct ModelRow {
    name: &'static str,
    parent: String,
    student: String,
    ratio: String,
}

#[derive(Serialize)]
struct ScoreRow {
    name: String,
    items: usize,
    parent: String,
    extracted: String,
    student: String,
    kept: String,
    picture: String,
    mean: bool,
}

#[derive(Serialize)]
struct LossRow {
    name: String,
    items: usize,
    parent: String,
    extracted: String,
    student: String,
}

pub(super) fn answer(report: &Report) -> Answer {
    let quality = &report.quality;
    let mut scores: Vec<ScoreRow> = quality.tasks.iter().map(|task| score(task, false)).collect();
    scores.extend(quality.mean.iter().map(|mean| score(mean, true)));
    Answer {
        met: met(report),
        headline: capitalised(&verdict(report)),
        sentence: sentence(report),
        limits: report.limits.iter().map(limit).collect(),
        models: models(report),
        scores,
        losses: quality.losses.iter().map(loss).collect(),
        held_out: [quality.held_out_before_recovery, quality.held_out_after_recovery].map(short),
        held_out_tokens: count(quality.held_out_tokens),
        budgets: report.limits.iter().map(budget).collect(),
    }
}

fn limit(limit: &LimitResult) -> LimitRow {
    let unit = &limit.unit;
    LimitRow {
        name: limit.resource.clone(),
        limit: format!("{} {} {unit}", sign(limit), precise(limit.limit)),
        share: limit.share_of_parent.map(|s| format!("{} of the parent’s", percent(s, 0))).unwrap_or_default(),
        parent: precise(limit.parent_measured),
        predicted: precise(limit.student_predicted),
        measured: precise(limit.student_measured),
        iqr: if limit.student_iqr == 0.0 { String::new() } else { format!("IQR {}", short(limit.student_iqr)) },
        used: percent(limit_use(limit), 1),
        bar: chart::limit_use(limit_use(limit), limit_met(limit)),
        met: limit_met(limit),
        close: (limit.student_measured - limit.limit).abs() < limit.student_iqr / 2.0,
    }
}

fn models(report: &Report) -> Vec<ModelRow> {
    let (parent, student) = (&report.parent, &report.student);
    let row = |name, of: &dyn Fn(&ModelResult) -> f64, show: &dyn Fn(&ModelResult) -> String| ModelRow {
        name,
        parent: show(parent),
        student: show(student),
        ratio: Some(ratio(of(student), of(parent))).filter(|r| r.is_finite()).map_or(String::new(), |r| percent(r, 0)),
    };
    let number = |name, of: &dyn Fn(&ModelResult) -> f64| row(name, of, &|m| short(of(m)));
    let kept = |m: &ModelResult| m.layers.iter().filter(|l| l.kind != "removed").count();
    let mut rows = vec![
        row("parameters", &|m| m.parameters as f64, &|m| count(m.parameters)),
        row("active per token", &|m| m.active_parameters as f64, &|m| count(m.active_parameters)),
        row("layers", &|m| kept(m) as f64, &|m| kept(m).to_string()),
        row("hidden size d", &|m| m.hidden_size as f64, &|m| m.hidden_size.to_string()),
        number("prefill, ms", &|m| m.prefill_ms),
    ];
    let generates = report.deployment.workload.output_tokens > 0;
    rows.extend(generates.then(|| number("decode, ms per token", &|m| m.decode_step_ms)));
    rows.push(number("request, ms", &|m| m.request_ms));
    rows.extend(generates.then(|| number("generated tokens/s", &|m| m.tokens_per_second)));
    rows.push(number("peak memory, MiB", &|m| m.peak_mib));
    rows
}

fn loss(loss: &LossResult) -> LossRow {
    let [parent, extracted, student] = [loss.parent, loss.extracted, loss.student].map(short);
    LossRow { name: loss.name.clone(), items: loss.items, parent, extracted, student }
}

fn score(task: &TaskResult, mean: bool) -> ScoreRow {
    let kept = ratio(task.student, task.parent);
    ScoreRow {
        name: if mean { "mean".to_owned() } else { task.name.clone() },
        items: task.items,
        parent: percent(task.parent, 1),
        extracted: percent(task.extracted, 1),
        student: percent(task.student, 1),
        kept: if kept.is_finite() { percent(kept, 0) } else { String::new() },
        picture: chart::scores(task.parent, task.extracted, task.student),
        mean,
    }
}

fn budget(limit: &LimitResult) -> Panel {
    let bar = |name, value, class, iqr| Bar { name, value, class, iqr };
    let measured = if limit_met(limit) { "student" } else { "over" };
    let bars = [
        bar("parent predicted", limit.parent_predicted, "parent predicted", 0.0),
        bar("parent measured", limit.parent_measured, "parent", 0.0),
        bar("student predicted", limit.student_predicted, "student predicted", 0.0),
        bar("student measured", limit.student_measured, measured, limit.student_iqr),
    ];
    let label = format!(
        "{} in {}: parent {}, student {} predicted and {} measured, limit {}",
        limit.resource,
        limit.unit,
        precise(limit.parent_measured),
        precise(limit.student_predicted),
        precise(limit.student_measured),
        precise(limit.limit)
    );
    let chart =
        BudgetBars { label: &label, unit: &limit.unit, limit: limit.limit, at_least: limit.at_least, bars: &bars };
    let note = if limit_met(limit) { "" } else { "Not met." };
    Panel::new(&limit.resource, chart.draw()).note(note)
}
