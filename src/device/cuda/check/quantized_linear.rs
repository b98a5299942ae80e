use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use crate::Error;
use crate::autograd::check::Generator;
use crate::numerics::Fp8;
use crate::ops::quantize::{Blocks, Format, quantize};
use crate::ops::quantized_linear::reference;

/// M, N, K: one, off the tiles, whole tiles of rows that 16 bytes divide, several blocks of scales, nothing to add.
const SIZES: [(usize, usize, usize); 6] =
    [(1, 1, 1), (37, 50, 67), (24, 129, 100), (130, 144, 160), (20, 8, 0), (17, 136, 272)];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    let (e4m3, e5m2) = (Format::Fp8(Fp8::E4m3), Format::Fp8(Fp8::E5m2));
    for dtype in bench.dtypes() {
        for (at, size) in SIZES.into_iter().enumerate() {
            for (a, b) in [(e4m3, e4m3), (e5m2, e4m3), (Format::Nvfp4, Format::Nvfp4)] {
                for layout in ["nt", "nn", "tn"] {
                    if layout == "tn" && dtype == Float::Bf16 {
                        continue; // gradients of weights are f32
                    }
                    one(bench, dtype, layout, size, [a, b], at % 2 == 1)?;
                }
            }
        }
    }
    Ok(())
}

fn one(
    bench: &mut Bench,
    dtype: Float,
    layout: &str,
    (m, n, k): (usize, usize, usize),
    [format_a, format_b]: [Format; 2],
    accumulate: bool,
) -> Result<(), CudaError> {
    let name = if format_a == Format::Nvfp4 { "nvfp4" } else { "fp8" };
    let symbol = format!("quantized_linear_{name}_{layout}_{}", dtype.name());
    if !bench.wants(|s| s == symbol) {
        return Ok(());
    }
    bench.case(format!("{layout} {m}×{n}×{k} of {format_a:?} and {format_b:?} in {}", dtype.name()));
    let (along_a, along_b) = (layout != "tn", layout == "nt");
    let a_size = if along_a { [m, k] } else { [k, m] };
    let b_size = if along_b { [n, k] } else { [k, n] };
    let (a_blocks, b_blocks) = match layout {
        "tn" => (Blocks::Columns, Blocks::Columns),
        // Weights have squares; both sorts where both are taken.
        "nt" if accumulate => (Blocks::Squares, Blocks::Rows),
        _ => (Blocks::Rows, Blocks::Squares),
    };
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
    bench.launch(&symbol, &args)?;
    bench.compare("C", &c.read()?, &want, dtype.tolerance().value);
    Ok(())
}
