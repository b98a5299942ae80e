//! From numbers to positions: linear and logarithmic scales with round ticks.

use crate::report::number::power;

/// Numbers beyond this are drawn as if they were this: differences stay finite.
const LARGEST: f64 = 1e150;
const SMALLEST: f64 = 1e-150;
/// Pixels between the end of a logarithmic scale and the place of 0 below it.
const ZERO_GAP: f64 = 14.0;

#[derive(Clone, Debug)]
pub(super) struct Scale {
    log: bool,
    /// A logarithmic scale with a place for 0.
    zero: bool,
    domain: [f64; 2],
    range: [f64; 2],
    ticks: Vec<f64>,
    decimals: usize,
}

impl Scale {
    /// Over the finite ones of `values`, with ends that are ticks; `range` is where the lowest and the highest go.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>, range: [f64; 2], ticks: usize) -> Scale {
        let [lo, hi] = bounds(values.into_iter());
        let step = round_step((hi - lo) / ticks.max(1) as f64);
        let (first, last) = ((lo / step + 1e-9).floor(), (hi / step - 1e-9).ceil());
        let count = (last - first).clamp(1.0, 50.0) as usize;
        let ticks: Vec<f64> = (0..=count).map(|i| (first + i as f64) * step).collect();
        let domain = [ticks[0].min(lo), ticks[count].max(hi)];
        Scale { log: false, zero: false, domain, range, ticks, decimals: decimals(step) }
    }

    /// As [`Scale::linear`], but the ends are the outermost values: for steps.
    pub(super) fn tight(values: impl IntoIterator<Item = f64> + Clone, range: [f64; 2], ticks: usize) -> Scale {
        let domain = bounds(values.clone().into_iter());
        let mut scale = Scale::linear(values, range, ticks);
        let slack = (domain[1] - domain[0]) * 1e-9;
        scale.ticks.retain(|t| *t >= domain[0] - slack && *t <= domain[1] + slack);
        scale.domain = domain;
        scale
    }

    /// Logarithmic where nothing is negative and the positive values spread over a factor of `spread` or more.
    pub(super) fn log_where_it_helps(values: &[f64], range: [f64; 2], spread: f64) -> Scale {
        let finite = || values.iter().copied().filter(|v| v.is_finite());
        let positive = || finite().filter(|v| *v > 0.0).map(|v| v.clamp(SMALLEST, LARGEST));
        let lo = positive().fold(f64::INFINITY, f64::min);
        let hi = positive().fold(0.0, f64::max);
        let spread_out = hi > 0.0 && hi / lo >= spread;
        if finite().any(|v| v < 0.0) || !spread_out {
            return Scale::linear(finite().chain([0.0]), range, 4);
        }
        let domain = [round_down(lo), round_up(hi)];
        let zero = finite().any(|v| v == 0.0);
        Scale { log: true, zero, domain, range, ticks: log_ticks(domain), decimals: 0 }
    }

    /// Where `value` goes, cut off at the scale's ends; nowhere if it is not finite.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() {
            return None;
        }
        let [mut start, end] = self.range;
        let [lo, hi] = self.domain;
        if self.log {
            if self.zero {
                if value <= 0.0 {
                    return Some(start);
                }
                start += ZERO_GAP * (end - start).signum();
            }
            let share = (value.clamp(lo, hi).ln() - lo.ln()) / (hi.ln() - lo.ln());
            return Some(start + share * (end - start));
        }
        let share = (value.clamp(lo, hi) - lo) / (hi - lo);
        Some(start + share * (end - start))
    }

    /// Positions and labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let zero = (self.log && self.zero).then(|| (self.range[0], "0".to_owned()));
        let rest = self.ticks.iter().filter_map(|tick| self.at(*tick).map(|at| (at, self.label(*tick))));
        zero.into_iter().chain(rest).collect()
    }

    pub(super) fn is_log(&self) -> bool {
        self.log
    }

    fn label(&self, tick: f64) -> String {
        let size = tick.abs();
        if tick == 0.0 {
            "0".to_owned()
        } else if !(2e-4..1e5).contains(&size) {
            power(tick, 1)
        } else if self.log {
            format!("{tick:.*}", decimals(size))
        } else {
            format!("{tick:.*}", self.decimals)
        }
    }
}

/// The lowest and the highest, apart: [0, 1] where there is nothing or only 0, and room around a constant.
fn bounds(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut ends = [f64::INFINITY, f64::NEG_INFINITY];
    for value in values.filter(|v| v.is_finite()).map(|v| v.clamp(-LARGEST, LARGEST)) {
        ends = [ends[0].min(value), ends[1].max(value)];
    }
    let [lo, hi] = ends;
    if lo > hi {
        return [0.0, 1.0];
    }
    let size = lo.abs().max(hi.abs());
    // Also where the difference drowns in the numbers' size.
    if hi - lo > size * 1e-9 && hi - lo > SMALLEST {
        return [lo, hi];
    }
    if size <= SMALLEST {
        return [0.0, 1.0];
    }
    [lo - size * 0.1, hi + size * 0.1]
}

/// The least of 1, 2 or 5 times a power of ten that is at least `raw`.
fn round_step(raw: f64) -> f64 {
    let base = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|m| m * base).find(|step| *step >= raw * (1.0 - 1e-9));
    step.unwrap_or(10.0 * base)
}

fn round_down(value: f64) -> f64 {
    let base = 10f64.powf(value.log10().floor());
    [5.0, 2.0].into_iter().map(|m| m * base).find(|v| *v <= value * (1.0 + 1e-9)).unwrap_or(base)
}

fn round_up(value: f64) -> f64 {
    let base = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|m| m * base).find(|v| *v >= value * (1.0 - 1e-9)).unwrap_or(10.0 * base)
}

/// Powers of ten, with their 2- and 5-folds where that leaves few.
fn log_ticks([lo, hi]: [f64; 2]) -> Vec<f64> {
    let (first, last) = (lo.log10().floor() as i32, hi.log10().ceil() as i32);
    let decades = (hi / lo).log10();
    let folds: &[f64] = if decades < 1.6 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (decades / 5.0).ceil().max(1.0) as i32;
    let within = |v: &f64| *v >= lo * (1.0 - 1e-9) && *v <= hi * (1.0 + 1e-9);
    let powers = (first..=last).filter(|p| p.rem_euclid(every) == 0);
    powers.flat_map(|p| folds.iter().map(move |f| f * 10f64.powi(p))).filter(within).collect()
}

/// Enough to tell multiples of `step` apart: 0 for 20, 1 for 0.5, 2 for 0.02.
fn decimals(step: f64) -> usize {
    if step >= 1.0 { 0 } else { (-step.log10() - 1e-9).ceil().clamp(0.0, 9.0) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(labels(&Scale::linear([0.0, 56.1], [0.0, 100.0], 4)), ["0", "20", "40", "60"]);
        assert_eq!(
            labels(&Scale::linear([0.95, 1.45], [0.0, 100.0], 5)),
            ["0.9", "1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]
        );
        assert_eq!(labels(&Scale::linear([0.0, 0.08], [0.0, 100.0], 4)), ["0", "0.02", "0.04", "0.06", "0.08"]);
        assert_eq!(labels(&Scale::linear([0.0, 1e7], [0.0, 100.0], 2)), ["0", "5·10⁶", "10⁷"]);
    }

    #[test]
    fn logarithmic_ticks_are_powers_and_zero_has_a_place() {
        let scale = Scale::log_where_it_helps(&[0.0, 0.003, 2.0], [100.0, 0.0], 10.0);
        assert_eq!(labels(&scale), ["0", "0.01", "0.1", "1"]);
        assert_eq!(scale.at(0.0), Some(100.0));
        assert!(scale.at(0.003).unwrap() < 87.0);
        assert!(!Scale::log_where_it_helps(&[1.0, 2.0], [100.0, 0.0], 10.0).is_log());
        assert!(!Scale::log_where_it_helps(&[-1.0, 0.1, 200.0], [100.0, 0.0], 10.0).is_log());
    }

    #[test]
    fn anything_gets_finite_places() {
        let hostile: [&[f64]; 8] = [
            &[],
            &[f64::NAN, f64::INFINITY],
            &[0.0],
            &[5.0, 5.0],
            &[-1e308, 1e308],
            &[1e16, 1e16 + 2.0],
            &[5e-324, 1e308],
            &[1e-320],
        ];
        for values in hostile {
            let all = values.iter().copied();
            let scales = [
                Scale::linear(all.clone(), [0.0, 100.0], 4),
                Scale::tight(all, [0.0, 100.0], 4),
                Scale::log_where_it_helps(values, [0.0, 100.0], 10.0),
            ];
            for scale in scales {
                assert!(scale.ticks().len() < 60);
                let values = values.iter().filter_map(|v| scale.at(*v));
                for at in values.chain(scale.ticks().into_iter().map(|(at, _)| at)) {
                    assert!((-1e-6..=100.0 + 1e-6).contains(&at), "{scale:?} puts something at {at}");
                }
            }
        }
    }
}
