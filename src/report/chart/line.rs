//! Lines over steps.

use super::frame::{Frame, WIDTH};
use super::scale::Scale;
use super::svg::{Svg, polyline};
use crate::report::number::short;

const HEIGHT: f64 = 214.0;
/// Steps on each side that a smoothed value takes in.
const REACH: usize = 5;
/// Slices of the plot that tell their values under the pointer.
const SLICES: usize = 60;
/// Styles of lines that the style sheet has.
const STYLES: usize = 6;

pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    /// Its colour and dashes: `s0` …, see the style sheet.
    pub(crate) style: usize,
    pub(crate) values: &'a [f64],
}

/// Series over shared steps; values that are not finite leave gaps.
pub(crate) struct LineChart<'a> {
    /// In words, for who cannot see it.
    pub(crate) label: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) steps: &'a [u64],
    pub(crate) series: Vec<Series<'a>>,
    pub(crate) smoothing: Smoothing,
    /// A logarithmic axis where positive values spread over this factor; infinite for never.
    pub(crate) log_from: f64,
    /// A shaded range of values.
    pub(crate) band: Option<[f64; 2]>,
    /// Lines across, with what they are.
    pub(crate) rules: Vec<(f64, &'a str)>,
    /// Single values at the first or the last step, with what they are.
    pub(crate) marks: Vec<(Mark, f64, &'a str)>,
    pub(crate) zero_based: bool,
}

/// What is drawn of a noisy series. Short ones are drawn as they are.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Smoothing {
    None,
    /// The values faint, their running mean strong.
    Mean,
    /// Their running median alone: for many series in one picture.
    Median,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    First,
    Last,
}

impl LineChart<'_> {
    pub(crate) fn draw(&self) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT);
        let frame = Frame::new(HEIGHT);
        let x = Scale::tight(self.steps.iter().map(|s| *s as f64), frame.x(), 5);
        let y = self.y_scale(&frame);
        if let Some(ends) = self.band.map(|band| band.map(|v| y.at(v).unwrap_or(frame.bottom))) {
            let height = (ends[0] - ends[1]).max(2.0);
            svg.rect([frame.left, ends[1], frame.right - frame.left, height], "band", None);
        }
        frame.axes(&mut svg, (&x, "step"), (&y, self.unit));
        for (value, name) in &self.rules {
            if let Some(at) = y.at(*value) {
                svg.line([frame.left, at, frame.right, at], "rule");
                let above = if at < frame.top + 12.0 { at + 11.0 } else { at - 4.0 };
                svg.text([frame.left + 4.0, above], "note halo", name);
            }
        }
        for series in &self.series {
            self.draw_series(&mut svg, &x, &y, series);
        }
        self.draw_marks(&mut svg, &frame, &y);
        if self.series.iter().all(|s| !s.values.iter().zip(self.steps).any(|(v, _)| v.is_finite())) {
            svg.text([(frame.left + frame.right) / 2.0, (frame.top + frame.bottom) / 2.0], "empty mid", "no values");
        }
        self.draw_slices(&mut svg, &frame, &x);
        svg.finish(self.label)
    }

    /// How this one is smoothed: not at all where little is left to smooth.
    fn smoothing(&self) -> Smoothing {
        if self.steps.len() < 8 * REACH { Smoothing::None } else { self.smoothing }
    }

    fn y_scale(&self, frame: &Frame) -> Scale {
        let series = self.series.iter().flat_map(|s| match self.smoothing() {
            Smoothing::Median => running(s.values, median),
            _ => s.values.iter().zip(self.steps).map(|(v, _)| *v).collect(),
        });
        let rules = self.rules.iter().map(|r| r.0).chain(self.marks.iter().map(|m| m.1));
        let mut values: Vec<f64> = series.chain(rules).chain(self.band.into_iter().flatten()).collect();
        let log = Scale::log_where_it_helps(&values, frame.y(), self.log_from);
        if log.is_log() {
            return log;
        }
        values.extend(self.zero_based.then_some(0.0));
        Scale::linear(values, frame.y(), 5)
    }

    fn draw_series(&self, svg: &mut Svg, x: &Scale, y: &Scale, series: &Series<'_>) {
        let path = |values: &[f64]| {
            let points = values.iter().zip(self.steps);
            let places: Vec<_> = points.map(|(v, step)| Some([x.at(*step as f64)?, y.at(*v)?])).collect();
            polyline(thin(&places))
        };
        let class = format!("line s{}", series.style % STYLES);
        let title = self.ends(series);
        let strong = match self.smoothing() {
            Smoothing::None => path(series.values),
            Smoothing::Median => path(&running(series.values, median)),
            Smoothing::Mean => {
                svg.path(&path(series.values), &format!("{class} faint"), None);
                path(&running(series.values, |window| window.iter().sum::<f64>() / window.len() as f64))
            }
        };
        svg.path(&strong, &class, Some(&title));
    }

    fn ends(&self, series: &Series<'_>) -> String {
        let mut finite = series.values.iter().zip(self.steps).filter(|(v, _)| v.is_finite());
        let Some((first, start)) = finite.next() else { return series.name.to_owned() };
        let (last, end) = finite.next_back().unwrap_or((first, start));
        format!("{}: {} at step {start}, {} at step {end}", series.name, short(*first), short(*last))
    }

    fn draw_marks(&self, svg: &mut Svg, frame: &Frame, y: &Scale) {
        for (mark, value, name) in &self.marks {
            let Some(at) = y.at(*value) else { continue };
            let first = *mark == Mark::First;
            let x = if first { frame.left } else { frame.right };
            svg.diamond([x, at], 5.0, if first { "point hollow" } else { "point student" }, Some(name));
            let (x, anchor) = if first { (x + 9.0, "") } else { (x - 9.0, " end") };
            let at = if first && at < frame.bottom - 10.0 { at + 3.5 } else { at - 8.0 };
            svg.text([x, at], &format!("note halo{anchor}"), name);
        }
    }

    /// Invisible slices whose titles tell the values under the pointer.
    fn draw_slices(&self, svg: &mut Svg, frame: &Frame, x: &Scale) {
        let every = self.steps.len().div_ceil(SLICES).max(1);
        let picked: Vec<usize> = (0..self.steps.len()).step_by(every).collect();
        let width = (frame.right - frame.left) / picked.len().max(1) as f64;
        for i in picked {
            let Some(at) = x.at(self.steps[i] as f64) else { continue };
            let mut title = format!("step {}", self.steps[i]);
            for series in &self.series {
                if let Some(value) = series.values.get(i) {
                    title.push_str(&format!("\n{}: {}", series.name, short(*value)));
                }
            }
            let (left, right) = ((at - width / 2.0).max(frame.left), (at + width / 2.0).min(frame.right));
            svg.rect([left, frame.top, right - left, frame.bottom - frame.top], "hit", Some(&title));
        }
    }
}

/// `of` the finite values within [`REACH`] steps of each; missing where there are none.
fn running(values: &[f64], of: fn(&mut [f64]) -> f64) -> Vec<f64> {
    let at = |i: usize| {
        let window = &values[i.saturating_sub(REACH)..values.len().min(i + REACH + 1)];
        let mut finite: Vec<f64> = window.iter().copied().filter(|v| v.is_finite()).collect();
        if finite.is_empty() { f64::NAN } else { of(&mut finite) }
    };
    (0..values.len()).map(at).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// No more points than pixels can show: of each pixel's points the lowest and the highest stay, and every gap.
fn thin(points: &[Option<[f64; 2]>]) -> Vec<Option<[f64; 2]>> {
    if points.len() < 3 * WIDTH as usize {
        return points.to_vec();
    }
    let same_pixel = |a: &Option<[f64; 2]>, b: &Option<[f64; 2]>| match (a, b) {
        (Some(a), Some(b)) => a[0].floor() == b[0].floor(),
        (None, None) => true,
        _ => false,
    };
    let mut out = Vec::new();
    for column in points.chunk_by(same_pixel) {
        let of = |better: fn(f64, f64) -> bool| {
            let pick = |best: usize, i: usize| match (column[best], column[i]) {
                (Some(a), Some(b)) if better(b[1], a[1]) => i,
                _ => best,
            };
            (0..column.len()).fold(0, pick)
        };
        let (low, high) = (of(|a, b| a < b), of(|a, b| a > b));
        out.push(column[low.min(high)]);
        if low != high {
            out.push(column[low.max(high)]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_every_extreme_and_gap() {
        let mut points: Vec<Option<[f64; 2]>> = (0..100_000).map(|i| Some([i as f64 / 300.0, 50.0])).collect();
        points[777] = Some([777.0 / 300.0, 3.0]);
        points[50_000] = None;
        points[99_998] = Some([99_998.0 / 300.0, 97.0]);
        let thinned = thin(&points);
        assert!(thinned.len() < 1000, "{}", thinned.len());
        assert!(thinned.contains(&points[777]) && thinned.contains(&None) && thinned.contains(&points[99_998]));
    }

    #[test]
    fn smoothing_leaves_out_what_is_not_finite() {
        let mut values = vec![2.0; 40];
        values[10] = f64::NAN;
        values[39] = 14.0;
        let means = running(&values, |window| window.iter().sum::<f64>() / window.len() as f64);
        assert!((means[10] - 2.0).abs() < 1e-12 && (means[39] - 4.0).abs() < 1e-12);
        assert_eq!(running(&values, median)[39], 2.0);
        assert!(running(&[f64::NAN; 3], median)[1].is_nan());
    }
}
