//! A limit, and bars that should stay on one side of it.

use super::frame::{Frame, WIDTH};
use super::scale::Scale;
use super::svg::Svg;
use crate::report::number::precise;

const ROW: f64 = 26.0;

pub(crate) struct Bar<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: f64,
    /// "student", "parent", each with "predicted" for a hatched bar.
    pub(crate) class: &'a str,
    /// Between the quartiles, drawn around the bar's end.
    pub(crate) iqr: f64,
}

pub(crate) struct BudgetBars<'a> {
    pub(crate) label: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) limit: f64,
    pub(crate) at_least: bool,
    pub(crate) bars: &'a [Bar<'a>],
}

impl BudgetBars<'_> {
    pub(crate) fn draw(&self) -> String {
        let height = 22.0 + ROW * self.bars.len() as f64 + 38.0;
        let mut svg = Svg::new(WIDTH, height);
        let frame = Frame { left: 112.0, right: WIDTH - 46.0, ..Frame::new(height) };
        let values = self.bars.iter().map(|b| b.value).chain([0.0, self.limit]);
        let x = Scale::linear(values, frame.x(), 4);
        for (at, _) in x.ticks() {
            svg.line([at, frame.top, at, frame.bottom], "grid");
        }
        frame.below(&mut svg, (&x, self.unit));
        let zero = x.at(0.0).unwrap_or(frame.left);
        // Above the line of the limit.
        let mut values = Vec::new();
        for (i, bar) in self.bars.iter().enumerate() {
            let y = frame.top + 4.0 + ROW * i as f64;
            svg.text([frame.left - 8.0, y + 13.0], "name end", bar.name);
            let title = format!("{}: {} {}", bar.name, precise(bar.value), self.unit);
            let Some(end) = x.at(bar.value) else {
                values.push(([zero + 5.0, y + 13.0], precise(bar.value)));
                continue;
            };
            svg.rect(
                [zero.min(end), y, (end - zero).abs().max(0.75), ROW - 8.0],
                &format!("bar {}", bar.class),
                Some(&title),
            );
            let right = self.whisker(&mut svg, &x, bar, [end, y + (ROW - 8.0) / 2.0]);
            values.push(([right + 5.0, y + 13.0], precise(bar.value)));
        }
        if let Some(at) = x.at(self.limit) {
            svg.line([at, frame.top - 4.0, at, frame.bottom], "limit");
            let sign = if self.at_least { "≥" } else { "≤" };
            let anchor = if at > WIDTH - 80.0 { "limit-name end" } else { "limit-name mid" };
            let at = if at > WIDTH - 80.0 { WIDTH } else { at };
            svg.text([at, 12.0], anchor, &format!("limit {sign} {} {}", precise(self.limit), self.unit));
        }
        for (at, value) in &values {
            svg.text(*at, "value halo", value);
        }
        svg.finish(self.label)
    }

    /// Returns where the bar and its whisker end.
    fn whisker(&self, svg: &mut Svg, x: &Scale, bar: &Bar<'_>, [end, y]: [f64; 2]) -> f64 {
        let half = bar.iqr / 2.0;
        let (Some(low), Some(high)) = (x.at(bar.value - half), x.at(bar.value + half)) else { return end };
        if high - low < 1.0 {
            return end;
        }
        svg.line([low, y, high, y], "whisker");
        svg.line([low, y - 4.0, low, y + 4.0], "whisker");
        svg.line([high, y - 4.0, high, y + 4.0], "whisker");
        high
    }
}
