//! One tensor in another format, with what that does to it.
//!
//! Values are read and converted some rows at a time; only the result of one tensor is held.

use rayon::prelude::*;

use crate::Result;
use crate::model::checkpoint::{DiskDtype, StoredTensor};
use crate::numerics::{Fp8, Rounding, fp4};

/// Elements that are read at a time, rounded to whole rows.
const CHUNK: usize = 1 << 20;

/// Neighbours in a row that share a scale in NVFP4.
pub const BLOCK: usize = 16;

/// A tensor's bytes in its new format.
pub struct Encoded {
    pub weight: Vec<u8>,
    /// NVFP4: e4m3, `[rows, width / 16]`; else empty.
    pub block_scales: Vec<u8>,
    /// What all values are multiplied with; 1 in formats without scales.
    pub tensor_scale: f32,
    pub error: Deviation,
}

/// How far values are from what they were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// Σ w².
    pub squares: f64,
    /// Σ (w − ŵ)².
    pub errors: f64,
    /// max |w|.
    pub largest: f32,
    /// max |w − ŵ|.
    pub largest_error: f32,
    /// Blocks with values that all became 0: their scale is below the smallest of e4m3.
    pub zeroed_blocks: u64,
}

impl Deviation {
    /// ‖W − Ŵ‖ / ‖W‖ in the Frobenius norm; 0 for a tensor of zeros.
    pub fn relative(&self) -> f64 {
        if self.squares > 0.0 { (self.errors / self.squares).sqrt() } else { 0.0 }
    }

    pub fn add(&mut self, other: &Deviation) {
        self.squares += other.squares;
        self.errors += other.errors;
        self.largest = self.largest.max(other.largest);
        self.largest_error = self.largest_error.max(other.largest_error);
        self.zeroed_blocks += other.zeroed_blocks;
    }

    fn of(values: &[f32], back: impl Iterator<Item = f32>) -> Deviation {
        let mut sums = Deviation::default();
        for (value, back) in values.iter().zip(back) {
            let error = value - back;
            sums.squares += f64::from(*value) * f64::from(*value);
            sums.errors += f64::from(error) * f64::from(error);
            sums.largest = sums.largest.max(value.abs());
            sums.largest_error = sums.largest_error.max(error.abs());
        }
        sums
    }
}

/// max |w|.
///
/// # Errors
/// Those of [`StoredTensor::read`].
pub fn largest(tensor: &StoredTensor<'_>) -> Result<f32> {
    let mut largest = 0.0f32;
    for_rows(tensor, &mut |_, values| {
        largest = values.iter().fold(largest, |largest, value| largest.max(value.abs()));
        Ok(())
    })?;
    Ok(largest)
}

/// Unscaled floats: F32, BF16, F16.
///
/// # Errors
/// Those of [`StoredTensor::read`], and where a value becomes infinite.
pub fn plain(tensor: &StoredTensor<'_>, dtype: DiskDtype) -> Result<Encoded> {
    let mut encoded = Encoded::new(Vec::with_capacity(tensor.elements() * dtype.bytes()), Vec::new(), 1.0);
    for_rows(tensor, &mut |first, values| {
        if let Some((index, value)) = dtype.first_unfit(values) {
            let found = format!("{value} at element {}", first + index);
            let expected = format!("numbers that are finite in {}", dtype.name());
            return Err(crate::Error::input(tensor.file(), &tensor.name, found, expected));
        }
        dtype.encode(values, &mut encoded.weight);
        encoded.error.add(&Deviation::of(values, values.iter().map(|value| dtype.round(*value))));
        Ok(())
    })?;
    Ok(encoded)
}

/// e4m3 with one scale: `largest` / 448, so that the tensor's largest value is e4m3's (Micikevicius et al., arXiv 2209.05433).
///
/// # Errors
/// Those of [`StoredTensor::read`].
pub fn fp8(tensor: &StoredTensor<'_>, largest: f32) -> Result<Encoded> {
    let scale = scale_of(largest, Fp8::E4m3.largest());
    let width = width(tensor);
    let mut encoded = Encoded::new(vec![0; tensor.elements()], Vec::new(), scale);
    for_rows(tensor, &mut |first, values| {
        let codes = &mut encoded.weight[first..][..values.len()];
        let rows = codes.par_chunks_mut(width).zip(values.par_chunks(width)).map(|(codes, values)| {
            let encode = |(code, value): (&mut u8, &f32)| *code = Fp8::E4m3.encode(value / scale, Rounding::Nearest);
            codes.iter_mut().zip(values).for_each(encode);
            Deviation::of(values, codes.iter().map(|code| Fp8::E4m3.decode(*code) * scale))
        });
        rows.collect::<Vec<_>>().iter().for_each(|row| encoded.error.add(row));
        Ok(())
    })?;
    Ok(encoded)
}

/// e2m1 values, two in a byte, the first in its lower half; an e4m3 scale for every 16 of a row, and one scale for the
/// tensor: `largest` / (448·6) (arXiv 2509.25149). The width is a multiple of 16.
///
/// # Errors
/// Those of [`StoredTensor::read`].
pub fn nvfp4(tensor: &StoredTensor<'_>, largest: f32) -> Result<Encoded> {
    let of_tensor = scale_of(largest, Fp8::E4m3.largest() * fp4::LARGEST);
    let width = width(tensor);
    let (bytes, blocks) = (width / 2, width / BLOCK);
    let elements = tensor.elements();
    let mut encoded = Encoded::new(vec![0; elements / 2], vec![0; elements / BLOCK], of_tensor);
    for_rows(tensor, &mut |first, values| {
        let codes = encoded.weight[first / 2..][..values.len() / 2].par_chunks_mut(bytes);
        let scales = encoded.block_scales[first / BLOCK..][..values.len() / BLOCK].par_chunks_mut(blocks);
        let rows = codes.zip(scales).zip(values.par_chunks(width)).map(|((codes, scales), values)| {
            let mut sums = Deviation::default();
            let blocks = codes.chunks_exact_mut(BLOCK / 2).zip(scales).zip(values.chunks_exact(BLOCK));
            blocks.for_each(|((codes, scale), values)| sums.add(&nvfp4_block(values, of_tensor, codes, scale)));
            sums
        });
        rows.collect::<Vec<_>>().iter().for_each(|row| encoded.error.add(row));
        Ok(())
    })?;
    Ok(encoded)
}

/// One block; `codes` are 0 before. A block whose scale rounds to 0 stays 0.
fn nvfp4_block(values: &[f32], of_tensor: f32, codes: &mut [u8], scale: &mut u8) -> Deviation {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    *scale = Fp8::E4m3.encode(largest / fp4::LARGEST / of_tensor, Rounding::Nearest);
    let unit = Fp8::E4m3.decode(*scale) * of_tensor;
    if unit == 0.0 {
        let zeros = std::iter::repeat_n(0.0, values.len());
        return Deviation { zeroed_blocks: u64::from(largest > 0.0), ..Deviation::of(values, zeros) };
    }
    let (pairs, _) = values.as_chunks::<2>();
    for (code, pair) in codes.iter_mut().zip(pairs) {
        let [low, high] = pair.map(|value| fp4::encode(value / unit, Rounding::Nearest));
        *code = low | high << 4;
    }
    let back = codes.iter().flat_map(|code| [fp4::decode(code & 0xF) * unit, fp4::decode(code >> 4) * unit]);
    Deviation::of(values, back)
}

impl Encoded {
    fn new(weight: Vec<u8>, block_scales: Vec<u8>, tensor_scale: f32) -> Encoded {
        Encoded { weight, block_scales, tensor_scale, error: Deviation::default() }
    }
}

/// Elements of a row.
fn width(tensor: &StoredTensor<'_>) -> usize {
    tensor.shape.last().copied().unwrap_or(1).max(1)
}

/// `largest` as the format's largest. A tensor of zeros has the scale 1; so has one below f32's normal numbers, which all
/// become 0.
fn scale_of(largest: f32, of_format: f32) -> f32 {
    let scale = largest / of_format;
    if scale < f32::MIN_POSITIVE { 1.0 } else { scale }
}

/// Calls `with` with the number of the first element and some whole rows, until all were read.
fn for_rows(tensor: &StoredTensor<'_>, with: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
    let (elements, width) = (tensor.elements(), width(tensor));
    let step = (CHUNK / width).max(1) * width;
    let mut buffer = vec![0.0; step.min(elements)];
    for first in (0..elements).step_by(step) {
        let values = &mut buffer[..step.min(elements - first)];
        tensor.read(first, values)?;
        with(first, values)?;
    }
    Ok(())
}
