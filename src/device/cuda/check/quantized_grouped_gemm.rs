use super::super::embedded::abi;
use super::super::{CudaError, DeviceBuffer};
use super::bench::{Bench, Float};
use super::grouped_gemm::tiles;
use super::quantize::DeviceQuantized;
use super::quantized_linear::{EveryCode, layout_of, upload};
use crate::autograd::check::Generator;
use crate::numerics::Fp8;
use crate::ops::quantize::{Blocks, Dice, Format, Quantized, Stretches, quantize};
use crate::ops::quantized_linear::Precision;
use crate::{Error, Result};

/// Rows of each expert, rows behind them, out, in.
type Size<'s> = (&'s [usize], usize, usize, usize);

const SIZES: [Size; 11] = [
    (&[3, 0, 70, 65], 5, 33, 20),
    (&[130, 0, 1, 16], 9, 40, 130),
    (&[0, 0], 7, 16, 33),
    (&[5], 0, 130, 72),
    (&[9, 140], 0, 144, 160), // rows that 16 bytes divide
    (&[6, 3], 2, 272, 32),
    // More tiles of rows, and of rows of the weights, than run in a patch.
    (&[1100], 0, 8, 9),
    (&[3], 0, 1100, 5),
    // One expert, and rows behind its own.
    (&[20], 150, 9, 33),
    // Whole sixteens of everything.
    (&[16, 160], 0, 48, 80),
    // One sixteen to sum over.
    (&[16, 160], 0, 48, 16),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for precision in [Precision::Fp8, Precision::Nvfp4] {
            let name = if precision == Precision::Fp8 { "fp8" } else { "nvfp4" };
            if !bench.wants(|s| s.starts_with(&format!("quantized_grouped_gemm_{name}"))) {
                continue;
            }
            for size in SIZES {
                let (groups, behind, out, inner) = size;
                bench.case(format!("{name}, experts of {groups:?} rows, {behind} behind, {inner} → {out}"));
                Problem::new(dtype, precision, size).check(bench, name)?;
            }
            // As many codes in a thread's last sixteen as there can be, in the first step of k and in a later one.
            for beyond in 1..16 {
                let (rows, many) = ([beyond], [8 * beyond - 3]);
                let sizes = [(&rows[..], 0, 16 + beyond, beyond), (&many[..], 0, 8 * beyond + beyond % 4, 32 + beyond)];
                for size in sizes {
                    bench.case(format!("{name}, one expert of {:?} rows, {} → {}", size.0, size.3, size.2));
                    Problem::new(dtype, precision, size).check(bench, name)?;
                }
            }
            bench.off_16_bytes(|bench| {
                bench.case(format!("{name}, one expert of 7 rows, 32 → 16"));
                Problem::new(dtype, precision, (&[7], 0, 16, 32)).check(bench, name)
            })?;
            let formats = match precision {
                Precision::Fp8 => &[Format::Fp8(Fp8::E4m3), Format::Fp8(Fp8::E5m2)][..],
                _ => &[Format::Nvfp4],
            };
            for format in formats {
                for layout in ["nt", "nn", "tn"] {
                    for (a_coded, broken) in [(true, false), (true, true), (false, false), (false, true)] {
                        every_code(bench, dtype, layout, (name, *format), a_coded, broken)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// One operand has every code that there is, the other is the identity, as of `quantized_linear`: all of one expert.
fn every_code(
    bench: &mut Bench,
    dtype: Float,
    layout: &str,
    (name, format): (&str, Format),
    a_coded: bool,
    broken: bool,
) -> Result<(), CudaError> {
    let symbol = format!("quantized_grouped_gemm_{name}_{layout}_{}", dtype.name());
    if !bench.wants(|s| s == symbol) || (layout == "tn" && dtype == Float::Bf16) {
        return Ok(()); // gradients of weights are f32
    }
    let which = if a_coded { "A" } else { "B" };
    bench.case(format!("{layout}, every code of {format:?} in {which}, broken ones {broken}, in {}", dtype.name()));
    // What tn sums over are whole blocks of scales.
    let depth = if layout == "tn" { format.block().max(32) } else { 32 };
    let codes = EveryCode::new(format, layout_of(layout, false), a_coded, broken, depth);
    let (a, b) = (upload(bench, &codes.a)?, upload(bench, &codes.b)?);
    let [m, n] = codes.size;
    let rows = if layout == "tn" { depth } else { m };
    let offsets = bench.cuda.upload(&[0, rows as u32])?;
    let tiles = tiles(bench, &offsets, [1, rows], if layout == "tn" { format.block() } else { 128 })?;
    let c = bench.room(dtype, m * n)?;
    if layout == "tn" {
        let args = abi::QuantizedGroupedWeights {
            dy: a.operand(),
            x: b.operand(),
            dw: c.ptr(),
            tiles: tiles.ptr(),
            m: m as u32,
            n: n as u32,
            experts: 1,
            accumulate: 0,
        };
        bench.launch(&symbol, &args)?;
    } else {
        let args = abi::QuantizedGroupedGemm {
            a: a.operand(),
            b: b.operand(),
            c: c.ptr(),
            offsets: offsets.ptr(),
            tiles: tiles.ptr(),
            rows: rows as u32,
            n: n as u32,
            k: depth as u32,
            experts: 1,
            stride: n as u32,
            unused: 0,
        };
        bench.launch(&symbol, &args)?;
    }
    codes.hold(bench, &c.read()?);
    Ok(())
}

/// One set of operands: what is quantised is what bf16 holds.
struct Problem {
    dtype: Float,
    precision: Precision,
    offsets: Vec<usize>,
    rows: usize,
    out: usize,
    inner: usize,
    x: Vec<f32>,
    w: Vec<f32>,
    dy: Vec<f32>,
}

impl Problem {
    fn new(dtype: Float, precision: Precision, (groups, behind, out, inner): Size) -> Problem {
        let offsets: Vec<usize> = (0..=groups.len()).map(|e| groups[..e].iter().sum()).collect();
        let filled = offsets[groups.len()];
        let mut generator = Generator::new((filled + out) as u64);
        let mut some = |dims: &[usize], std| Float::Bf16.round(&generator.normal("", dims, std).values);
        // Rows behind the experts' are zeros, as moe_permute and moe_combine leave them: NVFP4's tensor scale sees them.
        let mut rows = |width: usize| {
            let mut rows = some(&[filled, width], 1.0);
            rows.resize((filled + behind) * width, 0.0);
            rows
        };
        let (x, dy) = (rows(inner), rows(out));
        let w = some(&[groups.len(), out, inner], 0.3);
        Problem { dtype, precision, offsets, rows: filled + behind, out, inner, x, w, dy }
    }

    fn experts(&self) -> usize {
        self.offsets.len() - 1
    }

    fn host(&self, x: &[f32], size: [usize; 2], blocks: Blocks, gradient: bool) -> Result<Quantized, CudaError> {
        quantize(x, size, self.format(gradient), blocks, None).map_err(bug)
    }

    fn format(&self, gradient: bool) -> Format {
        if gradient { self.precision.gradients(Dice::new(0, 0, 0)).0 } else { self.precision.values() }
    }

    fn device(
        &self,
        bench: &mut Bench,
        x: &[f32],
        size: [usize; 2],
        blocks: Blocks,
        gradient: bool,
    ) -> Result<DeviceQuantized, CudaError> {
        let x = bench.put(Float::Bf16, x)?;
        bench.quantized(&x, Float::Bf16, size, self.format(gradient), blocks, None)
    }

    fn check(&self, bench: &mut Bench, name: &str) -> Result<(), CudaError> {
        let edge = self.precision.values().block();
        let multiples: Vec<usize> = (0..=self.experts()).map(|e| e * self.out).collect();
        let matrices = Stretches::new(&multiples, edge);
        let apart = matrices.spread(&self.w, self.inner);
        let stride = self.out.next_multiple_of(edge);
        let size = [matrices.rows(), self.inner];
        let w = self.host(&apart, size, Blocks::Squares, false)?;
        let device_w = self.device(bench, &apart, size, Blocks::Squares, false)?;
        // y = x·Wᵀ, then dx = dy·W.
        for (layout, from, [n, k]) in
            [("nt", &self.x, [self.out, self.inner]), ("nn", &self.dy, [self.inner, self.out])]
        {
            let gradient = layout == "nn";
            let a = self.host(from, [self.rows, k], Blocks::Rows, gradient)?;
            let device_a = self.device(bench, from, [self.rows, k], Blocks::Rows, gradient)?;
            let element = |e: usize, column: usize, depth: usize| match gradient {
                true => w.exact(e * stride + depth, column),
                false => w.exact(e * stride + column, depth),
            };
            let mut want = vec![0.0; self.rows * n];
            for (row, want) in want.chunks_mut(n).enumerate() {
                let Some(e) = (0..self.experts()).find(|e| (self.offsets[*e]..self.offsets[e + 1]).contains(&row))
                else {
                    continue;
                };
                for (column, want) in want.iter_mut().enumerate() {
                    *want = (0..k).map(|depth| a.exact(row, depth) * element(e, column, depth)).sum();
                }
            }
            let symbol = format!("quantized_grouped_gemm_{name}_{layout}_{}", self.dtype.name());
            let c = self.rows_product(bench, &symbol, (&device_a, &device_w), [n, k, stride])?;
            bench.compare(layout, &c, &want, self.dtype.tolerance().value);
        }
        if self.dtype == Float::F32 { self.weights(bench, name, edge) } else { Ok(()) }
    }

    /// C [rows, n].
    fn rows_product(
        &self,
        bench: &mut Bench,
        symbol: &str,
        (a, w): (&DeviceQuantized, &DeviceQuantized),
        [n, k, stride]: [usize; 3],
    ) -> Result<Vec<f32>, CudaError> {
        let offsets = self.device_offsets(bench)?;
        let tiles = tiles(bench, &offsets, [self.experts(), self.rows], 128)?;
        let c = bench.room(self.dtype, self.rows * n)?;
        let args = abi::QuantizedGroupedGemm {
            a: a.operand(),
            b: w.operand(),
            c: c.ptr(),
            offsets: offsets.ptr(),
            tiles: tiles.ptr(),
            rows: self.rows as u32,
            n: n as u32,
            k: k as u32,
            experts: self.experts() as u32,
            stride: stride as u32,
            unused: 0,
        };
        bench.launch(symbol, &args)?;
        c.read()
    }

    /// dW = dyᵀ·x, twice: written, and added to ones.
    fn weights(&self, bench: &mut Bench, name: &str, edge: usize) -> Result<(), CudaError> {
        let (m, n) = (self.out, self.inner);
        let stretches = Stretches::new(&self.offsets, edge);
        let (dy, x) = (stretches.spread(&self.dy, m), stretches.spread(&self.x, n));
        let (dy_size, x_size) = ([stretches.rows(), m], [stretches.rows(), n]);
        let a = self.host(&dy, dy_size, Blocks::Columns, true)?;
        let b = self.host(&x, x_size, Blocks::Columns, false)?;
        let device_a = self.device(bench, &dy, dy_size, Blocks::Columns, true)?;
        let device_b = self.device(bench, &x, x_size, Blocks::Columns, false)?;
        let offsets = self.device_offsets(bench)?;
        let tiles = tiles(bench, &offsets, [self.experts(), self.rows], edge)?;
        for accumulate in [0, 1] {
            let before = |at: usize| if accumulate == 1 { (at % 7) as f32 } else { 0.0 };
            let mut want: Vec<f64> = (0..self.experts() * m * n).map(|at| f64::from(before(at))).collect();
            for (e, want) in want.chunks_mut(m * n).enumerate() {
                for (at, want) in want.iter_mut().enumerate() {
                    let rows = stretches.starts[e]..stretches.starts[e + 1];
                    *want += rows.map(|row| a.exact(row, at / n) * b.exact(row, at % n)).sum::<f64>();
                }
            }
            let start = |at: usize| if accumulate == 1 { before(at) } else { f32::NAN };
            let dw = bench.put(Float::F32, &(0..want.len()).map(start).collect::<Vec<_>>())?;
            let args = abi::QuantizedGroupedWeights {
                dy: device_a.operand(),
                x: device_b.operand(),
                dw: dw.ptr(),
                tiles: tiles.ptr(),
                m: m as u32,
                n: n as u32,
                experts: self.experts() as u32,
                accumulate,
            };
            bench.launch(&format!("quantized_grouped_gemm_{name}_tn_f32"), &args)?;
            bench.compare("tn", &dw.read()?, &want, Float::F32.tolerance().value);
        }
        Ok(())
    }

    fn device_offsets(&self, bench: &Bench) -> Result<DeviceBuffer<u32>, CudaError> {
        bench.cuda.upload(&self.offsets.iter().map(|at| *at as u32).collect::<Vec<_>>())
    }
}

fn bug(error: Error) -> CudaError {
    CudaError::Table(error.to_string())
}
