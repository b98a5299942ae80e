//! The architecture: a column for each of the parent's layers, and strips of their shares of the time.

use super::svg::{Svg, at, escape};
use crate::report::number::{percent, ratio, short};

const WIDTH: f64 = 78.0;
const ROW: f64 = 25.0;

/// A size of a layer in the student and in its parent.
pub(crate) struct Width {
    pub(crate) letter: String,
    pub(crate) student: String,
    pub(crate) parent: String,
    /// Student / parent.
    pub(crate) share: f64,
    /// Of time, not a width.
    pub(crate) time: bool,
}

pub(crate) struct LayerColumn {
    pub(crate) index: usize,
    pub(crate) parent: Kind,
    pub(crate) student: Kind,
    pub(crate) widths: Vec<Width>,
    /// Rows that the tallest column has: all columns are as tall.
    pub(crate) rows: usize,
    /// In words.
    pub(crate) label: String,
}

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Mamba,
    Moe,
    Attention,
    Mlp,
    Removed,
    Other,
}

impl Kind {
    pub(crate) fn of(name: &str) -> Kind {
        match name {
            "mamba" => Kind::Mamba,
            "moe" => Kind::Moe,
            "attention" => Kind::Attention,
            "mlp" => Kind::Mlp,
            "removed" => Kind::Removed,
            _ => Kind::Other,
        }
    }

    /// As in a layer pattern.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Kind::Mamba => "M",
            Kind::Moe => "E",
            Kind::Attention => "*",
            Kind::Mlp => "-",
            Kind::Removed => "",
            Kind::Other => "?",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Mamba => "Mamba",
            Kind::Moe => "MoE",
            Kind::Attention => "attention",
            Kind::Mlp => "MLP",
            Kind::Removed => "removed",
            Kind::Other => "unknown",
        }
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Kind::Mamba => "k-mamba",
            Kind::Moe => "k-moe",
            Kind::Attention => "k-attention",
            Kind::Mlp => "k-mlp",
            Kind::Removed => "k-removed",
            Kind::Other => "k-other",
        }
    }
}

impl LayerColumn {
    pub(crate) fn draw(&self) -> String {
        let top = 70.0;
        let mut svg = Svg::new(WIDTH, top + ROW * self.rows as f64);
        svg.text([WIDTH / 2.0, 9.0], "tick mid", &self.index.to_string());
        chip(&mut svg, 14.0, 20.0, self.parent, true);
        svg.line([WIDTH / 2.0, 35.0, WIDTH / 2.0, 40.0], "flow");
        chip(&mut svg, 41.0, 22.0, self.student, false);
        for (i, width) in self.widths.iter().enumerate() {
            // Times in one line, below all sizes.
            let y = top + ROW * if width.time { self.rows - 1 } else { i } as f64;
            let class = if width.time { "bar time" } else { self.parent.class() };
            svg.text([0.0, y + 9.0], "tick", &width.letter);
            svg.text([WIDTH, y + 9.0], "tick end", &format!("{}/{}", width.student, width.parent));
            svg.rect([0.0, y + 12.0, WIDTH, 4.0], "track", None);
            let share = if width.share.is_finite() { width.share.clamp(0.0, 1.0) } else { 0.0 };
            svg.rect([0.0, y + 12.0, WIDTH * share, 4.0], class, Some(&percent(width.share, 0)));
        }
        svg.finish(&self.label)
    }
}

/// A layer's box: the parent's pale, the student's full, a removed one dashed and empty.
fn chip(svg: &mut Svg, y: f64, height: f64, kind: Kind, pale: bool) {
    let class = if pale { format!("chip pale {}", kind.class()) } else { format!("chip {}", kind.class()) };
    svg.rect([0.75, y + 0.75, WIDTH - 1.5, height - 1.5], &class, Some(kind.name()));
    let letter = if kind == Kind::Removed { "removed" } else { kind.letter() };
    // The asterisk hangs high in its line.
    let drop = if kind == Kind::Attention { 9.5 } else { 4.5 };
    let text = if pale { format!("chip-pale-name mid {}", kind.class()) } else { "chip-name mid".to_owned() };
    let text = if kind == Kind::Removed { "chip-removed-name mid" } else { &text };
    let text = if kind == Kind::Attention { format!("{text} star") } else { text.to_owned() };
    svg.text([WIDTH / 2.0, y + height / 2.0 + drop], &text, letter);
}

/// A part of a request's time.
pub(crate) struct Part {
    pub(crate) kind: Kind,
    pub(crate) letter: &'static str,
    pub(crate) name: String,
    pub(crate) ms: f64,
}

/// Parts of a request one after the other, on a scale that ends at `longest` ms. As wide as its place.
pub(crate) fn strip(label: &str, parts: &[Part], longest: f64) -> String {
    let mut body = String::new();
    let total: f64 = parts.iter().map(|p| p.ms).filter(|ms| ms.is_finite() && *ms > 0.0).sum();
    let mut left = 0.0;
    for part in parts {
        let share = ratio(part.ms, longest) * 100.0;
        if !share.is_finite() || share <= 0.0 || left >= 100.0 {
            continue;
        }
        let share = share.min(100.0 - left);
        let title = format!("{}: {} ms, {}", part.name, short(part.ms), percent(ratio(part.ms, total), 1));
        body.push_str(&format!(
            "<rect class=\"part {}\" x=\"{}%\" y=\"0\" width=\"{}%\" height=\"26\"><title>{}</title></rect>",
            part.kind.class(),
            at(left),
            at(share),
            escape(&title)
        ));
        let needed = part.letter.len().min(2) as f64;
        if share >= 1.3 * needed {
            let y = if part.kind == Kind::Attention { 23 } else { 18 };
            let middle = at(left + share / 2.0);
            let class = match part.kind {
                Kind::Other => "rest-name mid",
                Kind::Attention => "chip-name star mid",
                _ => "chip-name mid",
            };
            // A telephone has no room for these.
            let tight = if share < 2.9 * needed { " tight" } else { "" };
            body.push_str(&format!("<text class=\"{class}{tight}\" x=\"{middle}%\" y=\"{y}\">{}</text>", part.letter));
        }
        left += share;
    }
    let label = escape(label);
    format!("<svg class=\"strip\" width=\"100%\" height=\"26\" role=\"img\" aria-label=\"{label}\">{body}</svg>")
}
