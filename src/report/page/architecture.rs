//! The student beside its parent, layer by layer.

use serde::Serialize;

use super::panel::Key;
use crate::report::chart::{Kind, LayerColumn, Part, Width, area_key, strip};
use crate::report::number::{percent, ratio, short};
use crate::report::{LayerResult, ModelResult, Report};

#[derive(Serialize)]
pub(super) struct Architecture {
    keys: Vec<Key>,
    hidden: [usize; 2],
    hidden_share: String,
    parent_pattern: String,
    student_pattern: String,
    columns: Vec<String>,
    strips: Vec<Strip>,
    longest: String,
}

#[derive(Serialize)]
struct Strip {
    name: &'static str,
    total: String,
    svg: String,
}

pub(super) fn architecture(report: &Report) -> Architecture {
    let (parent, student) = (&report.parent, &report.student);
    let count = parent.layers.len().max(student.layers.len());
    let mut columns: Vec<LayerColumn> =
        (0..count).map(|i| column(i, parent.layers.get(i), student.layers.get(i))).collect();
    let rows = columns.iter().map(|c| c.widths.len()).max().unwrap_or(0);
    columns.iter_mut().for_each(|c| c.rows = rows);
    let mut kinds: Vec<Kind> = columns.iter().flat_map(|c| [c.parent, c.student]).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let keys = kinds.into_iter().map(|kind| Key {
        swatch: area_key(&format!("chip {}", kind.class())),
        name: format!("{} {}", kind.letter(), kind.name()).trim().to_owned(),
    });
    let (parts, longest) = parts(report);
    let [parent_strip, student_strip] = parts;
    let strips = [("parent", parent_strip), ("student", student_strip)].map(|(name, parts)| {
        let total: f64 = parts.iter().map(|p| p.ms).filter(|ms| ms.is_finite()).sum();
        let label = format!("Shares of the layers in the {name}'s predicted request time, {} ms in all", short(total));
        Strip { name, total: short(total), svg: strip(&label, &parts, longest) }
    });
    let hidden = [parent.hidden_size, student.hidden_size];
    Architecture {
        keys: keys.collect(),
        hidden,
        hidden_share: percent(ratio(hidden[1] as f64, hidden[0] as f64), 0),
        parent_pattern: pattern(parent),
        student_pattern: pattern(student),
        columns: columns.iter().map(LayerColumn::draw).collect(),
        strips: if count == 0 { Vec::new() } else { strips.into() },
        longest: short(longest),
    }
}

fn pattern(model: &ModelResult) -> String {
    let letters = model.layers.iter().map(|l| Kind::of(&l.kind));
    letters.map(|kind| if kind == Kind::Removed { "·" } else { kind.letter() }).collect()
}

fn column(index: usize, parent: Option<&LayerResult>, student: Option<&LayerResult>) -> LayerColumn {
    let kind = |layer: Option<&LayerResult>| layer.map_or(Kind::Other, |l| Kind::of(&l.kind));
    let size = |layer: Option<&LayerResult>, letter: &str| layer.and_then(|l| l.sizes.get(letter).copied());
    let mut letters: Vec<&String> = parent.into_iter().chain(student).flat_map(|l| l.sizes.keys()).collect();
    letters.sort_unstable();
    letters.dedup();
    let show = |size: Option<usize>| size.map_or("–".to_owned(), |s| s.to_string());
    let mut widths: Vec<Width> = letters
        .into_iter()
        .map(|letter| {
            let (p, s) = (size(parent, letter), size(student, letter));
            let share = ratio(s.unwrap_or(0) as f64, p.unwrap_or(0) as f64);
            Width { letter: letter.clone(), student: show(s), parent: show(p), share, time: false }
        })
        .collect();
    let ms = |layer: Option<&LayerResult>| layer.map_or(f64::NAN, |l| l.request_ms);
    let (p, s) = (ms(parent), ms(student));
    let label = label(index, [kind(parent), kind(student)], &widths, [p, s]);
    widths.push(Width { letter: "ms".to_owned(), student: short(s), parent: short(p), share: ratio(s, p), time: true });
    LayerColumn { index, parent: kind(parent), student: kind(student), widths, rows: 0, label }
}

/// "Layer 3: MoE becomes MLP; E – of 16, F 0 of 64, S 96 of 128; 0.9 of 2.1 ms".
fn label(index: usize, [parent, student]: [Kind; 2], widths: &[Width], [p, s]: [f64; 2]) -> String {
    let sizes: Vec<String> = widths.iter().map(|w| format!("{} {} of {}", w.letter, w.student, w.parent)).collect();
    let change = match (parent, student) {
        (a, Kind::Removed) => format!("{} removed", a.name()),
        (a, b) if a == b => format!("{} kept", a.name()),
        (a, b) => format!("{} becomes {}", a.name(), b.name()),
    };
    format!("Layer {index}: {change}; {}; {} of {} ms", sizes.join(", "), short(s), short(p))
}

/// Both models' layers and the rest of the predicted request, and the longer of the two requests.
fn parts(report: &Report) -> ([Vec<Part>; 2], f64) {
    let of = |model: &ModelResult, name: &str| {
        let layers = model.layers.iter().enumerate().map(|(i, layer)| {
            let kind = Kind::of(&layer.kind);
            Part { kind, letter: kind.letter(), name: format!("layer {i}, {}", kind.name()), ms: layer.request_ms }
        });
        let mut parts: Vec<Part> = layers.collect();
        let sum: f64 = parts.iter().map(|p| p.ms).sum();
        // Embedding, last norm and language model head: what the whole prediction has beside the layers.
        let limit = report.limits.iter().find(|limit| limit.resource == "latency");
        let whole = limit.map(|l| if name == "parent" { l.parent_predicted } else { l.student_predicted });
        if let Some(rest) = whole.map(|w| w - sum).filter(|rest| *rest > 0.0) {
            parts.push(Part { kind: Kind::Other, letter: "rest", name: "outside the layers".to_owned(), ms: rest });
        }
        parts
    };
    let parts = [of(&report.parent, "parent"), of(&report.student, "student")];
    let total = |parts: &[Part]| parts.iter().map(|p| p.ms).filter(|ms| ms.is_finite() && *ms > 0.0).sum::<f64>();
    let longest = total(&parts[0]).max(total(&parts[1]));
    (parts, longest)
}
