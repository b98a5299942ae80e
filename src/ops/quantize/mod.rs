//! From f32 to 8-bit and 4-bit floats with a scale per block, and back.
//!
//! FP8 (arXiv 2209.05433): code = round(x / scale), scale = largest / 448 (e4m3) or / 57344 (e5m2), one per 128 neighbours in
//! a row or column or per 128×128 square, as in DeepSeek-V3 (arXiv 2412.19437). NVFP4 (arXiv 2509.25149): e2m1 values, two
//! in a byte, the first in its lower half; a scale in e4m3 per 16 neighbours or 16×16 square, and one f32 scale for the
//! tensor: x ≈ code·scale·tensor scale.
//!
//! A block whose scale rounds to 0 decodes to 0. A block with a NaN or an infinity decodes to NaN throughout: what is broken
//! shows. CUDA's kernels (cuda/quantize.cu) give the same bits.

pub mod cases;
mod cpu;
pub(in crate::ops) mod cuda;
mod hadamard;
pub mod reference;
mod stretches;

use crate::numerics::{Fp8, Philox, fp4};
use crate::{Error, Result};

pub use hadamard::hadamard;
pub use stretches::Stretches;

/// What an element becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Fp8(Fp8),
    Nvfp4,
}

impl Format {
    /// Neighbours that share a scale; squares have as many rows and columns.
    pub const fn block(self) -> usize {
        match self {
            Format::Fp8(_) => 128,
            Format::Nvfp4 => 16,
        }
    }

    /// Bytes of a row of `width` codes.
    pub const fn row_bytes(self, width: usize) -> usize {
        match self {
            Format::Fp8(_) => width,
            Format::Nvfp4 => width.div_ceil(2),
        }
    }
}

/// Which elements share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Neighbours in a row: activations and gradients, where products run along rows.
    Rows,
    /// Neighbours in a column: the same, where products run along columns, as those of weight gradients do.
    Columns,
    /// Squares: weights, so that W and Wᵀ quantise alike.
    Squares,
}

impl Blocks {
    /// Rows and columns of a block of `format`.
    pub const fn extent(self, format: Format) -> (usize, usize) {
        match self {
            Blocks::Rows => (1, format.block()),
            Blocks::Columns => (format.block(), 1),
            Blocks::Squares => (format.block(), format.block()),
        }
    }
}

/// The random words of one tensor's stochastic rounding: element (r, j) of [R, W] takes word j mod 4 of index
/// `first` + r·⌈W / 4⌉ + ⌊j / 4⌋ of the step's stream.
#[derive(Clone, Copy, Debug)]
pub struct Dice {
    pub seed: u64,
    pub step: u64,
    pub first: u64,
}

impl Dice {
    pub fn new(seed: u64, step: u64, first: u64) -> Dice {
        Dice { seed, step, first }
    }

    /// The words of the same tensor quantised by columns, behind all of those by rows.
    pub fn columns(self) -> Dice {
        Dice { first: self.first.wrapping_add(1 << 34), ..self }
    }

    /// The words of part `i` of a tensor.
    pub fn part(self, i: usize) -> Dice {
        Dice { first: self.first.wrapping_add((i as u64) << 35), ..self }
    }

    /// Streams of quantisers lie apart from those of other draws, which are the steps themselves.
    fn noise(&self) -> Philox {
        Philox::new(self.seed, (1 << 63) + self.step)
    }
}

/// Scales of blocks, row by row of blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    F32(Vec<f32>),
    /// NVFP4: e4m3, in units of the tensor's scale.
    E4m3 {
        codes: Vec<u8>,
        of_tensor: f32,
    },
}

/// A matrix of codes [rows, width] with its scales.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantized {
    pub format: Format,
    pub blocks: Blocks,
    pub rows: usize,
    pub width: usize,
    /// `format.row_bytes(width)` bytes a row.
    pub codes: Vec<u8>,
    pub scales: Scales,
}

/// Quantises `x` [rows, width]; to the nearest without `dice`.
///
/// # Errors
/// [`Error::Contract`] where `x` has another length.
pub fn quantize(
    x: &[f32],
    [rows, width]: [usize; 2],
    format: Format,
    blocks: Blocks,
    dice: Option<Dice>,
) -> Result<Quantized> {
    if Some(x.len()) != rows.checked_mul(width) {
        return Err(Error::contract("quantize", "x", [x.len()], format!("{rows}·{width} elements")));
    }
    let (codes, scales) = cpu::quantize(x, width, format, blocks, dice);
    Ok(Quantized { format, blocks, rows, width, codes, scales })
}

impl Quantized {
    /// The code of an element.
    pub fn code(&self, row: usize, column: usize) -> u8 {
        let bytes = &self.codes[row * self.format.row_bytes(self.width)..];
        match self.format {
            Format::Fp8(_) => bytes[column],
            Format::Nvfp4 => bytes[column / 2] >> (column % 2 * 4) & 0xF,
        }
    }

    /// An element's value, without rounding.
    pub fn exact(&self, row: usize, column: usize) -> f64 {
        let code = self.code(row, column);
        let (rows, columns) = self.blocks.extent(self.format);
        let block = row / rows * self.width.div_ceil(columns) + column / columns;
        match (&self.scales, self.format) {
            (Scales::F32(scales), Format::Fp8(format)) => f64::from(format.decode(code)) * f64::from(scales[block]),
            (Scales::E4m3 { codes, of_tensor }, _) => {
                let scale = f64::from(Fp8::E4m3.decode(codes[block])) * f64::from(*of_tensor);
                f64::from(fp4::decode(code)) * scale
            }
            (Scales::F32(_), Format::Nvfp4) => unreachable!("`quantize` gives NVFP4 scales in e4m3"),
        }
    }

    /// The matrix in f32, rounded once.
    pub fn dequantize(&self) -> Vec<f32> {
        cpu::dequantize(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_the_nearest_value_to_the_bit() {
        for (rows, width) in [(3, 5), (17, 33), (33, 130)] {
            let x = cases::input(rows, width).values;
            let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
            for format in cases::FORMATS {
                for blocks in cases::BLOCKS {
                    let got = quantize(&x, [rows, width], format, blocks, None).unwrap().dequantize();
                    let want = reference::quantize(&wide, width, format, blocks);
                    let off = got.iter().zip(&want).position(|(got, want)| *got != *want as f32);
                    assert_eq!(off, None, "{rows}×{width} {format:?} {blocks:?}");
                }
            }
        }
    }

    #[test]
    fn stochastic_rounding_has_the_right_mean_and_stays_beside_the_value() {
        let (rows, width) = (16, 32);
        let x = crate::autograd::check::Generator::new(1).normal("x", &[rows, width], 1.0).values;
        for format in cases::FORMATS {
            let mut sum = vec![0f64; x.len()];
            let draws = 400;
            for step in 0..draws {
                let dice = Some(Dice::new(7, step, 0));
                let got = quantize(&x, [rows, width], format, Blocks::Rows, dice).unwrap().dequantize();
                sum.iter_mut().zip(&got).for_each(|(sum, got)| *sum += f64::from(*got) / draws as f64);
            }
            let off: f64 = sum.iter().zip(&x).map(|(mean, x)| (mean - f64::from(*x)).powi(2)).sum();
            let nearest = quantize(&x, [rows, width], format, Blocks::Rows, None).unwrap().dequantize();
            let nearest: f64 = nearest.iter().zip(&x).map(|(got, x)| f64::from(got - x).powi(2)).sum();
            assert!(off < nearest / 30.0, "{format:?}: the mean is off by {off}, the nearest by {nearest}");
        }
    }

    #[test]
    fn weights_quantise_like_their_transpose() {
        let (rows, width) = (50, 140);
        let x = cases::input(rows, width).values;
        let turned: Vec<f32> = (0..x.len()).map(|at| x[at % rows * width + at / rows]).collect();
        for format in cases::FORMATS {
            let a = quantize(&x, [rows, width], format, Blocks::Squares, None).unwrap();
            let b = quantize(&turned, [width, rows], format, Blocks::Squares, None).unwrap();
            assert!((0..rows).all(|r| (0..width).all(|c| a.exact(r, c) == b.exact(c, r))), "{format:?}");
        }
    }

    #[test]
    fn broken_blocks_decode_to_nan_and_zeros_to_zero() {
        for broken in [f32::NAN, f32::INFINITY] {
            let mut x = vec![1.0; 2 * 256];
            x[3] = broken;
            let codes = quantize(&x, [2, 256], Format::Fp8(Fp8::E4m3), Blocks::Rows, None).unwrap().dequantize();
            assert!(codes[..128].iter().all(|v| v.is_nan()) && codes[128..].iter().all(|v| *v == 1.0));
            let codes = quantize(&x, [2, 256], Format::Nvfp4, Blocks::Rows, None).unwrap().dequantize();
            assert!(codes.iter().all(|v| v.is_nan()), "the tensor's scale is broken too");
        }
        for format in cases::FORMATS {
            let zeros = quantize(&[0.0, -0.0, 0.0], [1, 3], format, Blocks::Squares, None).unwrap();
            assert!(zeros.dequantize().iter().all(|v| *v == 0.0));
        }
        assert!(quantize(&[1.0], [2, 3], Format::Nvfp4, Blocks::Rows, None).is_err());
        let small = quantize(&[1e6, 1e-6], [2, 1], Format::Nvfp4, Blocks::Rows, None).unwrap();
        assert_eq!((small.code(1, 0), small.dequantize()), (0, vec![1e6, 0.0]), "a scale that rounds to 0");
    }
}
