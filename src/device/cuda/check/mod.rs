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
mod problem;
mod quantize;
mod quantized_grouped_gemm;
mod quantized_linear;
mod relu2;
mod residual_add;
mod rms_norm;
mod second_pass;
mod ssd_scan;

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Cuda, CudaError};
use bench::Bench;
pub(super) use bench::Float;

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

/// Runs an op's kernels on all inputs of its check. An op without a check gives an outcome of no comparisons.
///
/// # Errors
/// [`CudaError`] where the driver or the device fails; wrong numbers are faults in the outcome.
pub fn run(cuda: &Cuda, op: &str) -> Result<Outcome, CudaError> {
    run_with(cuda, op, None)
}

/// As [`run`], but only as much of the check as concerns one kernel, and no further than the first fault.
///
/// # Errors
/// As [`run`]; [`CudaError::Wrong`] where the fault came before the last launch.
pub fn run_kernel(cuda: &Cuda, op: &str, symbol: &str) -> Result<Outcome, CudaError> {
    run_with(cuda, op, Some(symbol))
}

fn run_with(cuda: &Cuda, op: &str, only: Option<&str>) -> Result<Outcome, CudaError> {
    let (op, check) = CHECKS.iter().find(|(name, _)| *name == op).copied().unwrap_or(("", |_| Ok(())));
    // Buffers that end where they end: gpusim and NVIDIA's sanitizer see accesses behind them.
    cuda.keep_at_most(0);
    let mut bench = Bench::new(cuda, op, only);
    let done = check(&mut bench).and_then(|()| cuda.synchronize());
    cuda.keep_at_most(usize::MAX);
    done.map(|()| bench.outcome)
}
