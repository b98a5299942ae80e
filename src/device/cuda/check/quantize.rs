use super::super::embedded::abi;
use super::super::{CudaError, DeviceBuffer};
use super::bench::{Bench, Data, Float};
use super::masks::address;
use crate::Error;
use crate::numerics::{Fp8, fp4};
use crate::ops::quantize::{Blocks, Dice, Format, Scales, Stretches, cases, hadamard, quantize, reference};

/// Rows and columns: those of the op's cases, and more than one tile of each with whole rows of 16 bytes.
const SIZES: [(usize, usize); 10] =
    [(0, 4), (1, 1), (3, 5), (17, 33), (33, 130), (131, 36), (130, 264), (6, 7), (21, 27), (44, 16)];

/// Seed, step and first draw.
const DRAWS: (u64, u64, u64) = (7, 3, 1 << 33);

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for (rows, width) in SIZES {
            let x = dtype.round(&cases::input(rows, width).values);
            for format in cases::FORMATS {
                for blocks in cases::BLOCKS {
                    for stochastic in [false, true] {
                        let rounding = if stochastic { "stochastic" } else { "nearest" };
                        bench.case(format!("{rows}×{width} {}, {format:?} by {blocks:?}, {rounding}", dtype.name()));
                        one(bench, dtype, &x, [rows, width], format, blocks, stochastic)?;
                    }
                }
            }
            bench.case(format!("{rows}×{width} {}", dtype.name()));
            transformed(bench, dtype, &x, [rows, width])?;
        }
        // As many rows behind the sixteens, and columns behind the fours, as there can be; several blocks of columns.
        let sizes = (1..17).flat_map(|rows| (4..8).map(move |width| (rows, width)));
        for (rows, width) in sizes.chain([(19, 1030), (18, 2056)]) {
            bench.case(format!("{rows}×{width} {}", dtype.name()));
            transformed(bench, dtype, &dtype.round(&cases::input(rows, width).values), [rows, width])?;
        }
        off_16_bytes(bench, dtype)?;
        for width in [70, 72] {
            stretched(bench, dtype, width, &[3, 0, 137, 16], &[16, 128])?;
        }
        for (rows, width) in (1..17).flat_map(|rows| (4..8).map(move |width| (rows, width))) {
            stretched(bench, dtype, width, &[rows], &[16])?;
        }
        for width in [5, 8, 1027] {
            stretched(bench, dtype, width, &[1, 2, 4, 5, 6, 7, 8, 10, 0, 11, 12, 13, 14, 15, 17], &[16])?;
        }
        magnitudes(bench, dtype)?;
        zeros(bench, dtype)?;
        broken(bench, dtype)?;
        ties(bench, dtype)?;
        amax(bench, dtype)?;
    }
    Ok(())
}

/// Whole rows of 16 bytes that start off 16 bytes.
fn off_16_bytes(bench: &mut Bench, dtype: Float) -> Result<(), CudaError> {
    let (rows, width) = (5, 32);
    let x = dtype.round(&cases::input(rows, width).values);
    for format in cases::FORMATS {
        for blocks in cases::BLOCKS {
            bench.off_16_bytes(|bench| {
                bench.case(format!("{rows}×{width} {}, {format:?} by {blocks:?}", dtype.name()));
                one(bench, dtype, &x, [rows, width], format, blocks, false)
            })?;
        }
    }
    bench.off_16_bytes(|bench| {
        bench.case(format!("{rows}×{width} {}", dtype.name()));
        transformed(bench, dtype, &x, [rows, width])
    })?;
    bench.off_16_bytes(|bench| stretched(bench, dtype, width, &[rows, 3], &[16]))
}

/// Nothing but zeros.
fn zeros(bench: &mut Bench, dtype: Float) -> Result<(), CudaError> {
    for format in cases::FORMATS {
        for blocks in cases::BLOCKS {
            bench.case(format!("zeros in {}, {format:?} by {blocks:?}", dtype.name()));
            one(bench, dtype, &[0.0; 3 * 40], [3, 40], format, blocks, false)?;
        }
    }
    Ok(())
}

/// A NaN in one block, an infinity in another, values beyond what the format has; in rows whose last byte is half empty too.
fn broken(bench: &mut Bench, dtype: Float) -> Result<(), CudaError> {
    for (rows, width) in [(2, 300), (2, 301), (3, 303)] {
        for (name, what) in [("NaN", f32::NAN), ("infinity", f32::NEG_INFINITY), ("the largest", 3e38)] {
            let mut x = cases::input(rows, width).values;
            (x[5], x[width + 200]) = (what, what);
            for format in cases::FORMATS {
                for blocks in cases::BLOCKS {
                    bench.case(format!("{rows}×{width} with {name} in {}, {format:?} by {blocks:?}", dtype.name()));
                    one(bench, dtype, &dtype.round(&x), [rows, width], format, blocks, false)?;
                }
            }
        }
    }
    Ok(())
}

/// Values half way between two codes: those of even and of odd codes, subnormal and normal. The largest of every block is such
/// that the others are divided by a power of two (FP8) or by 448 (NVFP4), so that the ties are exact.
fn ties(bench: &mut Bench, dtype: Float) -> Result<(), CudaError> {
    const EDGE: usize = 128;
    for format in cases::FORMATS {
        let (decode, unit): (fn(u8) -> f32, f32) = match format {
            Format::Fp8(Fp8::E4m3) => (|code| Fp8::E4m3.decode(code), 1.0),
            Format::Fp8(Fp8::E5m2) => (|code| Fp8::E5m2.decode(code), 1.0),
            Format::Nvfp4 => (fp4::decode, 448.0),
        };
        let codes = match format {
            Format::Fp8(Fp8::E4m3) => 0x7E,
            Format::Fp8(Fp8::E5m2) => 0x7B,
            Format::Nvfp4 => 7,
        };
        let value = |at: usize| {
            let (row, column) = (at / EDGE, at % EDGE);
            if row % format.block() == column % format.block() {
                return unit * decode(codes); // one in every row, column and square of a block
            }
            let code = ((row * 5 + column) % usize::from(codes)) as u8;
            let sign = if row % 2 == 0 { 1.0 } else { -1.0 };
            sign * unit * (decode(code) + decode(code + 1)) / 2.0
        };
        let x: Vec<f32> = (0..EDGE * EDGE).map(value).collect();
        for blocks in cases::BLOCKS {
            bench.case(format!("ties in {}, {format:?} by {blocks:?}", dtype.name()));
            one(bench, dtype, &dtype.round(&x), [EDGE, EDGE], format, blocks, false)?;
        }
    }
    Ok(())
}

/// Values from the largest of their block down to those that vanish beside it, under both roundings.
fn magnitudes(bench: &mut Bench, dtype: Float) -> Result<(), CudaError> {
    const EDGE: usize = 64;
    let value = |at: usize| {
        let sign = if at.is_multiple_of(3) { -1.0 } else { 1.0 };
        sign * (1.0 + (at * 7 % 16) as f32 / 16.0) * 2f32.powi(-((at / EDGE + at) as i32 % 48))
    };
    let x: Vec<f32> = (0..EDGE * EDGE).map(value).collect();
    for format in cases::FORMATS {
        for blocks in cases::BLOCKS {
            for stochastic in [false, true] {
                bench.case(format!("all magnitudes in {}, {format:?} by {blocks:?}, {stochastic}", dtype.name()));
                one(bench, dtype, &dtype.round(&x), [EDGE, EDGE], format, blocks, stochastic)?;
            }
        }
    }
    Ok(())
}

fn one(
    bench: &mut Bench,
    dtype: Float,
    x: &[f32],
    [rows, width]: [usize; 2],
    format: Format,
    blocks: Blocks,
    stochastic: bool,
) -> Result<(), CudaError> {
    let symbol = symbol_of(format, blocks, dtype);
    if !bench.wants(|s| s == symbol || (format == Format::Nvfp4 && finds_scales(s))) {
        return Ok(());
    }
    let (seed, step, first) = DRAWS;
    let dice = stochastic.then(|| Dice::new(seed, step, first));
    let want = quantize(x, [rows, width], format, blocks, dice).map_err(bug)?;
    let device = bench.put(dtype, x)?;
    let got = bench.quantized(&device, dtype, [rows, width], format, blocks, dice.map(|_| DRAWS))?;
    bench.equal("codes", &got.codes.read()?, &want.codes);
    let of_tensor = got.tensor_scale.as_ref().map(DeviceBuffer::read).transpose()?;
    match (&want.scales, &got.scales) {
        (Scales::F32(want), DeviceScales::F32(got)) => bench.equal("scales", &bits(&got.read()?), &bits(want)),
        (Scales::E4m3 { codes, of_tensor: want }, DeviceScales::E4m3(got)) => {
            bench.equal("scales", &got.read()?, codes);
            bench.equal("the tensor's scale", &bits(&of_tensor.unwrap_or_default()), &bits(&[*want]));
        }
        _ => unreachable!("`quantized` makes the format's scales"),
    }
    if !stochastic && x.iter().all(|x| x.is_finite()) {
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let nearest = reference::quantize(&wide, width.max(1), format, blocks);
        bench.compare("decoded", &want.dequantize(), &nearest, 1e-7);
    }
    Ok(())
}

const TENSOR_SCALE: &str = "quantize_tensor_scale_f32";

fn amax_of(dtype: Float) -> String {
    format!("quantize_amax_{}", dtype.name())
}

/// Whether a kernel has to do with the scales of NVFP4 tensors.
fn finds_scales(symbol: &str) -> bool {
    symbol == TENSOR_SCALE || symbol.starts_with("quantize_amax")
}

fn symbol_of(format: Format, blocks: Blocks, dtype: Float) -> String {
    let values = if format == Format::Nvfp4 { "nvfp4" } else { "fp8" };
    let blocks = match blocks {
        Blocks::Rows => "rows",
        Blocks::Columns => "columns",
        Blocks::Squares => "squares",
    };
    format!("quantize_{values}_{blocks}_{}", dtype.name())
}

/// As integers, of which every NaN is the same.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).collect()
}

fn bug(error: Error) -> CudaError {
    CudaError::Table(error.to_string())
}

fn transformed(bench: &mut Bench, dtype: Float, x: &[f32], [rows, width]: [usize; 2]) -> Result<(), CudaError> {
    let symbol = format!("quantize_hadamard_{}", dtype.name());
    if !bench.wants(|s| s == symbol) {
        return Ok(());
    }
    let want = dtype.round(&hadamard(x, width));
    let device = bench.put(dtype, x)?;
    let y = bench.room(dtype, want.len())?;
    let args = abi::QuantizeHadamard { x: device.ptr(), y: y.ptr(), rows: rows as u32, width: width as u32 };
    bench.launch(&symbol, &args)?;
    let sums = |values: &[f32]| -> Vec<u32> { values.iter().map(|v| (v + 0.0).to_bits()).collect() };
    bench.equal("transformed", &sums(&y.read()?), &sums(&want));
    Ok(())
}

/// Rows of experts, each from a new edge on; zeros behind the last.
fn stretched(
    bench: &mut Bench,
    dtype: Float,
    width: usize,
    groups: &[usize],
    edges: &[usize],
) -> Result<(), CudaError> {
    let experts = groups.len();
    let offsets: Vec<usize> = (0..=experts).map(|e| groups[..e].iter().sum()).collect();
    let x = dtype.round(&cases::input(offsets[experts], width).values);
    let plain = edges.iter().map(|edge| (*edge, "stretches"));
    for (edge, kernel) in plain.chain([(16, "hadamard_stretches")]) {
        let symbol = format!("quantize_{kernel}_{}", dtype.name());
        if !bench.wants(|s| s == symbol) {
            continue;
        }
        bench.case(format!("{kernel} of {groups:?} rows of {width} to edges of {edge} in {}", dtype.name()));
        let stretches = Stretches::new(&offsets, edge);
        let tiles: Vec<u32> = stretches.starts.iter().map(|start| (start / edge) as u32).collect();
        let rows = stretches.rows() + 2 * edge;
        let mut want = match kernel {
            "stretches" => stretches.spread(&x, width),
            _ => dtype.round(&stretches.hadamard(&x, width)),
        };
        want.resize(rows * width, 0.0);
        let (device, y) = (bench.put(dtype, &x)?, bench.room(dtype, want.len())?);
        let starts = bench.cuda.upload(&offsets.iter().map(|at| *at as u32).collect::<Vec<_>>())?;
        let tiles = bench.cuda.upload(&tiles)?;
        let args = abi::QuantizeStretches {
            x: device.ptr(),
            y: y.ptr(),
            offsets: starts.ptr(),
            tiles: tiles.ptr(),
            rows: rows as u32,
            width: width as u32,
            experts: experts as u32,
            edge: edge as u32,
        };
        bench.launch(&symbol, &args)?;
        let sums = |values: &[f32]| -> Vec<u32> { values.iter().map(|v| (v + 0.0).to_bits()).collect() };
        bench.equal("spread", &sums(&y.read()?), &sums(&want));
    }
    Ok(())
}

/// More elements than a block takes, and the largest at either end.
fn amax(bench: &mut Bench, dtype: Float) -> Result<(), CudaError> {
    if !bench.wants(finds_scales) {
        return Ok(());
    }
    for (elements, at) in [(40_000, 39_999), (40_001, 40_000), (16_384 * 257, 16_384 * 256 + 1), (7, 0), (0, 0)] {
        let mut x = vec![0.5f32; elements];
        if let Some(x) = x.get_mut(at) {
            *x = -2688.0;
        }
        bench.case(format!("the largest of {elements} in {}", dtype.name()));
        let device = bench.put(dtype, &x)?;
        let scale = bench.tensor_scale(&device, dtype, elements)?;
        bench.equal("the tensor's scale", &scale.read()?, &[1.0f32]);
    }
    // At every place that a thread has: an odd number of steps, each of 16 bytes or of one element.
    let wide = if dtype == Float::F32 { 4 } else { 8 };
    for (of_step, elements) in [(wide, 7 * 256 * wide), (1, 7 * 256 - 1)] {
        for at in (0..7).flat_map(|step| (0..of_step).map(move |j| (step * 256 + 37 * (step + 1) % 256) * of_step + j))
        {
            let mut x = vec![0.5f32; elements];
            x[at] = 2688.0;
            bench.case(format!("the largest of {elements} at {at} in {}", dtype.name()));
            let device = bench.put(dtype, &x)?;
            let scale = bench.tensor_scale(&device, dtype, elements)?;
            bench.equal("the tensor's scale", &scale.read()?, &[1.0f32]);
        }
    }
    Ok(())
}

/// What `quantize` leaves on the device.
pub struct DeviceQuantized {
    pub codes: DeviceBuffer<u8>,
    pub scales: DeviceScales,
    pub tensor_scale: Option<DeviceBuffer<f32>>,
    pub format: Format,
    pub blocks: Blocks,
}

pub enum DeviceScales {
    F32(DeviceBuffer<f32>),
    E4m3(DeviceBuffer<u8>),
}

/// `format` of the kernels' arguments.
fn number(format: Format) -> u32 {
    u32::from(format == Format::Fp8(Fp8::E5m2))
}

impl DeviceQuantized {
    /// As an operand of a product.
    pub fn operand(&self) -> abi::QuantizedOperand {
        let (rows, columns) = self.blocks.extent(self.format);
        abi::QuantizedOperand {
            codes: self.codes.ptr(),
            scales: self.scales.ptr(),
            tensor_scale: address(&self.tensor_scale),
            format: number(self.format),
            block_rows: rows as u32,
            block_columns: columns as u32,
            unused: 0,
        }
    }
}

impl DeviceScales {
    pub fn ptr<P>(&self) -> *mut P {
        match self {
            DeviceScales::F32(buffer) => buffer.ptr(),
            DeviceScales::E4m3(buffer) => buffer.ptr(),
        }
    }
}

impl Bench<'_> {
    /// Runs the quantiser on x [rows, width]; `draws` are seed, step and first draw of stochastic rounding.
    pub fn quantized(
        &mut self,
        x: &Data,
        dtype: Float,
        [rows, width]: [usize; 2],
        format: Format,
        blocks: Blocks,
        draws: Option<(u64, u64, u64)>,
    ) -> Result<DeviceQuantized, CudaError> {
        let (block_rows, block_columns) = blocks.extent(format);
        let count = rows.div_ceil(block_rows) * width.div_ceil(block_columns);
        let codes = self.numbers::<u8>(rows * format.row_bytes(width))?;
        let (scales, tensor_scale) = match format {
            Format::Fp8(_) => (DeviceScales::F32(self.numbers(count)?), None),
            Format::Nvfp4 => {
                (DeviceScales::E4m3(self.numbers(count)?), Some(self.tensor_scale(x, dtype, rows * width)?))
            }
        };
        let (seed, step, first_draw) = draws.unwrap_or_default();
        let state = self.state(abi::StepState { seed, step, ..Default::default() })?;
        let args = abi::Quantize {
            x: x.ptr(),
            codes: codes.ptr(),
            scales: scales.ptr(),
            tensor_scale: address(&tensor_scale),
            state: if draws.is_some() { state.ptr() } else { std::ptr::null_mut() },
            first_draw,
            rows: rows as u32,
            width: width as u32,
            format: number(format),
            stochastic: u32::from(draws.is_some()),
        };
        self.launch(&symbol_of(format, blocks, dtype), &args)?;
        Ok(DeviceQuantized { codes, scales, tensor_scale, format, blocks })
    }

    /// The scale of an NVFP4 tensor.
    fn tensor_scale(&mut self, x: &Data, dtype: Float, elements: usize) -> Result<DeviceBuffer<f32>, CudaError> {
        let count = elements.div_ceil(16384);
        let partials = self.numbers::<u32>(count)?;
        let args = abi::QuantizeAmax { x: x.ptr(), partials: partials.ptr(), elements: elements as u64 };
        self.launch(&amax_of(dtype), &args)?;
        let tensor_scale = self.numbers::<f32>(1)?;
        let args = abi::QuantizeTensorScale {
            partials: partials.ptr(),
            tensor_scale: tensor_scale.ptr(),
            count: count as u32,
            unused: 0,
        };
        self.launch(TENSOR_SCALE, &args)?;
        Ok(tensor_scale)
    }
}
