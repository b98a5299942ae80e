//! The measured cost of real models under a contract.

use serde::{Deserialize, Serialize};

use super::contract::Contract;
use super::table::Cost;
use crate::device::{self, pool, with_threads};
use crate::engine::profile::{RequestCost, median, serve};
use crate::model::Lm;
use crate::{Error, Result};

/// What serving a model took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Seconds of a request: prefill and all decode steps.
    pub request: Cost,
    pub prefill_seconds: f64,
    /// The mean over a request's steps.
    pub decode_step_seconds: f64,
    /// Weights, caches and workspace at the peak, by the count of the memory pool of where it was served; the largest of the
    /// repeats.
    pub peak_bytes: usize,
    /// Resident memory of the whole process after the model's last request, other models and code included; `None` where
    /// the system does not tell, and on a GPU.
    pub resident_bytes: Option<usize>,
}

impl Measurement {
    /// Generated tokens of the batch per second.
    pub fn throughput(&self, contract: &Contract) -> f64 {
        contract.generated_tokens() / self.request.median
    }
}

/// Rounds go on, up to so many times the repeats asked for, until the medians are known to [`PRECISE`].
const MORE: usize = 4;
/// A median's relative standard error that is good enough.
const PRECISE: f64 = 0.005;

/// Serves each model at least `repeats` times in turn, where jobs compute now, after one unmeasured request each. On the CPU
/// on the contract's threads.
///
/// What slows a whole round down slows all models: each round's times are divided by its common factor, the median over the
/// models of their time against their own median. Where the machine is busy, more rounds are taken.
pub fn measure(models: &[&Lm], contract: &Contract, repeats: usize) -> Result<Vec<Measurement>> {
    if repeats == 0 {
        return Err(Error::Usage("measuring needs at least 1 repeat".into()));
    }
    contract.measured_here()?;
    let placed: Vec<Option<Lm>> = models.iter().map(|lm| lm.at_current_place()).collect::<Result<_>>()?;
    let models: Vec<&Lm> = models.iter().zip(&placed).map(|(lm, placed)| placed.as_ref().unwrap_or(lm)).collect();
    let workload = &contract.workload;
    with_threads(contract.threads, || {
        let mut requests: Vec<Vec<RequestCost>> = vec![Vec::new(); models.len()];
        let mut resident = vec![None; models.len()];
        for lm in &models {
            serve(lm, workload)?;
        }
        for round in 0..MORE * repeats {
            if round >= repeats && is_precise(&requests) {
                break;
            }
            for (i, lm) in models.iter().enumerate() {
                requests[i].push(serve(lm, workload)?);
                resident[i] = if device::current().is_none() { resident_bytes() } else { None };
            }
        }
        let steps = workload.output_tokens.max(1) as f64;
        let factors = round_factors(&requests);
        let measurement = |i: usize| {
            let cost = |of: &dyn Fn(&RequestCost) -> f64| {
                Cost::of(requests[i].iter().zip(&factors).map(|(request, factor)| of(request) / factor).collect())
            };
            let workspace = requests[i].iter().map(|r| r.peak_bytes).max().unwrap_or(0);
            Measurement {
                request: cost(&|r| seconds(r)),
                prefill_seconds: cost(&|r| r.prefill_seconds).median,
                decode_step_seconds: cost(&|r| r.decode_seconds / steps).median,
                peak_bytes: weight_bytes(models[i]) + workspace,
                resident_bytes: resident[i],
            }
        };
        Ok((0..models.len()).map(measurement).collect())
    })?
}

fn seconds(request: &RequestCost) -> f64 {
    request.prefill_seconds + request.decode_seconds
}

/// By how much each round was slower for all models than the rounds are in the middle; 1 for a model alone, of which nobody
/// can tell.
fn round_factors(requests: &[Vec<RequestCost>]) -> Vec<f64> {
    let rounds = requests.first().map_or(0, Vec::len);
    if requests.len() < 2 {
        return vec![1.0; rounds];
    }
    let medians: Vec<f64> = requests.iter().map(|of| median(of.iter().map(seconds).collect())).collect();
    let factor = |round: usize| median(requests.iter().zip(&medians).map(|(r, m)| seconds(&r[round]) / m).collect());
    (0..rounds).map(factor).collect()
}

/// Whether every median is known well enough: of a normal distribution, its standard error is 0.93 · IQR / √n.
fn is_precise(requests: &[Vec<RequestCost>]) -> bool {
    let factors = round_factors(requests);
    requests.iter().all(|of| {
        let cost = Cost::of(of.iter().zip(&factors).map(|(request, factor)| seconds(request) / factor).collect());
        0.93 * cost.iqr <= PRECISE * cost.median * (cost.repeats as f64).sqrt()
    })
}

/// What a model's weights take of the pool.
pub fn weight_bytes(lm: &Lm) -> usize {
    lm.params.iter().map(|(_, p)| pool::size_class(p.value.numel() * p.value.dtype().bytes())).sum()
}

/// Resident memory of this process, from Linux's `/proc`.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
