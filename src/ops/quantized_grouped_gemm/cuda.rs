use std::sync::Arc;

use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Cuda, DeviceBuffer};
use crate::ops::gpu::{check, launch, own, room, size, sizes, symbol};
use crate::ops::quantize::cuda::{GpuQuantized, GpuStretches, quantize, stretches};
use crate::ops::quantize::{Blocks, Dice};
use crate::ops::quantized_linear::Precision;
use crate::ops::quantized_linear::cuda::name;
use crate::tensor::{DType, Tensor};

/// Rows of a tile of the products.
const TILE: usize = 128;

/// `offsets` [E + 1] and on, u32.
pub(super) fn quantized_grouped_gemm(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    x: &Var,
    weight: &Var,
    offsets: Tensor,
    (precision, dice): (Precision, Dice),
) -> Result<Var> {
    let (experts, out, inner) = (weight.dims()[0], weight.dims()[1], weight.dims()[2]);
    let (rows, dtype) = (x.dims()[0], x.value().dtype());
    check(
        "quantized_grouped_gemm",
        &[("weight", weight.value(), Some(dtype)), ("offsets", &offsets, Some(DType::U32))],
    )?;
    let sorted = Sorted { gpu: gpu.clone(), offsets, experts, rows, precision, dtype };
    let tiles = sorted.tiles(TILE)?;
    let (w, stride) = sorted.weights(weight.value(), [out, inner])?;
    let y = room(gpu, dtype, &[rows, out])?;
    let quantized = quantize(gpu, x.value(), [rows, inner], precision.values(), Blocks::Rows, None)?;
    sorted.product("nt", (&quantized, &w, stride), &y, [out, inner], &tiles)?;
    let (gpu, xv, w_dims) = (gpu.clone(), x.value().clone(), weight.dims().to_vec());
    Ok(tape.record1("quantized_grouped_gemm", &[x, weight], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if ctx.needs(0) {
            let dx = room(&gpu, dtype, xv.dims())?;
            let (format, dice) = precision.gradients(dice);
            let dy = quantize(&gpu, &dy, [rows, out], format, Blocks::Rows, dice)?;
            sorted.product("nn", (&dy, &w, stride), &dx, [inner, out], &tiles)?;
            ctx.add(0, dx);
        }
        if !ctx.needs(1) {
            return Ok(());
        }
        ctx.write(1, || room(&gpu, DType::F32, &w_dims), &mut |dw, accumulate| {
            own(dw, accumulate)?;
            sorted.weight_grad((&dy, out), (&xv, inner), dw, accumulate, dice.columns())
        })
    }))
}

/// Rows sorted by expert.
struct Sorted {
    gpu: Arc<Cuda>,
    offsets: Tensor,
    experts: usize,
    rows: usize,
    precision: Precision,
    dtype: DType,
}

impl Sorted {
    /// Rows that share a scale.
    fn edge(&self) -> usize {
        self.precision.values().block()
    }

    /// [E + 2]: tiles of `edge` rows before each expert.
    fn tiles(&self, edge: usize) -> Result<DeviceBuffer<u32>> {
        let tiles = self.gpu.buffer(self.experts + 2)?;
        let args = abi::GroupedTiles {
            offsets: self.offsets.ptr(),
            tiles: tiles.ptr(),
            experts: size(self.experts)?,
            rows: size(self.rows)?,
            edge: size(edge)?,
            unused: 0,
        };
        launch(&self.gpu, "grouped_gemm_tiles_u32", &args)?;
        Ok(tiles)
    }

    /// The experts' matrices, each from a new square on, and rows from one to the next.
    fn weights(&self, w: &Tensor, [out, inner]: [usize; 2]) -> Result<(GpuQuantized, usize)> {
        let edge = self.edge();
        let stride = out.next_multiple_of(edge);
        let mut apart = w.clone();
        if stride != out {
            let multiples = |of: usize, count: usize| sizes(&(0..count).map(|e| e * of).collect::<Vec<_>>());
            let offsets = self.gpu.constant(&multiples(out, self.experts + 1)?)?;
            let tiles = self.gpu.constant(&multiples(stride / edge, self.experts + 2)?)?;
            let to = GpuStretches {
                offsets: offsets.ptr(),
                tiles: tiles.ptr(),
                experts: self.experts,
                edge,
                rows: self.experts * stride,
            };
            apart = stretches(&self.gpu, w, inner, &to, false)?;
        }
        let size = [self.experts * stride, inner];
        Ok((quantize(&self.gpu, &apart, size, self.precision.values(), Blocks::Squares, None)?, stride))
    }

    /// c [rows, n] = a·W_eᵀ (nt) or a·W_e (nn), over k.
    fn product(
        &self,
        layout: &str,
        (a, w, stride): (&GpuQuantized, &GpuQuantized, usize),
        c: &Tensor,
        [n, k]: [usize; 2],
        tiles: &DeviceBuffer<u32>,
    ) -> Result<()> {
        let args = abi::QuantizedGroupedGemm {
            a: a.operand(),
            b: w.operand(),
            c: c.ptr(),
            offsets: self.offsets.ptr(),
            tiles: tiles.ptr(),
            rows: size(self.rows)?,
            n: size(n)?,
            k: size(k)?,
            experts: size(self.experts)?,
            stride: size(stride)?,
            unused: 0,
        };
        let kernel = format!("quantized_grouped_gemm_{}_{layout}", name(self.precision));
        launch(&self.gpu, &symbol(&kernel, self.dtype), &args)
    }

    fn weight_grad(
        &self,
        (dy, out): (&Tensor, usize),
        (x, inner): (&Tensor, usize),
        dw: &Tensor,
        accumulate: bool,
        dice: Dice,
    ) -> Result<()> {
        let (gpu, edge) = (&self.gpu, self.edge());
        let tiles = self.tiles(edge)?;
        // As many as the experts' rows can need, wherever they lie.
        let rows = (self.rows / edge + self.experts) * edge;
        let to = GpuStretches { offsets: self.offsets.ptr(), tiles: tiles.ptr(), experts: self.experts, edge, rows };
        let transformed = self.precision == Precision::Nvfp4;
        let (format, dice) = self.precision.gradients(dice);
        let dy = stretches(gpu, dy, out, &to, transformed)?;
        let dy = quantize(gpu, &dy, [rows, out], format, Blocks::Columns, dice)?;
        let x = stretches(gpu, x, inner, &to, transformed)?;
        let x = quantize(gpu, &x, [rows, inner], self.precision.values(), Blocks::Columns, None)?;
        let args = abi::QuantizedGroupedWeights {
            dy: dy.operand(),
            x: x.operand(),
            dw: dw.ptr(),
            tiles: tiles.ptr(),
            m: size(out)?,
            n: size(inner)?,
            experts: size(self.experts)?,
            accumulate: u32::from(accumulate),
        };
        launch(gpu, &format!("quantized_grouped_gemm_{}_tn_f32", name(self.precision)), &args)
    }
}
