//! Predicted against measured: on the diagonal, and as relative errors.

use super::frame::{Frame, WIDTH};
use super::scale::Scale;
use super::svg::Svg;
use crate::report::number::{precise, ratio, signed_percent};

const HEIGHT: f64 = 300.0;
const ROW: f64 = 44.0;

pub(crate) struct Point<'a> {
    pub(crate) name: &'a str,
    pub(crate) predicted: f64,
    pub(crate) measured: f64,
}

impl Point<'_> {
    fn error(&self) -> f64 {
        ratio(self.predicted - self.measured, self.measured)
    }

    fn title(&self, unit: &str) -> String {
        let (p, m) = (precise(self.predicted), precise(self.measured));
        format!("{}: predicted {p}, measured {m} {unit} ({})", self.name, signed_percent(self.error()))
    }

    fn draw(&self, svg: &mut Svg, at: [f64; 2], unit: &str) {
        let title = Some(self.title(unit));
        match self.name {
            "parent" => svg.rect([at[0] - 4.5, at[1] - 4.5, 9.0, 9.0], "point parent", title.as_deref()),
            "student" => svg.diamond(at, 6.5, "point student", title.as_deref()),
            _ => svg.circle(at, 3.2, "point other", title.as_deref()),
        }
    }
}

/// In drawing order: the two models last, on top.
fn ordered<'p, 'a>(points: &'p [Point<'a>]) -> Vec<&'p Point<'a>> {
    let mut points: Vec<&Point<'_>> = points.iter().collect();
    points.sort_by_key(|p| ["parent", "student"].iter().position(|n| *n == p.name).map_or(0, |i| i + 1));
    points
}

/// Both axes have one scale, so that the diagonal is where a prediction is right.
pub(crate) fn diagonal(label: &str, unit: &str, points: &[Point<'_>]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    let frame = Frame::new(HEIGHT);
    let values = || points.iter().flat_map(|p| [p.predicted, p.measured]);
    let x = Scale::linear(values(), frame.x(), 5);
    let y = Scale::linear(values(), frame.y(), 5);
    for (at, _) in x.ticks() {
        svg.line([at, frame.top, at, frame.bottom], "grid");
    }
    frame.axes(&mut svg, (&x, &format!("measured, {unit}")), (&y, &format!("predicted, {unit}")));
    svg.line([frame.left, frame.bottom, frame.right, frame.top], "diagonal");
    let mut drawn = 0;
    for point in ordered(points) {
        let (Some(at_x), Some(at_y)) = (x.at(point.measured), y.at(point.predicted)) else { continue };
        point.draw(&mut svg, [at_x, at_y], unit);
        drawn += 1;
        if ["parent", "student"].contains(&point.name) {
            let right = at_x < frame.right - 70.0;
            let (dx, anchor) = if right { (10.0, "") } else { (-10.0, " end") };
            svg.text([at_x + dx, at_y + if right { 13.0 } else { -7.0 }], &format!("name halo{anchor}"), point.name);
        }
    }
    if drawn == 0 {
        svg.text([(frame.left + frame.right) / 2.0, (frame.top + frame.bottom) / 2.0], "empty mid", "no points");
    }
    svg.finish(label)
}

/// One row of a chart of errors.
pub(crate) struct ErrorRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) points: &'a [Point<'a>],
    /// Shaded on both sides of 0.
    pub(crate) margin: Option<f64>,
}

/// (predicted − measured) / measured of each point, a row for each resource.
pub(crate) fn errors(label: &str, rows: &[ErrorRow<'_>]) -> String {
    let height = 22.0 + ROW * rows.len() as f64 + 32.0;
    let mut svg = Svg::new(WIDTH, height);
    let frame = Frame { left: 62.0, ..Frame::new(height) };
    let margins = rows.iter().filter_map(|r| r.margin);
    let all = rows.iter().flat_map(|r| r.points.iter().map(|p| p.error())).chain(margins).filter(|v| v.is_finite());
    let reach = all.fold(0.0, |reach: f64, v| reach.max(v.abs())) * 100.0;
    let x = Scale::linear([-reach, 0.0, reach], frame.x(), 4);
    for (at, _) in x.ticks() {
        svg.line([at, frame.top, at, frame.bottom], "grid");
    }
    for (i, row) in rows.iter().enumerate() {
        let y = frame.top + ROW * (i as f64 + 0.5);
        svg.text([frame.left - 8.0, y + 4.0], "name end", row.name);
        let ends = row.margin.and_then(|m| x.at(-m * 100.0).zip(x.at(m * 100.0)));
        if let Some((low, high)) = ends {
            svg.rect([low, y - 15.0, high - low, 30.0], "margin", None);
        }
        // Points near one value lie beside each other.
        for (j, point) in ordered(row.points).into_iter().enumerate() {
            let Some(at) = x.at(point.error() * 100.0) else { continue };
            let aside = if ["parent", "student"].contains(&point.name) { 0.0 } else { (j % 5) as f64 * 4.5 - 9.0 };
            point.draw(&mut svg, [at, y + aside], row.unit);
        }
    }
    if let Some(zero) = x.at(0.0) {
        svg.line([zero, frame.top, zero, frame.bottom], "base");
    }
    frame.below(&mut svg, (&x, "error of the prediction, %"));
    svg.finish(label)
}
