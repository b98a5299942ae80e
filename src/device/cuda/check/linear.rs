use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Data, Float};
use super::masks::masks;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::linear::reference;

/// A product C = A·B of M × N × K, where in memory, and what is behind it.
#[derive(Clone, Copy)]
struct Product {
    variant: &'static str,
    dtype: Float,
    size: (usize, usize, usize),
    accumulate: bool,
    /// Elements behind each row.
    pad: usize,
    /// Elements before the first: 1 makes every row start off 16 bytes.
    offset: usize,
}

const LAYOUTS: [&str; 3] = ["nt", "nn", "tn"];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    let product =
        |variant, dtype, size, accumulate, pad, offset| Product { variant, dtype, size, accumulate, pad, offset };
    for dtype in bench.dtypes() {
        for variant in ["naive_nt", "naive_nn", "naive_tn", "tiled_nt", "tiled_nn", "tiled_tn"] {
            for p in [
                product(variant, dtype, (7, 13, 11), false, 0, 0),
                product(variant, dtype, (70, 65, 33), true, 3, 0),
                product(variant, dtype, (64, 72, 32), false, 0, 0),
                product(variant, dtype, (64, 72, 32), true, 0, 0),
                product(variant, dtype, (3, 2, 0), false, 0, 0),
                // Several tiles each way, on and off 16 bytes; more rows of tiles than run in a patch.
                product(variant, dtype, (136, 132, 72), false, 0, 0),
                product(variant, dtype, (133, 67, 35), false, 0, 1),
                product(variant, dtype, (600, 70, 8), false, 0, 0),
                // Rows further apart than they are long, on 16 bytes.
                product(variant, dtype, (66, 68, 24), true, 8, 0),
            ] {
                one(bench, p)?;
            }
            bench.off_16_bytes(|bench| one(bench, product(variant, dtype, (7, 16, 24), true, 0, 0)))?;
            // As many elements behind the fours and behind the steps as there can be.
            for beyond in 1..16 {
                let size = (beyond, 16 + beyond, 16 + beyond);
                one(bench, product(variant, dtype, size, beyond % 2 == 0, beyond % 3, beyond % 2))?;
                one(bench, product(variant, dtype, size, true, (4 - beyond % 4) % 4, 0))?;
            }
        }
        for p in [
            product("skinny_nt", dtype, (1, 1, 1), false, 0, 0),
            product("skinny_nt", dtype, (8, 17, 96), false, 0, 0),
            product("skinny_nt", dtype, (3, 9, 37), false, 0, 0),
            product("skinny_nt", dtype, (5, 8, 0), false, 0, 0),
            product("skinny_nt", dtype, (7, 20, 64), true, 8, 0),
            product("skinny_nt", dtype, (7, 20, 64), true, 3, 1),
            product("skinny_nt", dtype, (8, 20, 64), true, 0, 0),
            product("skinny_nt", dtype, (8, 11, 75), true, 2, 1),
        ] {
            one(bench, p)?;
        }
        bench.off_16_bytes(|bench| one(bench, product("skinny_nt", dtype, (7, 16, 64), true, 0, 0)))?;
    }
    for variant in [
        "tensor_core_nt",
        "tensor_core_nn",
        "tensor_core_tn",
        "pipelined_nt",
        "pipelined_nn",
        "pipelined_tn",
        "pipelined_nt_wide",
        "pipelined_nt_relu2",
        "pipelined_nt_residual",
    ] {
        for p in [
            product(variant, Float::Bf16, (1, 1, 1), false, 0, 0),
            product(variant, Float::Bf16, (130, 136, 104), false, 0, 0),
            product(variant, Float::Bf16, (37, 50, 67), true, 3, 0),
            product(variant, Float::Bf16, (24, 129, 100), true, 0, 1),
            product(variant, Float::Bf16, (20, 8, 0), false, 0, 0),
            product(variant, Float::Bf16, (33, 77, 131), false, 2, 1),
            // On 16 bytes, more than half a tile of everything, in more steps than are on their way at first.
            product(variant, Float::Bf16, (104, 136, 120), false, 0, 0),
            // Off 16 bytes with more than half a tile of everything; more rows of tiles than run in a patch.
            product(variant, Float::Bf16, (150, 141, 43), true, 0, 1),
            product(variant, Float::Bf16, (1100, 136, 8), false, 0, 0),
            // Rows further apart than they are long, on 16 bytes.
            product(variant, Float::Bf16, (68, 72, 40), true, 8, 0),
            product(variant, Float::Bf16, (130, 132, 36), false, 4, 0),
        ] {
            one(bench, p)?;
        }
        bench.off_16_bytes(|bench| one(bench, product(variant, Float::Bf16, (7, 16, 24), true, 0, 0)))?;
        // Off 16 bytes, with as many elements in the last eight as there can be, in the first tiles and in later ones.
        for beyond in 1..8 {
            for depth in [0, 32, 64, 96] {
                one(bench, product(variant, Float::Bf16, (64 + beyond, 64 + beyond, depth + beyond), false, 0, 1))?;
            }
            // On 8 or 16 bytes, adding to what is there.
            one(bench, product(variant, Float::Bf16, (8 * beyond, 8 * beyond + 4, 4 * beyond), true, 4, 0))?;
        }
    }
    Ok(())
}

/// The matrices of a product on the host, [M, K] and [N, K], and the exact A·Bᵀ.
struct Matrices {
    a: Vec<f32>,
    b: Vec<f32>,
    exact: Vec<f64>,
}

fn matrices(p: &Product) -> Matrices {
    let (m, n, k) = p.size;
    let mut generator = Generator::new((m * 1000 + n) as u64);
    let a = p.dtype.round(&generator.normal("a", &[m, k], 1.0).values);
    let b = p.dtype.round(&generator.normal("b", &[n, k], 0.3).values);
    let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
    let exact = if k == 0 { vec![0.0; m * n] } else { reference::linear(&wide(&a), &wide(&b), k) };
    Matrices { a, b, exact }
}

fn one(bench: &mut Bench, p: Product) -> Result<(), CudaError> {
    let symbol = format!("linear_{}_{}", p.variant, p.dtype.name());
    if !bench.wants(|s| s == symbol) {
        return Ok(());
    }
    let (m, n, k) = p.size;
    let layout = LAYOUTS.into_iter().find(|l| p.variant.split('_').any(|part| part == *l)).unwrap_or("nt");
    bench.case(format!("{} {m}×{n}×{k} in {}, pad {}, offset {}", p.variant, p.dtype.name(), p.pad, p.offset));
    let host = matrices(&p);
    let a = if layout == "tn" { transposed(&host.a, m, k) } else { host.a };
    let b = if layout == "nt" { host.b } else { transposed(&host.b, n, k) };
    let (wide_a, wide_b) = (if layout == "tn" { m } else { k }, if layout == "nt" { k } else { n });
    let out_type = if layout == "tn" || p.variant.ends_with("wide") { Float::F32 } else { p.dtype };
    let start = out_type.round(&Generator::new(5).normal("c", &[m * (n + p.pad) + p.offset], 1.0).values);

    let a = bench.put(p.dtype, &strided(&a, wide_a, p))?;
    let b = bench.put(p.dtype, &strided(&b, wide_b, p))?;
    let c = bench.put(out_type, &start)?;
    let product = abi::Linear {
        a: a.ptr_at(p.offset),
        b: b.ptr_at(p.offset),
        c: c.ptr_at(p.offset),
        m: m as u32,
        n: n as u32,
        k: k as u32,
        lda: (wide_a + p.pad) as u32,
        ldb: (wide_b + p.pad) as u32,
        ldc: (n + p.pad) as u32,
        accumulate: u32::from(p.accumulate),
        unused: 0,
    };
    let want = match p.variant {
        "pipelined_nt_relu2" => relu2(bench, &symbol, &p, product, &host.exact)?,
        "pipelined_nt_residual" => residual(bench, &symbol, &p, product, &host.exact)?,
        _ => {
            bench.launch(&symbol, &product)?;
            let add = |(at, v): (usize, &f64)| v + if p.accumulate { at_of(&start, at, n, &p) } else { 0.0 };
            host.exact.iter().enumerate().map(add).collect()
        }
    };
    hold(bench, "C", &c, &start, &want, &p, out_type)
}

/// relu(A·B)²·m, and A·B beside it.
fn relu2(
    bench: &mut Bench,
    symbol: &str,
    p: &Product,
    product: abi::Linear,
    exact: &[f64],
) -> Result<Vec<f64>, CudaError> {
    let (m, n, _) = p.size;
    let (spec, keep) = mask(m, n);
    let device = bench.mask(Some(&spec), &keep)?;
    let start = p.dtype.round(&vec![3.0; m * (n + p.pad) + p.offset]);
    let raw = bench.put(p.dtype, &start)?;
    bench.launch(symbol, &abi::LinearRelu2 { product, raw: raw.ptr_at(p.offset), mask: device.abi() })?;
    hold(bench, "A·B", &raw, &start, exact, p, p.dtype)?;
    let keep: Vec<f64> = keep.iter().map(|k| f64::from(*k)).collect();
    let value = |(at, v): (usize, &f64)| v.max(0.0).powi(2) * spec.value(&keep, at / n, at % n);
    Ok(exact.iter().enumerate().map(value).collect())
}

/// h + m·g·A·B, and A·B beside it.
fn residual(
    bench: &mut Bench,
    symbol: &str,
    p: &Product,
    product: abi::Linear,
    exact: &[f64],
) -> Result<Vec<f64>, CudaError> {
    let (m, n, _) = p.size;
    let (spec, keep) = mask(m, n);
    let gate = MaskSpec { ends: vec![n], draws: spec.draws.clone() };
    let gate_keep = [0.7, 0.0, 0.4];
    let (hidden, device_gate) = (bench.mask(Some(&spec), &keep)?, bench.mask(Some(&gate), &gate_keep)?);
    let start = p.dtype.round(&vec![3.0; m * (n + p.pad) + p.offset]);
    let raw = bench.put(p.dtype, &start)?;
    let h_host = p.dtype.round(&Generator::new(6).normal("h", &[start.len()], 1.0).values);
    let h = bench.put(p.dtype, &h_host)?;
    let args = abi::LinearResidual {
        product,
        raw: raw.ptr_at(p.offset),
        h: h.ptr_at(p.offset),
        hidden: hidden.abi(),
        gate: device_gate.abi(),
    };
    bench.launch(symbol, &args)?;
    hold(bench, "A·B", &raw, &start, exact, p, p.dtype)?;
    let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
    let (keep, gate_keep) = (wide(&keep), wide(&gate_keep));
    let value = |(at, v): (usize, &f64)| {
        let (row, j) = (at / n, at % n);
        at_of(&h_host, at, n, p) + spec.value(&keep, row, j) * gate.value(&gate_keep, row, 0) * v
    };
    Ok(exact.iter().enumerate().map(value).collect())
}

/// A mask of three draws over n columns, and its keep.
fn mask(m: usize, n: usize) -> (MaskSpec, Vec<f32>) {
    let (spec, draws) = masks(m, n).swap_remove(2).unwrap_or_else(|| unreachable!("the third is a mask"));
    let keep = Generator::new(8).keep(draws, spec.ends.len()).values;
    (spec, keep)
}

/// Holds [M, N] against `want`, and what is around its rows against what was there before.
fn hold(
    bench: &mut Bench,
    what: &str,
    got: &Data,
    before: &[f32],
    want: &[f64],
    p: &Product,
    dtype: Float,
) -> Result<(), CudaError> {
    let n = p.size.1;
    let got = got.read()?;
    let inside = |at: usize| at >= p.offset && (at - p.offset) % (n + p.pad) < n;
    let part = |v: &[f32], inner: bool| -> Vec<f32> {
        v.iter().enumerate().filter(|(at, _)| inside(*at) == inner).map(|(_, v)| *v).collect()
    };
    bench.compare(what, &part(&got, true), want, dtype.tolerance().value);
    bench.equal(&format!("{what}'s surroundings"), &part(&got, false), &part(before, false));
    Ok(())
}

/// Element `at` of [M, N] in a buffer with the product's offset and pad.
fn at_of(values: &[f32], at: usize, n: usize, p: &Product) -> f64 {
    f64::from(values[p.offset + at / n * (n + p.pad) + at % n])
}

/// Rows of `width` with NaN before and between them.
fn strided(values: &[f32], width: usize, p: Product) -> Vec<f32> {
    let mut out = vec![f32::NAN; p.offset];
    for row in values.chunks(width.max(1)) {
        out.extend_from_slice(row);
        out.extend(std::iter::repeat_n(f32::NAN, p.pad));
    }
    out
}

/// [rows, columns] to [columns, rows].
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..values.len()).map(|at| values[at % rows.max(1) * columns + at / rows.max(1)]).collect()
}
