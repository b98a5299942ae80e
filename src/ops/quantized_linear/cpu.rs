use super::Precision;
use crate::Result;
use crate::device::gemm::{Mat, par_matmul};
use crate::numerics::Fp8;
use crate::ops::quantize::{Blocks, Dice, Format, hadamard, quantize};

/// The sizes of y [rows, out] = x [rows, inner]·W [out, inner]ᵀ.
#[derive(Clone, Copy)]
pub struct Product {
    pub rows: usize,
    pub inner: usize,
    pub out: usize,
    pub precision: Precision,
}

impl Product {
    fn values(self) -> Format {
        match self.precision {
            Precision::Fp8 => Format::Fp8(Fp8::E4m3),
            Precision::Nvfp4 => Format::Nvfp4,
        }
    }

    /// The format of gradients and how they round.
    fn gradients(self, dice: Dice) -> (Format, Option<Dice>) {
        match self.precision {
            Precision::Fp8 => (Format::Fp8(Fp8::E5m2), None),
            Precision::Nvfp4 => (Format::Nvfp4, Some(dice)),
        }
    }

    /// What W decodes to.
    pub fn weight(self, w: &[f32]) -> Result<Vec<f32>> {
        Ok(quantize(w, [self.out, self.inner], self.values(), Blocks::Squares, None)?.dequantize())
    }

    /// `w` as `weight` gives it.
    pub fn forward(self, x: &[f32], w: &[f32]) -> Result<Vec<f32>> {
        let x = quantize(x, [self.rows, self.inner], self.values(), Blocks::Rows, None)?.dequantize();
        let mut y = vec![0.0; self.rows * self.out];
        let w = Mat::new(w, self.out, self.inner).t();
        par_matmul(Mat::new(&x, self.rows, self.inner), w, &mut y, self.out, false);
        Ok(y)
    }

    pub fn input_grad(self, dy: &[f32], w: &[f32], dice: Dice) -> Result<Vec<f32>> {
        let (format, dice) = self.gradients(dice);
        let dy = quantize(dy, [self.rows, self.out], format, Blocks::Rows, dice)?.dequantize();
        let mut dx = vec![0.0; self.rows * self.inner];
        let w = Mat::new(w, self.out, self.inner);
        par_matmul(Mat::new(&dy, self.rows, self.out), w, &mut dx, self.inner, false);
        Ok(dx)
    }

    pub fn weight_grad(self, dy: &[f32], x: &[f32], dice: Dice) -> Result<Vec<f32>> {
        let behind_rows = dice.first + (self.rows * self.out.div_ceil(4)) as u64;
        let (format, dice) = self.gradients(Dice { first: behind_rows, ..dice });
        let (dy, x, rows) = match self.precision {
            Precision::Fp8 => (dy.to_vec(), x.to_vec(), self.rows),
            Precision::Nvfp4 => (hadamard(dy, self.out), hadamard(x, self.inner), self.rows.next_multiple_of(16)),
        };
        let dy = quantize(&dy, [rows, self.out], format, Blocks::Columns, dice)?.dequantize();
        let x = quantize(&x, [rows, self.inner], self.values(), Blocks::Columns, None)?.dequantize();
        let mut dw = vec![0.0; self.out * self.inner];
        par_matmul(Mat::new(&dy, rows, self.out).t(), Mat::new(&x, rows, self.inner), &mut dw, self.inner, false);
        Ok(dw)
    }
}
