//! A gate over steps: the probabilities of its candidates, stacked.

use super::frame::{Frame, WIDTH};
use super::scale::Scale;
use super::svg::{Svg, polyline};
use crate::report::number::percent;

/// Columns of a stack, at most.
const COLUMNS: usize = 90;
const SLICES: usize = 45;

pub(crate) struct Stack<'a> {
    pub(crate) label: &'a str,
    pub(crate) steps: &'a [u64],
    pub(crate) candidates: &'a [String],
    /// `[steps][candidates]`.
    pub(crate) probabilities: &'a [Vec<f64>],
    /// Index of the size in the student, drawn in its colour; the others are grey, darker the larger.
    pub(crate) chosen: Option<usize>,
}

impl Stack<'_> {
    /// A panel with axes; candidates are named at both ends of their bands.
    pub(crate) fn panel(&self) -> String {
        let height = 214.0;
        let mut svg = Svg::new(WIDTH, height);
        let frame = Frame { right: WIDTH - 78.0, ..Frame::new(height) };
        let x = Scale::tight(self.steps.iter().map(|s| *s as f64), frame.x(), 5);
        let columns = self.columns(COLUMNS);
        self.bands(&mut svg, &frame, &x, &columns);
        if columns.is_empty() {
            svg.text([(frame.left + frame.right) / 2.0, (frame.top + frame.bottom) / 2.0], "empty mid", "no steps");
        }
        frame.below(&mut svg, (&x, "step"));
        svg.text([0.0, 11.0], "axis", "size");
        svg.text([frame.right + 6.0, 11.0], "axis", "at the end");
        for (column, left) in [(columns.first(), true), (columns.last(), false)] {
            let Some((_, edges)) = column else { continue };
            for (c, name) in self.candidates.iter().enumerate() {
                let (low, high) = (edges[c], edges[c + 1]);
                if high - low < 0.062 {
                    continue;
                }
                let y = frame.bottom - (low + high) / 2.0 * (frame.bottom - frame.top) + 3.5;
                let bold = if self.chosen == Some(c) { " chosen-name" } else { "" };
                if left {
                    svg.text([frame.left - 6.0, y], &format!("tick end{bold}"), name);
                } else {
                    let text = format!("{name} · {}", percent(high - low, 0));
                    svg.text([frame.right + 6.0, y], &format!("tick{bold}"), &text);
                }
            }
        }
        self.slices(&mut svg, &frame, &x);
        svg.finish(self.label)
    }

    /// A small picture without axes, as wide as its place.
    pub(crate) fn small(&self) -> String {
        let mut svg = Svg::new(104.0, 56.0);
        let frame = Frame { left: 0.0, top: 1.0, right: 104.0, bottom: 55.0 };
        let x = Scale::tight(self.steps.iter().map(|s| *s as f64), frame.x(), 2);
        svg.rect([0.0, 1.0, 104.0, 54.0], "cell", Some(self.label));
        self.bands(&mut svg, &frame, &x, &self.columns(40));
        svg.finish_stretched(self.label)
    }

    /// Some of the steps, the first and the last among them, and where the bands' edges lie then: 0, …, 1. Steps with a probability
    /// that is none are left out.
    fn columns(&self, most: usize) -> Vec<(u64, Vec<f64>)> {
        let rows: Vec<(u64, &Vec<f64>)> = self.steps.iter().copied().zip(self.probabilities).collect();
        let every = rows.len().div_ceil(most).max(1);
        let last = rows.len().saturating_sub(1);
        let picked =
            rows.iter().enumerate().filter(|(i, _)| *i == 0 || (last - i).is_multiple_of(every)).map(|(_, row)| row);
        picked.filter_map(|(step, row)| Some((*step, edges(row, self.candidates.len())?))).collect()
    }

    fn bands(&self, svg: &mut Svg, frame: &Frame, x: &Scale, columns: &[(u64, Vec<f64>)]) {
        let height = frame.bottom - frame.top;
        let last = self.candidates.len().saturating_sub(1).max(1) as f64;
        for (c, name) in self.candidates.iter().enumerate() {
            let edge = |e: usize| {
                columns
                    .iter()
                    .filter_map(move |(step, edges)| Some([x.at(*step as f64)?, frame.bottom - edges[e] * height]))
            };
            if columns.iter().all(|(_, edges)| edges[c + 1] - edges[c] < 1e-4) {
                continue;
            }
            let mut low: Vec<[f64; 2]> = edge(c).collect();
            let mut high: Vec<[f64; 2]> = edge(c + 1).collect();
            // A single step is a bar.
            if let ([a], [b]) = (low.as_slice(), high.as_slice()) {
                (low, high) =
                    (vec![[frame.left, a[1]], [frame.right, a[1]]], vec![[frame.left, b[1]], [frame.right, b[1]]]);
            }
            let outline = low.iter().copied().chain(high.iter().copied().rev()).map(Some);
            let d = polyline(outline) + "z";
            if self.chosen == Some(c) {
                svg.path(&d, "area chosen", Some(name));
            } else {
                svg.shade(&d, "area", 0.16 + 0.5 * c as f64 / last, Some(name));
            }
            if c > 0 {
                svg.path(&polyline(low.into_iter().map(Some)), "seam", None);
            }
        }
    }

    fn slices(&self, svg: &mut Svg, frame: &Frame, x: &Scale) {
        let columns = self.columns(SLICES);
        let width = (frame.right - frame.left) / columns.len().max(1) as f64;
        for (step, edges) in &columns {
            let Some(at) = x.at(*step as f64) else { continue };
            let mut title = format!("step {step}");
            for (c, name) in self.candidates.iter().enumerate().rev() {
                title.push_str(&format!("\n{name}: {}", percent(edges[c + 1] - edges[c], 1)));
            }
            let left = (at - width / 2.0).max(frame.left);
            let right = (at + width / 2.0).min(frame.right);
            svg.rect([left, frame.top, right - left, frame.bottom - frame.top], "hit", Some(&title));
        }
    }
}

/// Running sums of probabilities as shares of their sum.
fn edges(row: &[f64], candidates: usize) -> Option<Vec<f64>> {
    let values: Vec<f64> = (0..candidates).map(|c| row.get(c).copied().unwrap_or(0.0)).collect();
    if values.iter().any(|v| !(0.0..=1e6).contains(v)) {
        return None;
    }
    let total: f64 = values.iter().sum();
    let mut edges = vec![0.0];
    let mut sum = 0.0;
    for value in values {
        sum += value;
        edges.push(if total > 0.0 { sum / total } else { 0.0 });
    }
    (total > 0.0).then_some(edges)
}
