//! The table that ends a run in the terminal: at most 100 columns of ASCII and "·→≤≥ρ".

use super::number::{count, percent, precise, ratio, short};
use super::verdict::{limit_met, sign, verdict};
use super::{LimitResult, ModelResult, Report, TaskResult};

const NAME: usize = 28;
const COLUMN: usize = 11;
const LIMIT: usize = 20;
const WIDEST: usize = 100;

/// Parent and student, predicted and measured, against the limits; then quality, repair and the verdict.
pub fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    costs(&mut lines, report);
    quality(&mut lines, report);
    repair(&mut lines, report);
    lines.push(String::new());
    lines.extend(wrap(&plain(&verdict(report))));
    let mut text = String::new();
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A name, cells at the right of their columns, and what follows them.
fn row<const N: usize>(name: &str, cells: [&str; N], rest: &str) -> String {
    let mut line = pad(name, NAME);
    for cell in cells {
        line.push_str(&format!("{:>COLUMN$}", cut(&plain(cell), COLUMN - 1)));
    }
    line.push_str(rest);
    line
}

fn costs(lines: &mut Vec<String>, report: &Report) {
    let (parent, student) = (&report.parent, &report.student);
    lines.push(row(&report.name, ["", "parent", "", "student"], ""));
    lines.push(row("", ["predicted", "measured", "predicted", "measured"], &format!("{:>LIMIT$}   met", "limit")));
    let counts = |of: fn(&ModelResult) -> u64| [count(of(parent)), count(of(student))];
    for (name, [p, s]) in
        [("parameters", counts(|m| m.parameters)), ("  active per token", counts(|m| m.active_parameters))]
    {
        lines.push(row(name, ["", &p, "", &s], ""));
    }
    lines.extend(report.limits.iter().map(limit));
    let times = |of: fn(&ModelResult) -> f64| [short(of(parent)), short(of(student))];
    let mut rows = vec![("prefill, ms", times(|m| m.prefill_ms))];
    if report.deployment.workload.output_tokens > 0 {
        rows.push(("decode, ms per token", times(|m| m.decode_step_ms)));
    }
    for (name, [p, s]) in rows {
        lines.push(row(name, ["", &p, "", &s], ""));
    }
}

fn limit(limit: &LimitResult) -> String {
    let name = format!("{}, {}", limit.resource, limit.unit);
    let values = [limit.parent_predicted, limit.parent_measured, limit.student_predicted, limit.student_measured];
    let [a, b, c, d] = values.map(precise);
    let allowed = format!("{} {}", sign(limit), precise(limit.limit));
    let met = if limit_met(limit) { "yes" } else { "NO" };
    row(&name, [&a, &b, &c, &d], &format!("{:>LIMIT$}   {met}", cut(&allowed, LIMIT - 1)))
}

fn quality(lines: &mut Vec<String>, report: &Report) {
    let quality = &report.quality;
    lines.push(String::new());
    lines.push(row("quality", ["parent", "as cut out", "recovered"], ""));
    let kl = [quality.held_out_before_recovery, quality.held_out_after_recovery].map(short);
    lines.push(row("held-out KL, nats per token", ["", &kl[0], &kl[1]], ""));
    for loss in &quality.losses {
        let cells = [loss.parent, loss.extracted, loss.student].map(short);
        lines.push(row(&format!("{} loss, nats per token", loss.name), cells.each_ref().map(String::as_str), ""));
    }
    for task in &quality.tasks {
        lines.push(score(&task.name, task));
    }
    if let Some(mean) = &quality.mean {
        lines.push(score("mean score", mean));
    }
}

fn score(name: &str, task: &TaskResult) -> String {
    let [a, b, c] = [task.parent, task.extracted, task.student].map(|share| percent(share, 1));
    let kept = ratio(task.student, task.parent);
    let rest = if kept.is_finite() { format!("   {:>5} of the parent's", percent(kept, 0)) } else { String::new() };
    row(name, [&a, &b, &c], &rest)
}

fn repair(lines: &mut Vec<String>, report: &Report) {
    let repair = &report.repair;
    lines.push(String::new());
    if let Some(screening) = &report.screening {
        let rho: Vec<String> = repair.rho_after.iter().map(|(name, rho)| format!("{name} {rho:.4}")).collect();
        lines.extend(wrap(&plain(&format!("ρ of the architecture: {}", rho.join(" · ")))));
        let (all, tokens) = (screening.candidates.len(), count(screening.tokens));
        let trained = screening.candidates.iter().filter(|candidate| candidate.score.is_some()).count();
        lines.push(format!("uniform candidates: {all}, {trained} of them distilled, {tokens} tokens"));
        return;
    }
    let before: Vec<String> = repair.rho_before.iter().map(|(name, rho)| format!("{name} {rho:.4}")).collect();
    let before = if before.is_empty() { "not known".to_owned() } else { before.join(" · ") };
    lines.extend(wrap(&plain(&format!("ρ before the repair: {before}"))));
    let (changed, of) = (repair.gates_changed.len(), repair.gates);
    lines.push(format!("gates changed by the repair: {changed} of {of}"));
}

/// Nothing that a terminal would obey or show in another width: other characters become "?".
fn plain(text: &str) -> String {
    text.chars().map(|c| if (' '..='~').contains(&c) || "·→≤≥ρ".contains(c) { c } else { '?' }).collect()
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(2)).chain("..".chars()).collect()
}

fn pad(text: &str, width: usize) -> String {
    format!("{:<width$}", cut(&plain(text), width - 1))
}

/// Lines of at most [`WIDEST`] columns, broken at spaces where there are any.
fn wrap(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if !line.is_empty() && line.chars().count() + 1 + word.len() > WIDEST {
            lines.push(std::mem::take(&mut line));
        }
        while word.len() > WIDEST {
            lines.push(word.drain(..WIDEST).collect());
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word);
    }
    lines.push(line);
    lines
}
