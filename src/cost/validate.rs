//! How far predictions are from measurements.

use super::contract::Contract;
use super::dummy::Dummy;
use super::measure::{Measurement, measure};
use super::model::{CostModel, Prediction};
use super::table::quantile;
use crate::Result;
use crate::model::Lm;
use crate::supernet::Choice;

/// Relative errors |predicted − measured| / measured.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Errors {
    pub median: f64,
    /// The 95th percentile: a margin to keep from a limit.
    pub q95: f64,
    pub worst: f64,
}

impl Errors {
    /// Of (predicted, measured) pairs; all 0 of none.
    pub fn of(pairs: &[(f64, f64)]) -> Errors {
        let mut errors: Vec<f64> = pairs.iter().map(|(p, m)| (p - m).abs() / m.abs()).collect();
        errors.sort_by(f64::total_cmp);
        let q = |q| quantile(&errors, q);
        Errors { median: q(0.5), q95: q(0.95), worst: q(1.0) }
    }
}

/// Predicted against measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// One per choice.
    pub points: Vec<(Prediction, Measurement)>,
    pub prefill: Errors,
    pub decode_step: Errors,
    pub request: Errors,
    pub memory: Errors,
    /// Measured over predicted time of a request, median: above 1 where the machine has become slower since the table was
    /// measured, below where faster.
    pub drift: f64,
    /// Errors of the request's prediction times `drift`: what is left for models that are compared in one measurement.
    pub request_less_drift: Errors,
}

/// Errors of whole models' times, relative, that only a disturbed measurement has.
const DISTURBED: f64 = 0.1;

impl Validation {
    /// Says so where other work must have taken the machine's cores during the measurements.
    pub fn disturbed(&self) -> Option<String> {
        let Validation { drift, request_less_drift, .. } = self;
        let found = if (drift - 1.0).abs() > DISTURBED {
            let change = if *drift > 1.0 { "slower" } else { "faster" };
            let factor = drift.max(drift.recip());
            format!("whole models ran {factor:.2} times {change} than the cost table says")
        } else if request_less_drift.median > DISTURBED {
            format!("whole models ran {:.0} % off the cost table's times", 100.0 * request_less_drift.median)
        } else {
            return None;
        };
        Some(format!(
            "{found}: other programs took this machine's cores meanwhile, or it has changed its clock. The limits hold for \
             what is measured; for a better choice within them, measure again on an idle machine (`--from profile`)"
        ))
    }
}

/// Measures a model of each choice, with weights that mean nothing, against its prediction. All models are in memory at
/// once, so that their requests interleave.
pub fn validate(model: &CostModel, contract: &Contract, choices: &[Choice], repeats: usize) -> Result<Validation> {
    let dummies: Vec<Dummy> =
        choices.iter().map(|choice| Dummy::new(&model.space().config_of(choice)?)).collect::<Result<_>>()?;
    let lms: Vec<&Lm> = dummies.iter().map(|dummy| &dummy.lm).collect();
    let measured = measure(&lms, contract, repeats)?;
    let predicted = choices.iter().map(|choice| model.predict(choice)).collect::<Result<Vec<_>>>()?;
    Ok(compare(predicted.into_iter().zip(measured).collect()))
}

/// Sums up points that were measured elsewhere.
pub fn compare(points: Vec<(Prediction, Measurement)>) -> Validation {
    let errors = |of: &dyn Fn(&Prediction, &Measurement) -> (f64, f64)| {
        Errors::of(&points.iter().map(|(p, m)| of(p, m)).filter(|(_, m)| *m > 0.0).collect::<Vec<_>>())
    };
    let mut ratios: Vec<f64> = points.iter().map(|(p, m)| m.request.median / p.request_seconds).collect();
    ratios.sort_by(f64::total_cmp);
    let drift = if ratios.is_empty() { 1.0 } else { quantile(&ratios, 0.5) };
    Validation {
        drift,
        request_less_drift: errors(&|p, m| (drift * p.request_seconds, m.request.median)),
        prefill: errors(&|p, m| (p.prefill_seconds, m.prefill_seconds)),
        decode_step: errors(&|p, m| (p.decode_step_seconds, m.decode_step_seconds)),
        request: errors(&|p, m| (p.request_seconds, m.request.median)),
        memory: errors(&|p, m| (p.memory_bytes, m.peak_bytes as f64)),
        points,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;

    /// Whole models predicted at 1 s, and what they took.
    fn validation(measured: &[f64]) -> Validation {
        let point = |seconds: &f64| {
            let request = Cost { median: *seconds, iqr: 0.0, repeats: 1 };
            let (prefill_seconds, decode_step_seconds) = (0.5, 0.01);
            let measured =
                Measurement { request, prefill_seconds, decode_step_seconds, peak_bytes: 1, resident_bytes: None };
            (Prediction { request_seconds: 1.0, ..Prediction::default() }, measured)
        };
        compare(measured.iter().map(point).collect())
    }

    #[test]
    fn only_a_disturbed_measurement_is_called_one() {
        assert_eq!(validation(&[1.0, 1.05, 0.96, 1.09, 0.92]).disturbed(), None);
        let slower = validation(&[1.25, 1.3, 1.2]).disturbed().unwrap();
        assert!(slower.contains("1.25 times slower"), "{slower}");
        let faster = validation(&[0.8, 0.8]).disturbed().unwrap();
        assert!(faster.contains("1.25 times faster"), "{faster}");
        let uneven = validation(&[0.8, 0.8, 1.0, 1.3, 1.3]).disturbed().unwrap();
        assert!(uneven.contains("23 % off"), "{uneven}");
    }
}
