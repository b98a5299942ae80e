//! Groups of rows of dots on one scale: a picture that stands alone, with its own colours for light and dark.

use super::frame::Frame;
use super::scale::Scale;
use super::svg::Svg;
use crate::report::number::precise;

/// What a page shows at the least without scaling it down; text is of 11 pixels or more there.
const WIDTH: f64 = 400.0;
const ROW: f64 = 19.0;
const TITLE: f64 = 30.0;
const HEADER: f64 = 17.0;
const AXIS: f64 = 44.0;

const STYLE: &str = "\
svg{--page:#fdfdfc;--ink:#1a1c20;--soft:#575c65;--grid:#e8e8e2;--first:#1d5fc4;--other:#686e78}\
@media (prefers-color-scheme:dark){svg{--page:#131519;--ink:#e7e9ec;--soft:#a5acb7;--grid:#272b33;--first:#6aa5f7;--other:#a5acb7}}\
text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",Arial,sans-serif;fill:var(--ink)}\
.page{fill:var(--page)}.title{font-size:14px;font-weight:650}.head{font-weight:600}.tick,.axis,.note{font-size:11px;fill:var(--soft)}\
.mid{text-anchor:middle}.end{text-anchor:end}.value{font-weight:600}\
.grid{stroke:var(--grid)}.base{stroke:var(--soft)}.rule{stroke:var(--soft);stroke-dasharray:3 3}\
.dot{fill:var(--other);fill-opacity:.7}.dot.first{fill:var(--first)}.mean{stroke:var(--ink);stroke-width:2.5}";

/// One scale.
pub(crate) struct DotPanel {
    pub(crate) title: String,
    /// What the scale is of.
    pub(crate) axis: String,
    /// A line across all rows, with what it is.
    pub(crate) rule: Option<(f64, String)>,
    pub(crate) groups: Vec<DotGroup>,
}

pub(crate) struct DotGroup {
    pub(crate) name: String,
    pub(crate) note: String,
    pub(crate) rows: Vec<DotRow>,
}

/// Single values and their mean.
pub(crate) struct DotRow {
    pub(crate) name: String,
    /// Whether it has the colour of what all else is held against.
    pub(crate) first: bool,
    pub(crate) dots: Vec<f64>,
    pub(crate) mean: f64,
}

impl DotPanel {
    fn height(&self) -> f64 {
        let group = |group: &DotGroup| group.header() + ROW * group.rows.len() as f64;
        TITLE + self.groups.iter().map(group).sum::<f64>() + AXIS
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        svg.text([8.0, top + 17.0], "title", &self.title);
        let bottom = top + self.height() - AXIS;
        let frame = Frame { left: 124.0, top: top + TITLE, right: WIDTH - 60.0, bottom };
        let rows = || self.groups.iter().flat_map(|group| &group.rows);
        let rule = self.rule.iter().map(|(value, _)| *value);
        let values = rows().flat_map(|row| row.dots.iter().copied().chain([row.mean])).chain(rule);
        let scale = Scale::linear(values, frame.x(), 4);
        let mut y = frame.top;
        for group in &self.groups {
            svg.text([8.0, y + 12.0], "head", &group.name);
            if !group.note.is_empty() {
                svg.text([8.0, y + 12.0 + HEADER - 2.0], "note", &group.note);
            }
            y += group.header();
            let height = ROW * group.rows.len() as f64;
            for (at, _) in scale.ticks() {
                svg.line([at, y, at, y + height], "grid");
            }
            if let Some(at) = self.rule.as_ref().and_then(|(value, _)| scale.at(*value)) {
                svg.line([at, y, at, y + height], "rule");
            }
            for (i, row) in group.rows.iter().enumerate() {
                row.draw(svg, &scale, &frame, y + ROW * (i as f64 + 0.5));
            }
            y += height;
        }
        frame.below(svg, (&scale, &self.axis));
        if let Some((_, name)) = &self.rule {
            svg.text([8.0, bottom + 29.0], "note", &format!("┆ {name}"));
        }
    }
}

impl DotGroup {
    fn header(&self) -> f64 {
        if self.note.is_empty() { HEADER } else { 2.0 * HEADER }
    }
}

impl DotRow {
    fn draw(&self, svg: &mut Svg, scale: &Scale, frame: &Frame, y: f64) {
        svg.text([frame.left - 8.0, y + 4.0], "name end", &self.name);
        let class = if self.first { "dot first" } else { "dot" };
        for (i, value) in self.dots.iter().enumerate() {
            // Equal values lie beside each other.
            let aside = [0.0, -3.5, 3.5][i % 3];
            if let Some(at) = scale.at(*value) {
                svg.circle([at, y + aside], 3.6, class, Some(&format!("{}: {}", self.name, precise(*value))));
            }
        }
        if let Some(at) = scale.at(self.mean) {
            svg.line([at, y - 7.5, at, y + 7.5], "mean");
        }
        svg.text([WIDTH - 8.0, y + 4.0], "value end", &precise(self.mean));
    }
}

/// The panels one below another, as a file.
pub(crate) fn dots(label: &str, panels: &[DotPanel]) -> String {
    let height: f64 = panels.iter().map(DotPanel::height).sum();
    let mut svg = Svg::new(WIDTH, height + 8.0);
    svg.rect([0.0, 0.0, WIDTH, height + 8.0], "page", None);
    let mut top = 4.0;
    for panel in panels {
        panel.draw(&mut svg, top);
        top += panel.height();
    }
    svg.finish_alone(label, STYLE)
}
