use super::{Part, Precision};
use crate::Result;
use crate::autograd::round_stored;
use crate::device::gemm::{Mat, par_matmul};
use crate::ops::quantize::{Blocks, Dice, hadamard, quantize};

/// What x [rows, width] decodes to once it is quantised.
fn decoded(x: &[f32], size: [usize; 2], precision: Precision, blocks: Blocks) -> Result<Vec<f32>> {
    Ok(quantize(x, size, precision.values(), blocks, None)?.dequantize())
}

/// The same of a gradient.
fn decoded_gradient(
    dy: &[f32],
    size: [usize; 2],
    precision: Precision,
    blocks: Blocks,
    dice: Dice,
) -> Result<Vec<f32>> {
    let (format, dice) = precision.gradients(dice);
    Ok(quantize(dy, size, format, blocks, dice)?.dequantize())
}

/// A GPU that stores bf16 stores the transform so too.
pub fn as_stored(mut transformed: Vec<f32>) -> Vec<f32> {
    round_stored(&mut transformed);
    transformed
}

/// x as the forward pass multiplies it.
pub fn input(x: &[f32], size: [usize; 2], precision: Precision) -> Result<Vec<f32>> {
    decoded(x, size, precision, Blocks::Rows)
}

/// x along its rows, for weight gradients: [rows, inner] and how many rows.
pub fn turned(x: &[f32], [rows, inner]: [usize; 2], precision: Precision) -> Result<(Vec<f32>, usize)> {
    match precision {
        Precision::Fp8 => Ok((decoded(x, [rows, inner], precision, Blocks::Columns)?, rows)),
        Precision::Nvfp4 => {
            let rows = rows.next_multiple_of(16);
            let x = as_stored(hadamard(x, inner));
            Ok((decoded(&x, [rows, inner], precision, Blocks::Columns)?, rows))
        }
    }
}

impl Part {
    /// The part's rows of W, as products take them.
    pub fn weight(&self, w: &[f32], precision: Precision) -> Result<Vec<f32>> {
        let w = &w[self.first * self.inner..][..self.width * self.inner];
        decoded(w, [self.width, self.inner], precision, Blocks::Squares)
    }

    /// y = x·Wᵀ; `x` as [`input`] gives it, `w` as [`Part::weight`].
    pub fn forward(&self, x: &[f32], w: &[f32], y: &mut [f32]) {
        let w = Mat::new(w, self.width, self.inner).t();
        par_matmul(Mat::new(x, self.rows, self.inner), w, y, self.width, false);
    }

    /// dx = dy·W, or dx +=.
    pub fn input_grad(
        &self,
        dy: &[f32],
        w: &[f32],
        dx: &mut [f32],
        accumulate: bool,
        (precision, dice): (Precision, Dice),
    ) -> Result<()> {
        let dy = decoded_gradient(dy, [self.rows, self.width], precision, Blocks::Rows, dice)?;
        let w = Mat::new(w, self.width, self.inner);
        par_matmul(Mat::new(&dy, self.rows, self.width), w, dx, self.inner, accumulate);
        Ok(())
    }

    /// The part's rows of dW = dyᵀ·x, or +=; `x` as [`turned`] gives it.
    pub fn weight_grad(
        &self,
        dy: &[f32],
        (x, rows): (&[f32], usize),
        dw: &mut [f32],
        accumulate: bool,
        (precision, dice): (Precision, Dice),
    ) -> Result<()> {
        let transformed = (precision == Precision::Nvfp4).then(|| as_stored(hadamard(dy, self.width)));
        let dy = transformed.as_deref().unwrap_or(dy);
        let dy = decoded_gradient(dy, [rows, self.width], precision, Blocks::Columns, dice.columns())?;
        let dw = &mut dw[self.first * self.inner..][..self.width * self.inner];
        let dy = Mat::new(&dy, rows, self.width).t();
        par_matmul(dy, Mat::new(x, rows, self.inner), dw, self.inner, accumulate);
        Ok(())
    }
}
