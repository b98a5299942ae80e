//! Matrix products of low precision inside a model that is trained.
//!
//! Quantised are the linear maps of Mamba, MLP and MoE layers: projections, latent projections, shared and routed experts. In
//! higher precision stay embedding and head, the gate, norms, attention with its projections, the convolution and the
//! scan; masters, weight gradients and moments; and, where asked for, the last layers (NVFP4 pretraining, arXiv 2509.25149).

use super::block::Context;
use crate::autograd::{ParamId, Tape, Var};
use crate::ops::grouped_gemm::grouped_gemm;
use crate::ops::linear::{linear, linear_split};
use crate::ops::moe_permute::Dispatch;
use crate::ops::quantize::Dice;
use crate::ops::quantized_grouped_gemm::quantized_grouped_gemm;
use crate::ops::quantized_linear::{Precision, quantized_linear, quantized_linear_split};
use crate::{Result, device};

/// How a job's products are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Products {
    pub precision: Precision,
    /// The part of the layers, counted from the end, that stays in higher precision.
    pub wide_layers: f64,
}

impl Products {
    /// As the formats' recipes have it: all layers in FP8 (DeepSeek-V3, arXiv 2412.19437), all but the last 15 % in NVFP4.
    pub fn new(precision: Precision) -> Products {
        let wide_layers = if precision == Precision::Nvfp4 { 0.15 } else { 0.0 };
        Products { precision, wide_layers }
    }

    /// Those of a job that is trained in `precision`; `None` where nothing is quantised.
    pub fn of(precision: device::Precision) -> Option<Products> {
        match precision {
            device::Precision::F32 | device::Precision::Bf16 => None,
            device::Precision::Fp8 => Some(Products::new(Precision::Fp8)),
            device::Precision::Nvfp4 => Some(Products::new(Precision::Nvfp4)),
        }
    }

    /// Whether layer `i` of `layers` is quantised.
    fn covers(&self, i: usize, layers: usize) -> bool {
        i < layers.saturating_sub((self.wide_layers * layers as f64).round() as usize)
    }
}

/// The products of one micro-batch: how they are made, and the random numbers that its gradients are rounded with.
#[derive(Clone, Copy, Debug)]
pub struct StepProducts {
    pub products: Products,
    pub seed: u64,
    pub step: u64,
    /// Counted from 0 within the step.
    pub micro_batch: usize,
}

impl StepProducts {
    /// Those of layer `i` of `layers`; `None` where it stays in higher precision.
    pub(super) fn of_layer(self, i: usize, layers: usize) -> Option<StepProducts> {
        self.products.covers(i, layers).then_some(self)
    }

    /// The words of a weight's products: 2³⁷ indices of its own.
    fn dice(&self, weight: ParamId) -> Dice {
        let first = (weight.0 as u64) << 37 | (self.micro_batch as u64).wrapping_shl(52);
        Dice::new(self.seed, self.step, first)
    }
}

impl Context<'_> {
    /// x [R, in] times a parameter [out, in], in the layer's precision.
    pub fn linear(&self, tape: &Tape<'_>, x: &Var, weight: ParamId) -> Result<Var> {
        let w = self.param(tape, weight);
        match &self.products {
            Some(step) => quantized_linear(tape, x, &w, step.products.precision, step.dice(weight)),
            None => linear(tape, x, &w),
        }
    }

    /// The same with the output columns in several tensors.
    pub fn linear_split(&self, tape: &Tape<'_>, x: &Var, weight: ParamId, widths: &[usize]) -> Result<Vec<Var>> {
        let w = self.param(tape, weight);
        match &self.products {
            Some(step) => quantized_linear_split(tape, x, &w, widths, step.products.precision, step.dice(weight)),
            None => linear_split(tape, x, &w, widths),
        }
    }

    /// Rows sorted by expert times the experts' matrices [E, out, in].
    pub fn grouped_gemm(&self, tape: &Tape<'_>, x: &Var, weight: ParamId, dispatch: &Dispatch) -> Result<Var> {
        let w = self.param(tape, weight);
        match &self.products {
            Some(step) => {
                let (precision, dice) = (step.products.precision, step.dice(weight));
                quantized_grouped_gemm(tape, x, &w, dispatch, precision, dice)
            }
            None => grouped_gemm(tape, x, &w, dispatch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_layers_stay_wide() {
        let covered = |share, layers| {
            let products = Products { precision: Precision::Nvfp4, wide_layers: share };
            (0..layers).filter(|i| products.covers(*i, layers)).collect::<Vec<_>>()
        };
        assert_eq!(covered(0.15, 52), (0..44).collect::<Vec<_>>());
        assert_eq!(covered(0.15, 8), (0..7).collect::<Vec<_>>());
        assert_eq!((covered(0.0, 3), covered(1.0, 3)), (vec![0, 1, 2], vec![]));
    }
}
