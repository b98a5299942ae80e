//! The quantisers, and what comes before them: largest magnitudes, Hadamard transforms, experts' rows set apart.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{self, Codes, F32, Room, Words};
use super::super::workload::{Float, Set, Workload, floats, room};
use super::grouped_gemm::Spread;

/// Elements whose largest magnitude one block finds.
const TILE: usize = 16384;
/// Of the rows that are set apart.
const EXPERTS: usize = 4;

/// A matrix as the quantisers leave it. `blocks` are as in the kernels' names.
#[derive(Clone, Copy)]
pub(super) struct Quantized {
    values: &'static str,
    blocks: &'static str,
    rows: usize,
    width: usize,
}

impl Quantized {
    pub fn new(values: &'static str, blocks: &'static str, [rows, width]: [usize; 2]) -> Quantized {
        Quantized { values, blocks, rows, width }
    }

    fn block(self) -> usize {
        if self.values == "fp8" { 128 } else { 16 }
    }

    /// Rows and columns that share a scale.
    fn extent(self) -> [usize; 2] {
        match self.blocks {
            "rows" => [1, self.block()],
            "columns" => [self.block(), 1],
            _ => [self.block(), self.block()],
        }
    }

    /// Bytes of the codes, and of the scales.
    pub fn bytes(self) -> [usize; 2] {
        let [down, across] = self.extent();
        let scales = self.rows.div_ceil(down) * self.width.div_ceil(across);
        match self.values {
            "fp8" => [self.rows * self.width, 4 * scales],
            _ => [self.rows * self.width.div_ceil(2), scales],
        }
    }

    /// Three buffers: codes, scales, the tensor's scale.
    pub fn contents(self) -> [Contents; 3] {
        let [codes, scales] = self.bytes();
        let scales = if self.values == "fp8" { F32(scales / 4) } else { Codes(scales) };
        [Codes(codes), scales, one()]
    }

    /// As an operand whose buffers begin at `first`.
    pub fn operand(self, set: &Set, first: usize) -> abi::QuantizedOperand {
        let [block_rows, block_columns] = self.extent();
        abi::QuantizedOperand {
            codes: set.at(first),
            scales: set.at(first + 1),
            tensor_scale: set.at(first + 2),
            format: 0,
            block_rows: block_rows as u32,
            block_columns: block_columns as u32,
            unused: 0,
        }
    }
}

fn one() -> Contents {
    Words(vec![1f32.to_bits()])
}

/// R, W.
pub fn quantize(shape: &[usize]) -> Vec<Workload> {
    let size = [shape[0], shape[1]];
    let mut all = vec![tensor_scale((size[0] * size[1]).div_ceil(TILE))];
    for dtype in Float::BOTH {
        all.extend([amax(dtype, size[0] * size[1]), hadamard(dtype, size)]);
        all.extend([("stretches", 128), ("hadamard_stretches", 16)].map(|kernel| stretches(dtype, kernel, size)));
        for values in ["fp8", "nvfp4"] {
            all.extend(["rows", "columns", "squares"].map(|blocks| codes(dtype, Quantized::new(values, blocks, size))));
        }
    }
    all
}

fn tensor_scale(count: usize) -> Workload {
    let buffers = vec![Words(vec![1f32.to_bits(); count]), Room(4)];
    Workload::new("quantize_tensor_scale_f32", [4 * count + 4, count], buffers, move |set| abi::QuantizeTensorScale {
        partials: set.at(0),
        tensor_scale: set.at(1),
        count: count as u32,
        unused: 0,
    })
}

fn amax(dtype: Float, n: usize) -> Workload {
    let partials = 4 * n.div_ceil(TILE);
    let buffers = vec![floats(dtype, n), Room(partials)];
    Workload::of("quantize_amax", dtype, [dtype.bytes() * n + partials, n], buffers, move |set| abi::QuantizeAmax {
        x: set.at(0),
        partials: set.at(1),
        elements: n as u64,
    })
}

fn hadamard(dtype: Float, [rows, width]: [usize; 2]) -> Workload {
    let (from, to) = (rows * width, rows.next_multiple_of(16) * width);
    let buffers = vec![floats(dtype, from), room(dtype, to)];
    let sizes = [dtype.bytes() * (from + to), 4 * from];
    Workload::of("quantize_hadamard", dtype, sizes, buffers, move |set| abi::QuantizeHadamard {
        x: set.at(0),
        y: set.at(1),
        rows: rows as u32,
        width: width as u32,
    })
}

/// `kernel` and its edge.
fn stretches(dtype: Float, (kernel, edge): (&str, usize), [rows, width]: [usize; 2]) -> Workload {
    let spread = Spread::new(rows, EXPERTS, edge);
    let apart = spread.tiles[EXPERTS] as usize * edge;
    let mut buffers = vec![floats(dtype, rows * width), room(dtype, apart * width)];
    buffers.extend(spread.contents());
    let flops = if kernel == "stretches" { 0 } else { 4 * rows * width };
    let sizes = [dtype.bytes() * (rows + apart) * width, flops];
    Workload::of(&format!("quantize_{kernel}"), dtype, sizes, buffers, move |set| abi::QuantizeStretches {
        x: set.at(0),
        y: set.at(1),
        offsets: set.at(2),
        tiles: set.at(3),
        rows: apart as u32,
        width: width as u32,
        experts: EXPERTS as u32,
        edge: edge as u32,
    })
}

fn codes(dtype: Float, of: Quantized) -> Workload {
    let (n, [codes, scales]) = (of.rows * of.width, of.bytes());
    let buffers = vec![floats(dtype, n), Room(codes), Room(scales), one()];
    let symbol = format!("quantize_{}_{}", of.values, of.blocks);
    Workload::of(&symbol, dtype, [dtype.bytes() * n + codes + scales, n], buffers, move |set| abi::Quantize {
        x: set.at(0),
        codes: set.at(1),
        scales: set.at(2),
        tensor_scale: set.at(3),
        state: null_mut(),
        first_draw: 0,
        rows: of.rows as u32,
        width: of.width as u32,
        format: 0,
        stochastic: 0,
    })
}
