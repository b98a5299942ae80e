//! silu(causal depthwise convolution + bias), the short convolution of a Mamba layer.

pub mod cases;
mod cpu;
pub(crate) mod cuda;
pub mod reference;

use crate::autograd::{Tape, Var};
use crate::tensor::{Segments, Tensor};
use crate::{Error, Result};

/// x [R, C], weight [C, K], bias `[C]` → [R, C]. Row t of a segment sees rows t−K+1 … t of it; before its start lie `initial`
/// [S, K−1, C] (oldest first), or zeros. No gradient flows to `initial`.
pub fn causal_conv1d(
    tape: &Tape<'_>,
    x: &Var,
    weight: &Var,
    bias: Option<&Var>,
    segments: &Segments,
    initial: Option<&Tensor>,
) -> Result<Var> {
    let &[channels, kernel] = weight.dims() else {
        return Err(Error::contract("causal_conv1d", "weight", weight.dims(), "[C, K]"));
    };
    if x.dims() != [segments.rows(), channels] || kernel == 0 {
        let expected = format!("[{}, {channels}], and K at least 1", segments.rows());
        return Err(Error::contract("causal_conv1d", "x", x.dims(), expected));
    }
    if let Some(bias) = bias.filter(|b| b.dims() != [channels]) {
        return Err(Error::contract("causal_conv1d", "bias", bias.dims(), format!("[{channels}]")));
    }
    let state = [segments.count(), kernel - 1, channels];
    if let Some(initial) = initial.filter(|i| i.dims() != state) {
        return Err(Error::contract("causal_conv1d", "initial", initial.dims(), format!("{state:?}")));
    }
    if let Some(gpu) = x.value().gpu() {
        return cuda::causal_conv1d(gpu, tape, (x, weight, bias), segments, initial);
    }
    let none = Var::constant(Tensor::zeros([0]));
    let bias = bias.unwrap_or(&none);
    let conv = cpu::Conv::new(weight.f32(), bias.f32(), channels, kernel, segments.clone(), initial.cloned());
    let y = Tensor::build(x.shape().clone(), |y| conv.forward(x.f32(), y));
    let xv = x.value().clone();
    let (weight_shape, bias_shape) = (weight.shape().clone(), bias.shape().clone());
    Ok(tape.record1("causal_conv1d", &[x, weight, bias], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        let mut dx = Tensor::build(xv.shape().clone(), |_| {});
        let (dweight, dbias) = conv.backward(xv.f32(), dy.f32(), dx.f32_mut());
        ctx.add(0, dx);
        ctx.add(1, Tensor::from_slice(weight_shape, &dweight));
        if ctx.needs(2) {
            ctx.add(2, Tensor::from_slice(bias_shape, &dbias));
        }
        Ok(())
    }))
}

/// [S, K−1, C]: the last K−1 inputs of each segment, oldest first; a shorter segment keeps the end of `initial` (or zeros).
pub fn next_state(x: &Tensor, segments: &Segments, kernel: usize, initial: Option<&Tensor>) -> Result<Tensor> {
    if let Some(gpu) = x.gpu() {
        return cuda::next_state(gpu, x, segments, kernel, initial);
    }
    let (channels, kept) = (x.shape().last(), kernel.saturating_sub(1));
    let mut state = Tensor::zeros([segments.count(), kept, channels]);
    let values = state.f32_mut();
    for (segment, rows) in segments.iter().enumerate() {
        for k in 0..kept {
            let to = (segment * kept + k) * channels;
            // Of K−1 old rows followed by the new ones, the last K−1.
            match (rows.len() + k).checked_sub(kept) {
                Some(t) => {
                    values[to..to + channels].copy_from_slice(&x.f32()[(rows.start + t) * channels..][..channels])
                }
                None => {
                    if let Some(initial) = initial {
                        let from = (segment * kept + rows.len() + k) * channels;
                        values[to..to + channels].copy_from_slice(&initial.f32()[from..from + channels]);
                    }
                }
            }
        }
    }
    Ok(state)
}
