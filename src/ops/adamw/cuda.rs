use std::sync::Arc;

use super::{AdamWOptions, Update};
use crate::Result;
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Constant, Cuda, DeviceBuffer};
use crate::ops::gpu::{check, launch, size, symbol};
use crate::ops::gumbel_softmax::cuda::state;
use crate::tensor::{DType, Tensor};

/// Elements whose squares one partial sum holds.
const TILE: usize = 16384;

/// A step's numbers on the device.
pub(super) struct Step {
    state: Constant,
    norm: Constant,
}

impl Step {
    /// The kernel scales by `max_norm` / `norm` where the norm is larger.
    pub fn new(gpu: &Cuda, update: u64, learning_rate: f32, norm: f32, max_norm: f32) -> Result<Step> {
        Ok(Step {
            state: state(gpu, abi::StepState { update, learning_rate, max_norm, ..Default::default() })?,
            norm: gpu.constant(&[norm])?,
        })
    }

    /// For one parameter alone, whose gradient is scaled by `update.scale`.
    pub fn of(gpu: &Cuda, update: &Update) -> Result<Step> {
        Step::new(gpu, update.update, update.learning_rate, 1.0, update.scale)
    }
}

/// One parameter's update, and its copy in bf16. `rate` multiplies the step's learning rate.
pub(super) fn update(
    gpu: &Arc<Cuda>,
    [value, first, second]: [&mut Tensor; 3],
    copy: Option<&mut Tensor>,
    grad: &Tensor,
    step: &Step,
    (rate, decay): (f32, bool),
    o: &AdamWOptions,
) -> Result<()> {
    let f32 = Some(DType::F32);
    check("adamw", &[("grad", grad, None), ("value", value, f32), ("first", first, f32), ("second", second, f32)])?;
    for tensor in [&mut *value, &mut *first, &mut *second] {
        tensor.make_unique()?;
    }
    let mut weight = std::ptr::null_mut();
    if let Some(copy) = copy {
        check("adamw", &[("copy", copy, Some(DType::Bf16))])?;
        copy.make_unique()?;
        weight = copy.ptr();
    }
    let args = abi::AdamWUpdate {
        state: step.state.ptr(),
        norm: step.norm.ptr(),
        grad: grad.ptr(),
        value: value.ptr(),
        first: first.ptr(),
        second: second.ptr(),
        weight,
        elements: value.numel() as u64,
        rate,
        weight_decay: if decay { o.weight_decay } else { 0.0 },
        beta1: o.beta1,
        beta2: o.beta2,
        eps: o.eps,
        unused: 0,
    };
    launch(gpu, &symbol("adamw_update", grad.dtype()), &args)
}

/// Σ g² of each gradient, in f64: one wait for all.
pub(super) fn squares(gpu: &Arc<Cuda>, grads: &[&Tensor]) -> Result<Vec<f64>> {
    let counts: Vec<usize> = grads.iter().map(|grad| grad.numel().div_ceil(TILE)).collect();
    let partials: DeviceBuffer<f64> = gpu.buffer(counts.iter().sum())?;
    let mut first = 0;
    for (grad, count) in grads.iter().zip(&counts) {
        check("adamw", &[("grad", grad, None)])?;
        size(*count)?;
        let args = abi::AdamWSquares {
            grad: grad.ptr(),
            partials: partials.ptr::<f64>().wrapping_add(first),
            elements: grad.numel() as u64,
        };
        launch(gpu, &symbol("adamw_squares", grad.dtype()), &args)?;
        first += count;
    }
    let partials = partials.read()?;
    let mut rest = &partials[..];
    Ok(counts
        .iter()
        .map(|count| {
            let (ours, after) = rest.split_at(*count);
            rest = after;
            ours.iter().sum()
        })
        .collect())
}
