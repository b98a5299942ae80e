use std::sync::Arc;

use crate::Result;
use crate::ops::grouped_gemm::cpu::{self as grouped, Sizes};
use crate::ops::quantize::{Blocks, Dice, Format, Stretches, quantize};
use crate::ops::quantized_linear::Precision;
use crate::ops::quantized_linear::cpu::as_stored;
use crate::tensor::Tensor;

/// One product per expert over rows sorted by expert.
pub struct Experts {
    pub offsets: Arc<[usize]>,
    pub rows: usize,
    pub inner: usize,
    pub out: usize,
    pub precision: Precision,
}

impl Experts {
    fn sizes(&self) -> Sizes {
        Sizes { inner: self.inner, out: self.out }
    }

    fn edge(&self) -> usize {
        self.precision.values().block()
    }

    /// What W [E, out, inner] decodes to, in the same shape.
    pub fn weights(&self, w: &[f32]) -> Result<Vec<f32>> {
        let experts = self.offsets.len() - 1;
        let starts: Vec<usize> = (0..=experts).map(|e| e * self.out).collect();
        let stretches = Stretches::new(&starts, self.edge());
        let apart = stretches.spread(w, self.inner);
        let size = [stretches.rows(), self.inner];
        let apart = quantize(&apart, size, self.precision.values(), Blocks::Squares, None)?.dequantize();
        let mut w = Vec::with_capacity(w.len());
        for start in &stretches.starts[..experts] {
            w.extend_from_slice(&apart[start * self.inner..][..self.out * self.inner]);
        }
        Ok(w)
    }

    /// `w` as [`Experts::weights`] gives it.
    pub fn forward(&self, x: &[f32], w: &[f32]) -> Result<Tensor> {
        let x = quantize(x, [self.rows, self.inner], self.precision.values(), Blocks::Rows, None)?.dequantize();
        Ok(Tensor::build([self.rows, self.out], |y| grouped::forward(&x, w, &self.offsets, self.sizes(), y)))
    }

    pub fn input_grad(&self, dy: &[f32], w: &[f32], dice: Dice) -> Result<Tensor> {
        let (format, dice) = self.precision.gradients(dice);
        let dy = quantize(dy, [self.rows, self.out], format, Blocks::Rows, dice)?.dequantize();
        Ok(Tensor::build([self.rows, self.inner], |dx| grouped::input_grad(&dy, w, &self.offsets, self.sizes(), dx)))
    }

    /// dy and x quantised along their rows, each expert's from a new block on, and where those begin.
    pub fn turned(&self, dy: &[f32], x: &[f32], dice: Dice) -> Result<(Vec<f32>, Vec<f32>, Stretches)> {
        let stretches = Stretches::new(&self.offsets, self.edge());
        let turned = |x: &[f32], width: usize, format: Format, dice| -> Result<Vec<f32>> {
            let x = match self.precision {
                Precision::Fp8 => stretches.spread(x, width),
                Precision::Nvfp4 => as_stored(stretches.hadamard(x, width)),
            };
            Ok(quantize(&x, [stretches.rows(), width], format, Blocks::Columns, dice)?.dequantize())
        };
        let (format, dice) = self.precision.gradients(dice);
        let dy = turned(dy, self.out, format, dice)?;
        let x = turned(x, self.inner, self.precision.values(), None)?;
        Ok((dy, x, stretches))
    }

    /// dW_e = dy_eᵀ·x_e, or +=.
    pub fn weight_grad(&self, (dy, x): (&[f32], &[f32]), stretches: &Stretches, dw: &mut [f32], accumulate: bool) {
        grouped::weight_grad(dy, x, &stretches.starts, self.sizes(), dw, accumulate);
    }
}
