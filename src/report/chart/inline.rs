//! Pictures as small as words, for table cells and legends.

use super::scale::Scale;
use super::svg::Svg;
use crate::report::number::written;

/// A share of a limit: a bar, and a line where the limit is.
pub(crate) fn limit_use(share: f64, met: bool) -> String {
    let mut svg = Svg::new(96.0, 14.0);
    let x = Scale::linear([0.0, 1.0], [0.0, 80.0], 2);
    svg.rect([0.0, 4.0, 96.0, 6.0], "track", None);
    if share.is_finite() {
        svg.rect([0.0, 4.0, (share * 80.0).clamp(0.0, 96.0), 6.0], if met { "bar student" } else { "bar over" }, None);
    }
    if let Some(at) = x.at(1.0) {
        svg.line([at, 0.0, at, 14.0], "limit");
    }
    svg.finish(&format!("{} of the limit", crate::report::number::percent(share, 1)))
}

/// Scores from 0 to 1 on one line: the parent's as a bar, the student's before and after recovery.
pub(crate) fn scores(parent: f64, extracted: f64, student: f64) -> String {
    let mut svg = Svg::new(150.0, 16.0);
    let x = Scale::linear([0.0, 1.0], [6.0, 144.0], 1);
    svg.line([6.0, 8.0, 144.0, 8.0], "grid");
    for end in [6.0, 144.0] {
        svg.line([end, 5.0, end, 11.0], "grid");
    }
    if let (Some(from), Some(to)) = (x.at(extracted), x.at(student)) {
        svg.line([from, 8.0, to, 8.0], "move");
    }
    if let Some(at) = x.at(parent) {
        svg.rect([at - 1.5, 1.0, 3.0, 14.0], "bar parent", Some("parent"));
    }
    if let Some(at) = x.at(extracted) {
        svg.circle([at, 8.0], 3.4, "point hollow", Some("as cut out"));
    }
    if let Some(at) = x.at(student) {
        svg.diamond([at, 8.0], 5.0, "point student", Some("recovered"));
    }
    svg.finish("parent, as cut out, recovered, on a line from 0 to 100 %")
}

/// ρ before and after the repair, with the band that the search aims at.
pub(crate) fn before_after(before: f64, after: f64, band: [f64; 2]) -> String {
    let mut svg = Svg::new(200.0, 18.0);
    let reach = [before, after].into_iter().filter(|v| v.is_finite()).fold(0.05, |r: f64, v| r.max((v - 1.0).abs()));
    let x = Scale::tight([1.0 - reach, 1.0 + reach], [7.0, 193.0], 2);
    svg.line([0.0, 9.0, 200.0, 9.0], "grid");
    if let (Some(low), Some(high)) = (x.at(band[0]), x.at(band[1])) {
        let within = format!("{} to {} %", written(100.0 * band[0]), written(100.0 * band[1]));
        svg.rect([low, 1.0, (high - low).max(2.0), 16.0], "band", Some(&within));
        svg.line([high, 0.0, high, 18.0], "limit");
    }
    if let (Some(from), Some(to)) = (x.at(before), x.at(after)) {
        svg.line([from, 9.0, to, 9.0], "move");
    }
    if let Some(at) = x.at(before) {
        svg.circle([at, 9.0], 3.8, "point hollow", Some("before"));
    }
    if let Some(at) = x.at(after) {
        svg.diamond([at, 9.0], 5.5, "point student", Some("after"));
    }
    svg.finish("before and after the repair, against the limit")
}

/// A bar for a share from 0 to 1.
pub(crate) fn share_bar(share: f64) -> String {
    let mut svg = Svg::new(120.0, 10.0);
    svg.rect([0.0, 2.0, 120.0, 6.0], "track", None);
    if share.is_finite() {
        svg.rect([0.0, 2.0, 120.0 * share.clamp(0.0, 1.0), 6.0], "bar time", None);
    }
    svg.finish(&crate::report::number::percent(share, 1))
}

/// A legend's sample of a line.
pub(crate) fn line_key(style: usize) -> String {
    key(|svg| svg.line([1.0, 6.0, 25.0, 6.0], &format!("line s{}", style % 6)))
}

/// A legend's sample of an area.
pub(crate) fn area_key(class: &str) -> String {
    key(|svg| svg.rect([3.0, 1.0, 20.0, 10.0], class, None))
}

/// A legend's sample of a point: "parent", "student", "other", "hollow".
pub(crate) fn point_key(class: &str) -> String {
    key(|svg| match class {
        "parent" => svg.rect([8.5, 1.5, 9.0, 9.0], "point parent", None),
        "student" => svg.diamond([13.0, 6.0], 5.5, "point student", None),
        class => svg.circle([13.0, 6.0], 3.4, &format!("point {class}"), None),
    })
}

/// Its name stands beside it, so readers by ear need not hear it.
fn key(draw: impl FnOnce(&mut Svg)) -> String {
    let mut svg = Svg::new(26.0, 12.0);
    draw(&mut svg);
    svg.finish("").replacen("role=\"img\" aria-label=\"\"", "aria-hidden=\"true\" class=\"key\"", 1)
}
