//! A study as tables, for the terminal and for a Markdown page.

use super::limits::LimitLine;
use super::outcome::{ExpertTokens, SearchOutcome};
use super::summary::{ArmResult, ShareResult, Spread, StudyResult};
use super::unit::Arm;
use crate::baseline::Reach;
use crate::supernet::Axis;

const RESULTS: [&str; 9] = [
    "share",
    "arm",
    "held-out KL",
    "KD loss",
    "task mean",
    "use of the limits",
    "search wins",
    "search tokens",
    "all tokens",
];
const SEARCHES: [&str; 12] = [
    "share",
    "search",
    "steps",
    "converged",
    "supernet KL",
    "largest ρ before repair",
    "gates changed",
    "KD gradient norm",
    "of experts",
    "tokens to removable experts",
    "at the end",
    "busiest expert",
];

/// For the terminal: columns aligned.
pub fn text(result: &StudyResult) -> String {
    let mut parts = notes(result);
    parts.push(aligned(&RESULTS, &results(result)));
    parts.extend(Some(searches(result)).filter(|rows| !rows.is_empty()).map(|rows| aligned(&SEARCHES, &rows)));
    parts.join("\n\n")
}

/// The same in Markdown.
pub fn markdown(result: &StudyResult) -> String {
    let mut parts: Vec<String> = notes(result).iter().map(|note| note.replace('\n', "\n\n")).collect();
    parts.push(piped(&RESULTS, &results(result)));
    parts.extend(Some(searches(result)).filter(|rows| !rows.is_empty()).map(|rows| piped(&SEARCHES, &rows)));
    parts.join("\n\n") + "\n"
}

/// What the tables mean, and each share's limits.
fn notes(result: &StudyResult) -> Vec<String> {
    let seeds = result.shares.iter().flat_map(|share| &share.arms).map(|arm| arm.seeds.len()).max().unwrap_or(0);
    let mut first = format!(
        "KL from the parent in nats per token after recovery; mean ± standard deviation over {seeds} seed{}. Where an arm has \
         several candidates, the one with the least held-out KL counts. KD loss is over the last 25 steps of recovery, held-out \
         KL on a set that nothing trained on. Use of the limits is predicted. Tokens are of one seed; search tokens are all but \
         the recovery of the architecture that counts.",
        if seeds == 1 { "" } else { "s" }
    );
    if let Some(mean) = result.parent_task_mean {
        first += &format!(" The parent's task mean is {:.1} %.", 100.0 * mean);
    }
    let shares = result.shares.iter().map(note);
    std::iter::once(first).chain(shares).chain(expert_tokens_note(result)).collect()
}

/// What the columns of tokens mean, where a search has them.
fn expert_tokens_note(result: &StudyResult) -> Option<String> {
    let arms = result.shares.iter().flat_map(|share| &share.arms);
    let even =
        arms.filter_map(outcomes).flatten().find_map(|outcome| Some(outcome.expert_tokens.as_ref()?.removable_if_even));
    even.map(|even| {
        format!(
            "Tokens to removable experts: of all choices that tokens make of experts in a search's supernet, how many are of experts \
             that not every candidate keeps, as means over steps and layers ({:.1} % if all experts were chosen equally often), and \
             over the last 25 steps. Busiest expert: its tokens as a multiple of the mean expert's.",
            100.0 * even
        )
    })
}

fn note(share: &ShareResult) -> String {
    let limit = |line: &LimitLine| format!("{} (target {:.2})", limit_text(line), line.target);
    let limits: Vec<String> = share.limits.iter().map(limit).collect();
    let mut note = format!("Share {}: {}", share.share, limits.join(", "));
    if let Some(uniform) = &share.uniform {
        let floor = 100.0 * uniform.floor;
        let reach = match uniform.reach {
            _ if uniform.listed.is_empty() => String::new(),
            Reach::Each => format!(", {floor:.0} % of each target used"),
            Reach::Binding => format!(", {floor:.0} % of one target used, as none uses that of each"),
            Reach::Neither => format!(", none of which uses {floor:.0} % of a target"),
        };
        note += &format!(
            "\nUniform: {} architectures within the targets, {} of them maximal; {} candidates{reach}",
            uniform.within,
            uniform.maximal,
            uniform.listed.len()
        );
        if let Some(missed) = &uniform.missed {
            note += &format!(". None is within the targets: {missed}");
        }
    }
    note
}

/// "memory ≤ 5.00 MiB".
pub fn limit_text(line: &LimitLine) -> String {
    let sign = if line.resource == "throughput" { "≥" } else { "≤" };
    format!("{} {sign} {:.2} {}", line.resource, line.limit, line.unit)
}

/// "search", "random, best of 8".
pub fn arm_name(arm: &ArmResult) -> String {
    let candidates = arm.seeds.iter().map(|seed| seed.candidates.len()).max().unwrap_or(0);
    let name = arm.arm.name();
    if candidates > 1 { format!("{name}, best of {candidates}") } else { name.into() }
}

fn results(result: &StudyResult) -> Vec<Vec<String>> {
    let rows = |share: &ShareResult| share.arms.iter().map(|arm| row(share, arm)).collect::<Vec<_>>();
    result.shares.iter().flat_map(rows).collect()
}

fn row(share: &ShareResult, arm: &ArmResult) -> Vec<String> {
    let budget: Vec<String> =
        arm.budget.iter().map(|(name, used)| format!("{name} {:.1} %", 100.0 * used.mean)).collect();
    vec![
        share.share.clone(),
        arm_name(arm),
        spread(&arm.held_out, 1.0, 4),
        spread(&arm.recovery, 1.0, 4),
        arm.task_mean.map_or("-".into(), |mean| format!("{} %", spread(&mean, 100.0, 1))),
        budget.join(", "),
        arm.search_wins.map_or("-".into(), |wins| format!("{wins} of {}", arm.seeds.len())),
        format!("{:.2} M", arm.search_tokens.mean / 1e6),
        format!("{:.2} M", arm.tokens.mean / 1e6),
    ]
}

fn searches(result: &StudyResult) -> Vec<Vec<String>> {
    let arms = result.shares.iter().flat_map(|share| share.arms.iter().map(move |arm| (share, arm)));
    arms.filter_map(|(share, arm)| search_row(share, arm.arm, &outcomes(arm)?)).collect()
}

/// One per seed; `None` for an arm that does not search.
fn outcomes(arm: &ArmResult) -> Option<Vec<&SearchOutcome>> {
    arm.seeds.iter().map(|seed| seed.best().search.as_ref()).collect()
}

fn search_row(share: &ShareResult, arm: Arm, outcomes: &[&SearchOutcome]) -> Option<Vec<String>> {
    let of = |value: &dyn Fn(&SearchOutcome) -> f64| {
        Spread::of(&outcomes.iter().map(|outcome| value(outcome)).collect::<Vec<f64>>())
    };
    let largest = |outcome: &SearchOutcome| outcome.rho_before.values().copied().fold(0.0, f64::max);
    let converged = outcomes.iter().filter(|outcome| outcome.converged).count();
    // The axis on which the ways of masking experts differ.
    let experts = |outcome: &SearchOutcome| outcome.distillation_gradient_norms.get(Axis::Experts.name()).copied();
    let experts: Option<Vec<f64>> = outcomes.iter().map(|outcome| experts(outcome)).collect();
    let tokens = |value: &dyn Fn(&ExpertTokens) -> f64| {
        let values = outcomes.iter().map(|outcome| outcome.expert_tokens.as_ref().map(value));
        values.collect::<Option<Vec<f64>>>().and_then(|values| Spread::of(&values))
    };
    Some(vec![
        share.share.clone(),
        arm.name().into(),
        spread(&of(&|outcome| outcome.steps as f64)?, 1.0, 0),
        format!("{converged} of {}", outcomes.len()),
        spread(&of(&|outcome| outcome.distillation)?, 1.0, 4),
        spread(&of(&largest)?, 1.0, 3),
        spread(&of(&|outcome| outcome.gates_changed.len() as f64)?, 1.0, 1),
        scientific(&of(&|outcome| outcome.distillation_gradient_norm)?),
        experts.and_then(|norms| Spread::of(&norms)).map_or("-".into(), |norm| scientific(&norm)),
        tokens(&|tokens| tokens.removable).map_or("-".into(), |share| format!("{} %", spread(&share, 100.0, 1))),
        tokens(&|tokens| tokens.removable_at_end).map_or("-".into(), |share| format!("{} %", spread(&share, 100.0, 1))),
        tokens(&|tokens| tokens.busiest).map_or("-".into(), |times| format!("{} ×", spread(&times, 1.0, 2))),
    ])
}

fn scientific(spread: &Spread) -> String {
    let mean = format!("{:.2e}", spread.mean);
    spread.deviation.map_or(mean.clone(), |deviation| format!("{mean} ± {deviation:.1e}"))
}

fn spread(spread: &Spread, scale: f64, digits: usize) -> String {
    let mean = format!("{:.digits$}", scale * spread.mean);
    spread.deviation.map_or(mean.clone(), |deviation| format!("{mean} ± {:.digits$}", scale * deviation))
}

fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    let lines = || std::iter::once(&header).chain(rows);
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cell = |(i, (cell, width)): (usize, (&String, &usize))| {
            if i < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = cells.iter().zip(&widths).enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines().map(line).collect::<Vec<_>>().join("\n")
}

fn piped(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let rule = |i: usize| if i < 2 { "---" } else { "---:" }.to_owned();
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    let rule: Vec<String> = (0..header.len()).map(rule).collect();
    let lines = [line(&header), line(&rule)].into_iter().chain(rows.iter().map(|row| line(row)));
    lines.collect::<Vec<_>>().join("\n")
}
