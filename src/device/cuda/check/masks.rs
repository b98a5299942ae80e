use super::super::embedded::abi;
use super::super::{CudaError, DeviceBuffer};
use super::bench::{Bench, Data, Float};
use crate::autograd::Draws;
use crate::autograd::check::MaskSpec;

/// Masks over `width` components that a kernel should meet: none; one draw with a candidate of width 0 where there is room;
/// sequences of three draws; rows of three draws in any order, of up to
/// 32 candidates; draws whose intervals begin again, as those of heads in groups do: few times, and often, at every place of
/// a 16-byte access. With the number of draws.
pub fn masks(rows: usize, width: usize) -> Vec<Option<(MaskSpec, usize)>> {
    let mut ends = vec![width / 4, width / 3, width / 2, width];
    ends.dedup();
    // Of nine columns, so that one ends at every place of a 16-byte access.
    let mut many: Vec<usize> = (1..=width / 9).take(31).map(|i| 9 * i).filter(|end| *end < width).collect();
    many.push(width);
    let length = rows.div_ceil(3).max(1);
    let sequences = Draws::Sequences { length, of_sequence: [2, 0, 1].as_slice().into() };
    let scattered = Draws::Rows((0..rows as u32).map(|row| row * 7 % 3).collect());
    let one = MaskSpec { ends: if width > 8 { vec![0, width / 2, width] } else { vec![width] }, draws: Draws::One };
    let mut masks = vec![
        None,
        Some((one, 1)),
        Some((MaskSpec { ends: ends.clone(), draws: sequences }, 3)),
        Some((MaskSpec { ends: many, draws: scattered }, 3)),
    ];
    if let Some(times) = (2..width).find(|n| width.is_multiple_of(*n)) {
        let period = width / times;
        let ends = vec![period.div_ceil(3), period];
        masks.push(Some((MaskSpec { ends, draws: Draws::One }, 1)));
    }
    if let Some(period) = (5..width / 3).step_by(2).find(|period| width.is_multiple_of(*period)) {
        let draws = Draws::Rows((0..rows as u32).map(|row| row * 5 % 2).collect());
        masks.push(Some((MaskSpec { ends: vec![period / 2, period], draws }, 2)));
    }
    masks
}

/// A mask on the device.
pub struct DeviceMask {
    ends: Option<DeviceBuffer<u32>>,
    keep: Option<Data>,
    pub draw: Option<DeviceBuffer<u32>>,
    length: u32,
    pub candidates: usize,
    draws: usize,
}

impl DeviceMask {
    /// The mask as kernels take it; all ones where there is none.
    pub fn abi(&self) -> abi::Mask {
        abi::Mask {
            ends: address(&self.ends),
            keep: optional(&self.keep),
            draw: address(&self.draw),
            length: self.length,
            candidates: self.candidates as u32,
        }
    }

    /// The arguments of the second pass over [rows, C] sums. `parts` rows of sums belong to a row of the mask.
    pub fn grad(&self, row_sums: &Data, partials: &Data, out: *mut f32, rows: usize, parts: usize) -> abi::MaskGrad {
        abi::MaskGrad {
            row_sums: row_sums.ptr(),
            draw: address(&self.draw),
            partials: partials.ptr(),
            out,
            length: self.length * parts as u32,
            rows: rows as u32,
            draws: self.draws as u32,
            candidates: self.candidates as u32,
            accumulate: 0,
            unused: 0,
        }
    }

    pub fn is_some(&self) -> bool {
        self.candidates > 0
    }
}

/// A buffer's address, or null.
pub fn address<T: bytemuck::Pod, P>(buffer: &Option<DeviceBuffer<T>>) -> *mut P {
    buffer.as_ref().map_or(std::ptr::null_mut(), DeviceBuffer::ptr)
}

impl Bench<'_> {
    /// Uploads a mask; `keep` is [draws, C].
    pub fn mask(&self, spec: Option<&MaskSpec>, keep: &[f32]) -> Result<DeviceMask, CudaError> {
        let Some(spec) = spec else {
            return Ok(DeviceMask { ends: None, keep: None, draw: None, length: 1, candidates: 0, draws: 0 });
        };
        let (draw, length) = match &spec.draws {
            Draws::One => (None, 1),
            Draws::Sequences { length, of_sequence } => (Some(self.cuda.upload(of_sequence)?), *length as u32),
            Draws::Rows(of_row) => (Some(self.cuda.upload(of_row)?), 1),
            Draws::Gpu(_) => unreachable!("checks know their draws"),
        };
        let ends: Vec<u32> = spec.ends.iter().map(|end| *end as u32).collect();
        Ok(DeviceMask {
            ends: Some(self.cuda.upload(&ends)?),
            keep: Some(self.put(Float::F32, keep)?),
            draw,
            length,
            candidates: ends.len(),
            draws: keep.len() / ends.len(),
        })
    }

    /// Room for a row's sums per interval; `None` without a mask.
    pub fn row_sums(&self, mask: &DeviceMask, rows: usize) -> Result<Option<Data>, CudaError> {
        mask.is_some().then(|| self.room(Float::F32, rows * mask.candidates)).transpose()
    }

    /// The second pass: rows' sums [rows, C] to the gradient [draws, C]. `parts` rows of sums belong to a row of the mask.
    pub fn mask_grad(
        &mut self,
        mask: &DeviceMask,
        row_sums: &Data,
        rows: usize,
        parts: usize,
    ) -> Result<Vec<f32>, CudaError> {
        let out = self.room(Float::F32, mask.draws * mask.candidates)?;
        let partials = self.room(Float::F32, rows.div_ceil(1024) * mask.draws * mask.candidates)?;
        let args = mask.grad(row_sums, &partials, out.ptr(), rows, parts);
        self.launch("mask_grad_tiles_f32", &args)?;
        self.launch("mask_grad_total_f32", &args)?;
        out.read()
    }

    /// The second pass of weight gradients: partials [rows, width] to their sums.
    pub fn column_sum(&mut self, partials: &Data, rows: usize, width: usize) -> Result<Vec<f32>, CudaError> {
        let out = self.room(Float::F32, width)?;
        let args = abi::ColumnSum {
            partials: partials.ptr(),
            out: out.ptr(),
            rows: rows as u32,
            width: width as u32,
            ..Default::default()
        };
        self.launch("column_sum_rows_f32", &args)?;
        out.read()
    }
}

/// An optional tensor's address.
pub fn optional<P>(data: &Option<Data>) -> *mut P {
    data.as_ref().map_or(std::ptr::null_mut(), Data::ptr)
}

/// `x` [rows, width] with NaN wherever `masked_out(row, column)`: what a mask of exactly 0 must turn into exactly 0.
pub fn planted(x: &[f32], width: usize, masked_out: impl Fn(usize, usize) -> bool) -> Vec<f32> {
    let value = |(at, x): (usize, &f32)| if masked_out(at / width, at % width) { f32::NAN } else { *x };
    x.iter().enumerate().map(value).collect()
}
