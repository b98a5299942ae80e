//! What the ops' GPU code shares: launching, masks, and the second passes of reductions.

use std::sync::Arc;

use crate::autograd::{Draws, Mask, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Arguments, Constant, Cuda, CudaError};
use crate::tensor::{DType, Segments, Tensor};
use crate::{Error, Result};

/// Launches a kernel.
///
/// An op's code makes the arguments from tensors whose shapes and dtypes its contract has checked, and which are alive: that is
/// what keeps kernels inside their memory. A buffer that is freed meanwhile is written by later launches alone.
pub fn launch<A: Arguments>(gpu: &Cuda, symbol: &str, args: &A) -> Result<()> {
    // SAFETY: see above.
    Ok(unsafe { gpu.launch(symbol, args) }?)
}

/// `op_variant_dtype`, for the kernel of a tensor's dtype.
pub fn symbol(kernel: &str, dtype: DType) -> String {
    let kind = match dtype {
        DType::Bf16 => "bf16",
        _ => "f32",
    };
    format!("{kernel}_{kind}")
}

/// A size as kernels take it.
pub fn size(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| {
        let (symbol, found) = ("a kernel".into(), format!("a size of {value}"));
        CudaError::Limit { symbol, found, limit: "below 2^32".into() }.into()
    })
}

/// Numbers as kernels take them.
pub fn sizes(values: &[usize]) -> Result<Vec<u32>> {
    values.iter().map(|value| size(*value)).collect()
}

/// Row offsets [S + 1] on the device.
pub fn offsets(gpu: &Cuda, segments: &Segments) -> Result<Constant> {
    Ok(gpu.constant(&sizes(segments.offsets())?)?)
}

/// [S + 1]: Σ over the segments before of ⌈rows / `tile`⌉.
pub fn tiles(gpu: &Cuda, segments: &Segments, tile: usize) -> Result<Constant> {
    let mut sums = vec![0];
    for rows in segments.iter() {
        sums.push(sums[sums.len() - 1] + rows.len().div_ceil(tile));
    }
    Ok(gpu.constant(&sizes(&sums)?)?)
}

/// Refuses inputs that are not on a GPU, or not of the dtype that the kernels of the op take there. `None` is any dtype.
pub fn check(op: &'static str, inputs: &[(&'static str, &Tensor, Option<DType>)]) -> Result<()> {
    for (name, tensor, dtype) in inputs {
        if tensor.gpu().is_none() {
            return Err(Error::contract(op, name, tensor, "a tensor on the GPU that the others are on"));
        }
        if let Some(dtype) = dtype.filter(|dtype| tensor.dtype() != *dtype) {
            return Err(Error::contract(op, name, tensor, format!("{dtype:?}, as the kernel reads it")));
        }
    }
    Ok(())
}

/// A tensor of any contents beside the op's other ones.
pub fn room(gpu: &Arc<Cuda>, dtype: DType, dims: &[usize]) -> Result<Tensor> {
    Tensor::unwritten_on(gpu, dtype, dims)
}

/// Makes a gradient ready to be written by a kernel, in full or by adding.
pub fn own(sum: &mut Tensor, accumulate: bool) -> Result<()> {
    if sum.is_unique() {
        return Ok(());
    }
    if accumulate {
        return sum.make_unique();
    }
    if let Some(gpu) = sum.gpu().cloned() {
        *sum = Tensor::unwritten_on(&gpu, sum.dtype(), sum.shape().clone())?;
    }
    Ok(())
}

/// Rows that a block walks, where it leaves one partial sum: enough blocks to fill a device, and few sums.
pub fn rows_per_block(rows: usize) -> usize {
    rows.div_ceil(1024).clamp(1, 64)
}

/// Σ over partial sums [parts, width] → `[width]`.
pub fn column_sum(gpu: &Arc<Cuda>, partials: &Tensor, parts: usize, width: usize) -> Result<Tensor> {
    let out = room(gpu, DType::F32, &[width])?;
    let args = abi::ColumnSum {
        partials: partials.ptr(),
        out: out.ptr(),
        rows: size(parts)?,
        width: size(width)?,
        ..Default::default()
    };
    launch(gpu, "column_sum_rows_f32", &args)?;
    Ok(out)
}

/// Which draw each row belongs to, as kernels take it.
#[derive(Clone)]
pub struct DrawTable {
    draw: DrawOf,
    /// Rows of one entry.
    pub length: u32,
}

#[derive(Clone)]
enum DrawOf {
    One,
    Constant(Constant),
    Rows(Tensor),
}

impl DrawTable {
    pub fn new(gpu: &Cuda, draws: &Draws) -> Result<DrawTable> {
        let (draw, length) = match draws {
            Draws::One => (DrawOf::One, 1),
            Draws::Sequences { length, of_sequence } => (DrawOf::Constant(gpu.constant(of_sequence)?), size(*length)?),
            Draws::Rows(of_row) => (DrawOf::Constant(gpu.constant(of_row)?), 1),
            Draws::Gpu(of_row) => (DrawOf::Rows(of_row.clone()), 1),
        };
        Ok(DrawTable { draw, length })
    }

    /// The entries' address; null where there is one draw.
    pub fn ptr(&self) -> *const u32 {
        match &self.draw {
            DrawOf::One => std::ptr::null(),
            DrawOf::Constant(constant) => constant.ptr(),
            DrawOf::Rows(rows) => rows.ptr(),
        }
    }
}

/// A lane looks after each candidate.
const MOST_CANDIDATES: usize = 32;

/// A mask as kernels take it; all ones where there is none.
#[derive(Clone)]
pub struct GpuMask {
    ends: Option<Constant>,
    keep: Option<Tensor>,
    draw: DrawTable,
    candidates: usize,
    draws: usize,
}

impl GpuMask {
    /// A mask over an axis of `width` components and `rows` rows.
    ///
    /// # Errors
    /// Where it does not fit, or its probabilities are not on the GPU.
    pub fn new(gpu: &Arc<Cuda>, mask: Option<&Mask>, width: usize, rows: usize) -> Result<GpuMask> {
        let Some(mask) = mask else {
            let draw = DrawTable::new(gpu, &Draws::One)?;
            return Ok(GpuMask { ends: None, keep: None, draw, candidates: 0, draws: 0 });
        };
        mask.check(width, rows)?;
        if mask.ends.len() > MOST_CANDIDATES {
            let expected = format!("at most {MOST_CANDIDATES} candidates on a GPU");
            return Err(Error::contract("mask", "ends", mask.ends.len(), expected));
        }
        check("mask", &[("keep", mask.keep.value(), Some(DType::F32))])?;
        Ok(GpuMask {
            ends: Some(gpu.constant(&sizes(&mask.ends)?)?),
            keep: Some(mask.keep.value().clone()),
            draw: DrawTable::new(gpu, &mask.draws)?,
            candidates: mask.ends.len(),
            draws: mask.keep.dims()[0],
        })
    }

    pub fn abi(&self) -> abi::Mask {
        abi::Mask {
            ends: self.ends.as_ref().map_or(std::ptr::null(), |ends| ends.ptr()),
            keep: self.keep.as_ref().map_or(std::ptr::null(), |keep| keep.ptr()),
            draw: self.draw.ptr(),
            length: self.draw.length,
            candidates: self.candidates as u32,
        }
    }

    /// Room for rows' sums per interval; `None` without a mask.
    pub fn row_sums(&self, gpu: &Arc<Cuda>, rows: usize) -> Result<Option<Tensor>> {
        (self.candidates > 0).then(|| room(gpu, DType::F32, &[rows, self.candidates])).transpose()
    }

    /// Rows' sums [rows, C] to the gradient [draws, C]. `parts` rows of sums belong to a row of the mask.
    pub fn grad(&self, gpu: &Arc<Cuda>, row_sums: &Tensor, rows: usize, parts: usize) -> Result<Tensor> {
        let out = room(gpu, DType::F32, &[self.draws, self.candidates])?;
        let partials = room(gpu, DType::F32, &[rows.div_ceil(1024), self.draws, self.candidates])?;
        let args = abi::MaskGrad {
            row_sums: row_sums.ptr(),
            draw: self.draw.ptr(),
            partials: partials.ptr(),
            out: out.ptr(),
            length: size(self.draw.length as usize * parts)?,
            rows: size(rows)?,
            draws: size(self.draws)?,
            candidates: size(self.candidates)?,
            accumulate: 0,
            unused: 0,
        };
        launch(gpu, "mask_grad_tiles_f32", &args)?;
        launch(gpu, "mask_grad_total_f32", &args)?;
        Ok(out)
    }
}

/// An input that may be absent.
pub fn none() -> Var {
    Var::constant(Tensor::zeros([0]))
}

/// The probabilities of a mask as an input of a recorded op.
pub fn keep_of(mask: Option<&Mask>) -> Var {
    mask.map_or_else(none, |mask| mask.keep.clone())
}

/// A tensor's address, or null.
pub fn optional<P>(tensor: &Option<Tensor>) -> *mut P {
    tensor.as_ref().map_or(std::ptr::null_mut(), Tensor::ptr)
}
