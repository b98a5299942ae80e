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
