//! Every kernel on the device against the ops' naive f64 references, values and gradients: what `kernels check` and the test
//! suite run.
//!
//! One file per op. Inputs of bf16 kernels are rounded to bf16 before the reference sees them, so what is left to allow for
//! is the rounding of what a kernel stores.

mod adamw;
mod attention;
mod bench;
mod causal_conv1d;
mod cross_entropy;
mod distill_loss;
mod embedding;
mod gated_group_norm;
mod grouped_gemm;
mod gumbel_softmax;
mod linear;
mod mask_keep;
mod masks;
mod moe_combine;
mod moe_permute;
mod moe_route;
mod placed;
mod problem;
mod quantize;
mod quantized_grouped_gemm;
mod quantized_linear;
mod relu2;
mod residual_add;
mod rms_norm;
mod second_pass;
mod ssd_scan;
mod twice;

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Cuda, CudaError};
use bench::Bench;
pub(super) use bench::Float;
use twice::{Pass, Tensors};

/// What became of one op's kernels.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub op: &'static str,
    /// Kernels launched, those of second passes among them.
    pub symbols: BTreeSet<String>,
    /// Tensors held against the reference.
    pub comparisons: usize,
    /// Which tensor of which case is off, and by how much.
    pub faults: Vec<String>,
}

impl Outcome {
    fn new(op: &'static str) -> Outcome {
        Outcome { op, symbols: BTreeSet::new(), comparisons: 0, faults: Vec::new() }
    }
}

type Check = fn(&mut Bench) -> Result<(), CudaError>;

const CHECKS: &[(&str, Check)] = &[
    ("adamw", adamw::check),
    ("attention", attention::check),
    ("causal_conv1d", causal_conv1d::check),
    ("column_sum", second_pass::column_sum),
    ("cross_entropy", cross_entropy::check),
    ("distill_loss", distill_loss::check),
    ("embedding", embedding::check),
    ("gated_group_norm", gated_group_norm::check),
    ("grouped_gemm", grouped_gemm::check),
    ("gumbel_softmax", gumbel_softmax::check),
    ("linear", linear::check),
    ("mask_grad", second_pass::mask_grad),
    ("mask_keep", mask_keep::check),
    ("moe_combine", moe_combine::check),
    ("moe_permute", moe_permute::check),
    ("moe_route", moe_route::check),
    ("quantize", quantize::check),
    ("quantized_grouped_gemm", quantized_grouped_gemm::check),
    ("quantized_linear", quantized_linear::check),
    ("relu2", relu2::check),
    ("residual_add", residual_add::check),
    ("rms_norm", rms_norm::check),
    ("ssd_scan", ssd_scan::check),
];

/// The ops that have a check.
pub fn ops() -> Vec<&'static str> {
    CHECKS.iter().map(|(op, _)| *op).collect()
}

/// Runs an op's kernels on all inputs of its check, twice: what is compared must have the same bits both times. An op without
/// a check gives an outcome of no comparisons.
///
/// # Errors
/// [`CudaError`] where the driver or the device fails; wrong numbers are faults in the outcome.
pub fn run(cuda: &Cuda, op: &str) -> Result<Outcome, CudaError> {
    run_between(cuda, op, || ())
}

/// As [`run`]; `between` is called after the first run and before the second.
///
/// # Errors
/// As [`run`].
pub fn run_between(cuda: &Cuda, op: &str, between: impl FnOnce()) -> Result<Outcome, CudaError> {
    let (op, check) = find(op);
    let first = pass(Bench::new(cuda, Outcome::new(op), None, Pass::First(Tensors::default())), check)?;
    between();
    let mut second = pass(Bench::new(cuda, first.outcome, None, first.pass.next()), check)?;
    second.outcome.faults.extend(second.pass.missing());
    Ok(second.outcome)
}

/// Once, only as much of the check as concerns one kernel, and no further than the first fault.
///
/// # Errors
/// As [`run`]; [`CudaError::Wrong`] where the fault came before the last launch.
pub fn run_kernel(cuda: &Cuda, op: &str, symbol: &str) -> Result<Outcome, CudaError> {
    let (op, check) = find(op);
    pass(Bench::new(cuda, Outcome::new(op), Some(symbol), Pass::Only), check).map(|bench| bench.outcome)
}

fn find(op: &str) -> (&'static str, Check) {
    CHECKS.iter().find(|(name, _)| *name == op).copied().unwrap_or(("", |_| Ok(())))
}

fn pass<'d>(mut bench: Bench<'d>, check: Check) -> Result<Bench<'d>, CudaError> {
    let cuda = bench.cuda;
    // Buffers that end where they end: gpusim and NVIDIA's sanitizer see accesses behind them.
    cuda.keep_at_most(0);
    let done = check(&mut bench).and_then(|()| cuda.synchronize());
    cuda.keep_at_most(usize::MAX);
    done.map(|()| bench)
}
