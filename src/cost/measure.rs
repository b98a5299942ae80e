//! The measured cost of real models under a contract.

use serde::{Deserialize, Serialize};

use super::contract::Contract;
use super::table::Cost;
use crate::device::{pool, with_threads};
use crate::engine::profile::{RequestCost, serve};
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
    /// Weights, caches and workspace at the peak, by the memory pool's count; the largest of the repeats.
    pub peak_bytes: usize,
    /// Resident memory of the whole process after the model's last request, other models and code included; `None` where
    /// the system does not tell.
    pub resident_bytes: Option<usize>,
}

impl Measurement {
    /// Generated tokens of the batch per second.
    pub fn throughput(&self, contract: &Contract) -> f64 {
        contract.generated_tokens() / self.request.median
    }
}

/// Serves each model `repeats` times in turn, on the contract's threads, after one unmeasured request each: a machine that
/// becomes slower does so for all.
pub fn measure(models: &[&Lm], contract: &Contract, repeats: usize) -> Result<Vec<Measurement>> {
    if repeats == 0 {
        return Err(Error::Usage("measuring needs at least 1 repeat".into()));
    }
    let workload = &contract.workload;
    with_threads(contract.threads, || {
        let mut requests: Vec<Vec<RequestCost>> = vec![Vec::new(); models.len()];
        let mut resident = vec![None; models.len()];
        for repeat in 0..=repeats {
            for (i, lm) in models.iter().enumerate() {
                let request = serve(lm, workload)?;
                if repeat > 0 {
                    requests[i].push(request);
                }
                resident[i] = resident_bytes();
            }
        }
        let steps = workload.output_tokens.max(1) as f64;
        let measurement = |i: usize| {
            let cost = |of: &dyn Fn(&RequestCost) -> f64| Cost::of(requests[i].iter().map(of).collect());
            let workspace = requests[i].iter().map(|r| r.peak_bytes).max().unwrap_or(0);
            Measurement {
                request: cost(&|r| r.prefill_seconds + r.decode_seconds),
                prefill_seconds: cost(&|r| r.prefill_seconds).median,
                decode_step_seconds: cost(&|r| r.decode_seconds / steps).median,
                peak_bytes: weight_bytes(models[i]) + workspace,
                resident_bytes: resident[i],
            }
        };
        Ok((0..models.len()).map(measurement).collect())
    })?
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
