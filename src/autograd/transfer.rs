//! The way from the host to a GPU and back, on the tape.

use std::sync::Arc;

use super::tape::{Tape, Var};
use crate::Result;
use crate::device::cuda::Cuda;
use crate::tensor::Tensor;

/// Copies of f32 values on a GPU, sent as one; their gradients come back to the host as soon as the last is known.
///
/// # Errors
/// Where the driver fails.
pub fn to_gpu(tape: &Tape<'_>, vars: &[Var], gpu: &Arc<Cuda>) -> Result<Vec<Var>> {
    let values: Vec<f32> = vars.iter().flat_map(|var| var.f32()).copied().collect();
    let all = Tensor::from_slice([values.len()], &values).to_gpu(gpu)?;
    let mut first = 0;
    let part = |var: &Var| {
        let at = first;
        first += var.value().numel();
        all.part(at, var.shape().clone())
    };
    let parts = vars.iter().map(part).collect();
    let (inputs, count) = (vars.iter().collect::<Vec<_>>(), vars.len());
    Ok(tape.record("to_gpu", &inputs, parts, move |ctx| {
        let grads: Vec<(usize, Tensor)> = (0..count).filter_map(|i| Some((i, ctx.output(i)?))).collect();
        let here = Tensor::to_host_together(&grads.iter().map(|(_, grad)| grad).collect::<Vec<_>>())?;
        grads.iter().zip(here).for_each(|((i, _), grad)| ctx.add(*i, grad));
        Ok(())
    }))
}
