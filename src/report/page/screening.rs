//! The uniform candidates of a baseline and their short distillations.

use serde::Serialize;

use super::curves::{chart, keys};
use super::panel::Panel;
use crate::report::ScreeningResult;
use crate::report::chart::{LineChart, Series, Smoothing};
use crate::report::number::{count, percent, short};

/// Curves in one picture: as many as there are styles of lines.
const CURVES: usize = 6;
/// Rows of the table; a long list of candidates that were not distilled is cut.
const ROWS: usize = 40;

#[derive(Serialize)]
pub(super) struct Screening {
    within: usize,
    maximal: usize,
    /// What the candidates use of the limits, after their number.
    reach: String,
    trained: usize,
    steps: u64,
    scored: u64,
    tokens: String,
    /// Whether some were not distilled.
    many: bool,
    resources: Vec<String>,
    panel: Panel,
    candidates: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    sizes: String,
    rho: Vec<String>,
    first_loss: String,
    score: String,
    chosen: bool,
}

/// "d 96, E 12": sizes by the letters of their axes.
fn sizes(result: &crate::report::ScreenedResult) -> String {
    let letters = [
        ("hidden_size", "d"),
        ("mamba.heads", "H"),
        ("experts", "E"),
        ("intermediate", "F"),
        ("shared_intermediate", "S"),
    ];
    let letter = |axis: &str| letters.iter().position(|(name, _)| *name == axis);
    let mut sizes: Vec<(&String, &usize)> = result.sizes.iter().collect();
    sizes.sort_by_key(|(axis, _)| letter(axis).unwrap_or(letters.len()));
    let tell =
        |(axis, size): (&String, &usize)| format!("{} {size}", letter(axis).map_or(axis.as_str(), |at| letters[at].1));
    sizes.into_iter().map(tell).collect::<Vec<_>>().join(", ")
}

pub(super) fn screening(screening: &ScreeningResult) -> Screening {
    let floor = percent(screening.floor, 0);
    let reach = match (screening.reach.as_str(), screening.candidates.is_empty()) {
        (_, true) => String::new(),
        ("each", _) => format!(", each with {floor} or more of every limit"),
        ("binding", _) => format!(", each with {floor} or more of one limit: none uses that of all"),
        _ => format!(": none uses {floor} of a limit"),
    };
    let trained = screening.candidates.iter().filter(|candidate| candidate.score.is_some()).count();
    let resources: Vec<String> = screening.candidates.first().map_or(Vec::new(), |c| c.rho.keys().cloned().collect());
    let row = |candidate: &crate::report::ScreenedResult| Row {
        sizes: sizes(candidate),
        rho: resources.iter().map(|name| percent(candidate.rho.get(name).copied().unwrap_or(f64::NAN), 1)).collect(),
        first_loss: short(candidate.first_loss),
        score: candidate.score.map_or("–".to_owned(), short),
        chosen: candidate.chosen,
    };
    Screening {
        within: screening.within,
        maximal: screening.maximal,
        reach,
        trained,
        steps: screening.steps,
        scored: screening.scored_steps,
        tokens: count(screening.tokens),
        many: trained < screening.candidates.len(),
        panel: losses(screening),
        candidates: screening.candidates.iter().take(ROWS.max(trained)).map(row).collect(),
        resources,
    }
}

fn losses(screening: &ScreeningResult) -> Panel {
    let drawn: Vec<_> = screening.candidates.iter().filter(|c| !c.losses.is_empty()).take(CURVES).collect();
    let longest = drawn.iter().map(|c| c.losses.len()).max().unwrap_or(0);
    let steps: Vec<u64> = (0..longest as u64).collect();
    let names: Vec<String> = drawn.iter().map(|c| sizes(c)).collect();
    let series = drawn.iter().zip(&names).enumerate();
    let series = series.map(|(style, (c, name))| Series { name, style, values: &c.losses }).collect();
    let base = chart(
        "KL from the parent to each candidate over the steps of its short distillation",
        "nats per token",
        &steps,
        series,
    );
    let chart = LineChart { smoothing: Smoothing::Median, log_from: 20.0, ..base };
    Panel::new("Distillation of the candidates", chart.draw()).keys(keys(names.iter().cloned()))
}
