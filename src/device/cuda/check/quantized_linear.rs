use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Data, Float};
use super::quantize::{DeviceQuantized, DeviceScales};
use crate::Error;
use crate::autograd::check::Generator;
use crate::numerics::Fp8;
use crate::ops::quantize::{Blocks, Format, Quantized, Scales, quantize};
use crate::ops::quantized_linear::reference;

/// M, N, K: one, off the tiles, whole tiles of rows that 16 bytes divide, several blocks of scales, nothing to add,
/// more rows of tiles than run in a patch, whole sixteens of everything, one sixteen to sum over.
const SIZES: [(usize, usize, usize); 9] = [
    (1, 1, 1),
    (37, 50, 67),
    (24, 129, 100),
    (130, 144, 160),
    (20, 8, 0),
    (17, 136, 272),
    (1100, 136, 8),
    (16, 48, 80),
    (16, 48, 16),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    let (e4m3, e5m2) = (Format::Fp8(Fp8::E4m3), Format::Fp8(Fp8::E5m2));
    for dtype in bench.dtypes() {
        for layout in ["nt", "nn", "tn"] {
            if layout == "tn" && dtype == Float::Bf16 {
                continue; // gradients of weights are f32
            }
            for format in [e4m3, e5m2, Format::Nvfp4] {
                for (a_coded, broken) in [(true, false), (true, true), (false, false), (false, true)] {
                    every_code(bench, dtype, layout, format, a_coded, broken)?;
                }
            }
            for (at, size) in SIZES.into_iter().enumerate() {
                for (a, b) in [(e4m3, e4m3), (e5m2, e4m3), (Format::Nvfp4, Format::Nvfp4)] {
                    one(bench, dtype, layout, size, [a, b], at % 2 == 1)?;
                }
            }
            // As many codes in a thread's last sixteen as there can be, in the first step of k and in a later one.
            let beyond = (1..16).flat_map(|n| [(n, 16 + n, n), (16 + n, n, 32 + n)]);
            // The last row and the last column in every eight that a warp has.
            let ends = (0..32).map(|at| (8 * (at / 4) + 5, 8 * (at % 4) + 1 + at % 7, 8 + at % 3));
            for (at, size) in beyond.chain(ends).enumerate() {
                for format in [e4m3, Format::Nvfp4] {
                    one(bench, dtype, layout, size, [format, format], at % 4 < 2)?;
                }
            }
            for format in [e4m3, Format::Nvfp4] {
                for accumulate in [false, true] {
                    bench.off_16_bytes(|bench| one(bench, dtype, layout, (7, 16, 32), [format, format], accumulate))?;
                }
            }
        }
    }
    Ok(())
}

fn symbol_of(format: Format, layout: &str, dtype: Float) -> String {
    let name = if format == Format::Nvfp4 { "nvfp4" } else { "fp8" };
    format!("quantized_linear_{name}_{layout}_{}", dtype.name())
}

/// Where the operands' rows run along k, and the blocks that share a scale.
pub fn layout_of(layout: &str, squares_first: bool) -> OperandLayout {
    let blocks = match layout {
        "tn" => [Blocks::Columns, Blocks::Columns],
        // Weights have squares; both sorts where both are taken.
        "nt" if squares_first => [Blocks::Squares, Blocks::Rows],
        _ => [Blocks::Rows, Blocks::Squares],
    };
    ([layout != "tn", layout == "nt"], blocks)
}

/// One operand has every code that there is, at every place that a thread may have it. The other is the identity: the product
/// is what the codes decode to, exactly. `broken`: NaN and infinities are among them, each in a row of C of its own, and the
/// other operand is all ones: times 0, infinities would be NaN as well.
fn every_code(
    bench: &mut Bench,
    dtype: Float,
    layout: &str,
    format: Format,
    a_coded: bool,
    broken: bool,
) -> Result<(), CudaError> {
    const DEPTH: usize = 32;
    let symbol = symbol_of(format, layout, dtype);
    if !bench.wants(|s| s == symbol) {
        return Ok(());
    }
    let which = if a_coded { "A" } else { "B" };
    bench.case(format!("{layout}, every code of {format:?} in {which}, broken ones {broken}, in {}", dtype.name()));
    let codes = EveryCode::new(format, layout_of(layout, !a_coded), a_coded, broken, DEPTH);
    let (a, b) = (upload(bench, &codes.a)?, upload(bench, &codes.b)?);
    let [m, n] = codes.size;
    let c = bench.room(dtype, m * n)?;
    launch(bench, &symbol, [&a, &b], &c, [m, n, DEPTH], false)?;
    codes.hold(bench, &c.read()?);
    Ok(())
}

/// Whether the operands' rows run along k, and the blocks that share a scale.
pub type OperandLayout = ([bool; 2], [Blocks; 2]);

/// The operands of [`every_code`], and what their product is.
pub struct EveryCode {
    pub a: Quantized,
    pub b: Quantized,
    /// M, N.
    pub size: [usize; 2],
    broken: bool,
    want: Vec<f64>,
}

impl EveryCode {
    pub fn new(format: Format, (along, blocks): OperandLayout, a_coded: bool, broken: bool, depth: usize) -> EveryCode {
        const EDGES: usize = 256;
        let coded = |at: usize| coded(format, blocks[at], [EDGES, depth], along[at], broken);
        let other = |at: usize| ones(format, blocks[at], depth, along[at], broken);
        let (a, b) = if a_coded { (coded(0), other(1)) } else { (other(0), coded(1)) };
        let size = if a_coded { [EDGES, depth] } else { [depth, EDGES] };
        let want = reference::product(&a, &b, along[0], along[1]);
        EveryCode { a, b, size, broken, want }
    }

    /// Holds C against the product.
    pub fn hold(&self, bench: &mut Bench, got: &[f32]) {
        // All NaN are the same, and so are both zeros: sums of zeros have either sign. Finite sums of rounded numbers are not
        // what broken codes are about.
        let bits = |v: f32| match () {
            _ if v.is_nan() => u32::MAX,
            _ if self.broken && v.is_finite() => 0,
            _ => (v + 0.0).to_bits(),
        };
        let got: Vec<u32> = got.iter().map(|v| bits(*v)).collect();
        bench.equal("C", &got, &self.want.iter().map(|v| bits(*v as f32)).collect::<Vec<_>>());
    }
}

/// An operand of `edges` rows of A (or columns of B) and `depth` steps of k whose codes, and NVFP4's scales, go through all
/// that there are. Scales of FP8 are powers of 2: products stay exact.
fn coded(format: Format, blocks: Blocks, [edges, depth]: [usize; 2], along: bool, broken: bool) -> Quantized {
    // What breaks a row of C stands on diagonals, so that it comes to every place and leaves some rows alone.
    let breaks = |edge: usize, from: usize| broken && (16..176).contains(&edge) && (edge - 16) % 32 == from;
    let fp8 = |fp8: Fp8, code: u8, breaks: bool| {
        let (largest, beyond) = match fp8 {
            Fp8::E4m3 => (0x7E, &[0x7F, 0xFF][..]),
            Fp8::E5m2 => (0x7B, &[0x7C, 0xFC, 0x7D, 0xFE, 0x7F][..]),
        };
        if breaks { beyond[code as usize % beyond.len()] } else { code & 0x80 | (code & 0x7F).min(largest) }
    };
    let code = |edge: usize, k: usize| match format {
        // One diagonal for each of the codes that break.
        Format::Fp8(kind) if breaks(edge, k) => fp8(kind, ((edge - 16) / 32) as u8, true),
        Format::Fp8(kind) => fp8(kind, (edge + k) as u8, false),
        // Positive, where a scale that breaks makes all of a block infinite or NaN.
        Format::Nvfp4 if broken => (edge + k) as u8 % 7 + 1,
        Format::Nvfp4 => (edge + k) as u8 & 0xF,
    };
    let (down, across) = blocks.extent(format);
    let (rows, width) = if along { (edges, depth) } else { (depth, edges) };
    let place = |row: usize, column: usize| if along { (row, column) } else { (column, row) };
    // Of each block, where it starts.
    let starts: Vec<(usize, usize)> = (0..rows)
        .step_by(down)
        .flat_map(|row| (0..width).step_by(across).map(move |column| place(row, column)))
        .collect();
    let scales = match format {
        Format::Fp8(_) => Scales::F32(starts.iter().map(|(edge, _)| 2f32.powi(*edge as i32 % 7 - 3)).collect()),
        Format::Nvfp4 => {
            let scale = |(edge, k): &(usize, usize)| {
                let code = (edge + 37 * k / 16) as u8;
                fp8(Fp8::E4m3, if broken { code & 0x7F } else { code }, breaks(*edge / 16 * 16, *k))
            };
            Scales::E4m3 { codes: starts.iter().map(scale).collect(), of_tensor: 0.25 }
        }
    };
    let codes = stored(format, [rows, width], |row, column| {
        let (edge, k) = place(row, column);
        code(edge, k)
    });
    Quantized { format, blocks, rows, width, codes, scales }
}

/// [size, size] with ones on the diagonal, or throughout.
fn ones(format: Format, blocks: Blocks, size: usize, along: bool, throughout: bool) -> Quantized {
    let mut ones = coded(format, blocks, [size, size], along, false);
    const E4M3_ONE: u8 = 0x38;
    let one = match format {
        Format::Fp8(Fp8::E4m3) => E4M3_ONE,
        Format::Fp8(Fp8::E5m2) => 0x3C,
        Format::Nvfp4 => 2,
    };
    ones.codes = stored(format, [size, size], |row, column| if throughout || row == column { one } else { 0 });
    match &mut ones.scales {
        Scales::F32(scales) => scales.fill(1.0),
        Scales::E4m3 { codes, of_tensor } => {
            codes.fill(E4M3_ONE);
            *of_tensor = 1.0;
        }
    }
    ones
}

/// Codes as a matrix of the format stores them.
fn stored(format: Format, [rows, width]: [usize; 2], code: impl Fn(usize, usize) -> u8) -> Vec<u8> {
    let bytes = format.row_bytes(width);
    let mut codes = vec![0; rows * bytes];
    for row in 0..rows {
        for column in 0..width {
            match format {
                Format::Fp8(_) => codes[row * bytes + column] = code(row, column),
                Format::Nvfp4 => codes[row * bytes + column / 2] |= code(row, column) << (column % 2 * 4),
            }
        }
    }
    codes
}

pub fn upload(bench: &Bench, q: &Quantized) -> Result<DeviceQuantized, CudaError> {
    let (scales, tensor_scale) = match &q.scales {
        Scales::F32(scales) => (DeviceScales::F32(bench.cuda.upload(scales)?), None),
        Scales::E4m3 { codes, of_tensor } => {
            (DeviceScales::E4m3(bench.cuda.upload(codes)?), Some(bench.cuda.upload(&[*of_tensor])?))
        }
    };
    let codes = bench.cuda.upload(&q.codes)?;
    Ok(DeviceQuantized { codes, scales, tensor_scale, format: q.format, blocks: q.blocks })
}

fn launch(
    bench: &mut Bench,
    symbol: &str,
    [a, b]: [&DeviceQuantized; 2],
    c: &Data,
    [m, n, k]: [usize; 3],
    accumulate: bool,
) -> Result<(), CudaError> {
    let args = abi::QuantizedLinear {
        a: a.operand(),
        b: b.operand(),
        c: c.ptr(),
        m: m as u32,
        n: n as u32,
        k: k as u32,
        ldc: n as u32,
        accumulate: u32::from(accumulate),
        unused: 0,
    };
    bench.launch(symbol, &args)
}

/// What the quantiser makes of random numbers, at sizes that no tile divides.
fn one(
    bench: &mut Bench,
    dtype: Float,
    layout: &str,
    (m, n, k): (usize, usize, usize),
    [format_a, format_b]: [Format; 2],
    accumulate: bool,
) -> Result<(), CudaError> {
    let symbol = symbol_of(format_a, layout, dtype);
    if !bench.wants(|s| s == symbol) {
        return Ok(());
    }
    bench.case(format!("{layout} {m}×{n}×{k} of {format_a:?} and {format_b:?} in {}", dtype.name()));
    let ([along_a, along_b], [a_blocks, b_blocks]) = layout_of(layout, accumulate);
    let a_size = if along_a { [m, k] } else { [k, m] };
    let b_size = if along_b { [n, k] } else { [k, n] };
    let mut generator = Generator::new((m * 1000 + n) as u64);
    let a = Float::Bf16.round(&generator.normal("a", &a_size, 1.0).values);
    let b = Float::Bf16.round(&generator.normal("b", &b_size, 0.3).values);
    let start = dtype.round(&generator.normal("c", &[m, n], 1.0).values);
    let bug = |e: Error| CudaError::Table(e.to_string());
    let exact = reference::product(
        &quantize(&a, a_size, format_a, a_blocks, None).map_err(bug)?,
        &quantize(&b, b_size, format_b, b_blocks, None).map_err(bug)?,
        along_a,
        along_b,
    );
    let add = |(at, v): (usize, &f64)| v + if accumulate { f64::from(start[at]) } else { 0.0 };
    let want: Vec<f64> = exact.iter().enumerate().map(add).collect();

    let (a, b) = (bench.put(Float::Bf16, &a)?, bench.put(Float::Bf16, &b)?);
    let a = bench.quantized(&a, Float::Bf16, a_size, format_a, a_blocks, None)?;
    let b = bench.quantized(&b, Float::Bf16, b_size, format_b, b_blocks, None)?;
    let c = bench.put(dtype, &start)?;
    launch(bench, &symbol, [&a, &b], &c, [m, n, k], accumulate)?;
    bench.compare("C", &c.read()?, &want, dtype.tolerance().value);
    Ok(())
}
