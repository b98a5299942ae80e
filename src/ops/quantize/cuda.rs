use std::sync::Arc;

use super::{Blocks, Dice, Format, Quantized, Scales};
use crate::Result;
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Cuda, DeviceBuffer};
use crate::numerics::Fp8;
use crate::ops::gpu::{launch, room, size, symbol};
use crate::ops::gumbel_softmax::cuda::state;
use crate::tensor::Tensor;

/// Elements that a block of `quantize_amax` looks at.
const AMAX_ELEMENTS: usize = 16384;

/// A matrix of codes on a GPU, with its scales.
pub struct GpuQuantized {
    format: Format,
    blocks: Blocks,
    codes: DeviceBuffer<u8>,
    /// f32 of FP8, e4m3 of NVFP4.
    scales: DeviceBuffer<u8>,
    of_tensor: Option<DeviceBuffer<f32>>,
}

impl GpuQuantized {
    /// The same in this machine's memory; `rows` and `width` are the matrix's.
    pub fn to_host(&self, [rows, width]: [usize; 2]) -> Result<Quantized> {
        let scales = self.scales.read()?;
        let scales = match &self.of_tensor {
            Some(of_tensor) => Scales::E4m3 { codes: scales, of_tensor: of_tensor.read()?[0] },
            None => Scales::F32(scales.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        };
        Ok(Quantized { format: self.format, blocks: self.blocks, rows, width, codes: self.codes.read()?, scales })
    }

    /// As kernels of products take it.
    pub fn operand(&self) -> abi::QuantizedOperand {
        let (rows, columns) = self.blocks.extent(self.format);
        abi::QuantizedOperand {
            codes: self.codes.ptr(),
            scales: self.scales.ptr(),
            tensor_scale: address(&self.of_tensor),
            format: number(self.format),
            block_rows: rows as u32,
            block_columns: columns as u32,
            unused: 0,
        }
    }
}

/// The tensor's scale, null where the format has none.
fn address(of_tensor: &Option<DeviceBuffer<f32>>) -> *mut f32 {
    of_tensor.as_ref().map_or(std::ptr::null_mut(), DeviceBuffer::ptr)
}

/// `format` of the kernels' arguments.
fn number(format: Format) -> u32 {
    u32::from(format == Format::Fp8(Fp8::E5m2))
}

/// The kernel's name without its dtype.
fn kernel(format: Format, blocks: Blocks) -> String {
    let values = if format == Format::Nvfp4 { "nvfp4" } else { "fp8" };
    let blocks = match blocks {
        Blocks::Rows => "rows",
        Blocks::Columns => "columns",
        Blocks::Squares => "squares",
    };
    format!("quantize_{values}_{blocks}")
}

/// Quantises `x` [rows, width], f32 or bf16, as [`super::quantize`] does; the bits are the same.
pub fn quantize(
    gpu: &Arc<Cuda>,
    x: &Tensor,
    [rows, width]: [usize; 2],
    format: Format,
    blocks: Blocks,
    dice: Option<Dice>,
) -> Result<GpuQuantized> {
    let (block_rows, block_columns) = blocks.extent(format);
    let count = rows.div_ceil(block_rows) * width.div_ceil(block_columns);
    let of_tensor = (format == Format::Nvfp4).then(|| tensor_scale(gpu, x, rows * width)).transpose()?;
    let codes = gpu.buffer(rows * format.row_bytes(width))?;
    let scales = gpu.buffer(if format == Format::Nvfp4 { count } else { 4 * count })?;
    let random = dice.map(|dice| state(gpu, abi::StepState { seed: dice.seed, step: dice.step, ..Default::default() }));
    let random = random.transpose()?;
    let args = abi::Quantize {
        x: x.ptr(),
        codes: codes.ptr(),
        scales: scales.ptr(),
        tensor_scale: address(&of_tensor),
        state: random.as_ref().map_or(std::ptr::null(), |state| state.ptr()),
        first_draw: dice.map_or(0, |dice| dice.first),
        rows: size(rows)?,
        width: size(width)?,
        format: number(format),
        stochastic: u32::from(dice.is_some()),
    };
    launch(gpu, &symbol(&kernel(format, blocks), x.dtype()), &args)?;
    Ok(GpuQuantized { format, blocks, codes, scales, of_tensor })
}

/// The scale of an NVFP4 tensor.
fn tensor_scale(gpu: &Cuda, x: &Tensor, elements: usize) -> Result<DeviceBuffer<f32>> {
    let count = elements.div_ceil(AMAX_ELEMENTS);
    let (partials, tensor_scale) = (gpu.buffer::<u32>(count)?, gpu.buffer(1)?);
    let args = abi::QuantizeAmax { x: x.ptr(), partials: partials.ptr(), elements: elements as u64 };
    launch(gpu, &symbol("quantize_amax", x.dtype()), &args)?;
    let args = abi::QuantizeTensorScale {
        partials: partials.ptr(),
        tensor_scale: tensor_scale.ptr(),
        count: size(count)?,
        unused: 0,
    };
    launch(gpu, "quantize_tensor_scale_f32", &args)?;
    Ok(tensor_scale)
}

/// x [rows, width] transformed as [`super::hadamard`] does, in its own dtype.
pub fn hadamard(gpu: &Arc<Cuda>, x: &Tensor, [rows, width]: [usize; 2]) -> Result<Tensor> {
    let y = room(gpu, x.dtype(), &[rows.next_multiple_of(16), width])?;
    let args = abi::QuantizeHadamard { x: x.ptr(), y: y.ptr(), rows: size(rows)?, width: size(width)? };
    launch(gpu, &symbol("quantize_hadamard", x.dtype()), &args)?;
    Ok(y)
}

/// Where experts' rows lie, and where they go, in device memory.
pub struct GpuStretches {
    /// [E + 1].
    pub offsets: *const u32,
    /// [E + 2], of `edge`.
    pub tiles: *const u32,
    pub experts: usize,
    pub edge: usize,
    /// Room for them all: a multiple of `edge`.
    pub rows: usize,
}

/// x [.., width] as [`super::Stretches`] lays it, zeros behind; transformed where asked for.
pub fn stretches(gpu: &Arc<Cuda>, x: &Tensor, width: usize, to: &GpuStretches, transformed: bool) -> Result<Tensor> {
    let y = room(gpu, x.dtype(), &[to.rows, width])?;
    let args = abi::QuantizeStretches {
        x: x.ptr(),
        y: y.ptr(),
        offsets: to.offsets,
        tiles: to.tiles,
        rows: size(to.rows)?,
        width: size(width)?,
        experts: size(to.experts)?,
        edge: size(to.edge)?,
    };
    let kernel = if transformed { "quantize_hadamard_stretches" } else { "quantize_stretches" };
    launch(gpu, &symbol(kernel, x.dtype()), &args)?;
    Ok(y)
}
