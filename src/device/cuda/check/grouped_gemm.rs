use super::super::embedded::abi;
use super::super::{CudaError, DeviceBuffer};
use super::bench::{Bench, Float};
use super::problem::Problem;
use crate::autograd::Draws;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::grouped_gemm::reference;

/// Rows of each expert, rows behind them, out, in.
type Size<'s> = (&'s [usize], usize, usize, usize);

const SIZES: [Size<'static>; 14] = [
    (&[3, 0, 70, 65], 5, 33, 20),
    // What broke other kernels: weight gradients of experts without rows, between ones with many.
    (&[162, 0, 2577, 446, 0, 83], 0, 9, 8),
    (&[0, 0], 3, 8, 8),
    (&[130, 0, 1, 16], 9, 40, 24),
    (&[0, 0, 0], 7, 16, 33),
    (&[5], 0, 130, 72),
    (&[5, 0, 140], 3, 33, 27),
    (&[9, 1], 0, 136, 64),
    // Off 16 bytes throughout, and more than half a tile of everything.
    (&[70, 2], 1, 131, 75),
    // More tiles of rows, and of rows of the weights, than run in a patch.
    (&[1100], 0, 8, 9),
    (&[3], 0, 1100, 5),
    // One expert, and rows behind its own.
    (&[20], 150, 9, 33),
    // Many steps of k, the last of which is not whole.
    (&[7], 2, 132, 236),
    // On 16 bytes, more than half a tile of everything, in more steps than are on their way at first.
    (&[100], 3, 136, 104),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for (kind, dtype, edge) in [("tiled", Float::F32, 64), ("pipelined", Float::Bf16, 128)] {
        if !bench.dtypes().contains(&dtype) {
            continue;
        }
        for size in SIZES {
            bench.case(format!("{kind}, experts of {:?} rows, {} behind, {} → {}", size.0, size.1, size.3, size.2));
            one(bench, kind, dtype, edge, size)?;
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("{kind}, experts of 5 and 3 rows, 16 → 24"));
            one(bench, kind, dtype, edge, (&[5, 3], 1, 24, 16))
        })?;
        // Off 16 bytes, with as many elements in the last eight as there can be.
        for beyond in 1..8 {
            let rows = [64 + beyond];
            let size: Size = (&rows, 0, 64 + beyond, 32 + beyond);
            bench.case(format!("{kind}, one expert of {:?} rows, {} → {}", size.0, size.3, size.2));
            one(bench, kind, dtype, edge, size)?;
            // The same in each step that is on its way at first, and in a later one, of what each product sums over.
            for depth in [0, 64, 96] {
                let (long, short) = (depth + beyond, 8 + beyond);
                for [rows, out, inner] in [[long, short, short], [short, long, short], [short, short, long]] {
                    bench.case(format!("{kind}, one expert of {rows} rows, {inner} → {out}"));
                    one(bench, kind, dtype, edge, (&[rows], 0, out, inner))?;
                }
            }
        }
    }
    Ok(())
}

fn one(
    bench: &mut Bench,
    kind: &str,
    dtype: Float,
    edge: usize,
    (groups, behind, out, inner): Size,
) -> Result<(), CudaError> {
    let experts = groups.len();
    let offsets: Vec<usize> = (0..=experts).map(|e| groups[..e].iter().sum()).collect();
    let (filled, rows) = (offsets[experts], offsets[experts] + behind);
    let mut generator = Generator::new((rows + out) as u64);
    let inputs = vec![
        (generator.normal("x", &[rows, inner], 1.0), dtype),
        (generator.normal("weight", &[experts, out, inner], 0.3), dtype),
    ];
    let ours = offsets.clone();
    let problem =
        Problem::new(dtype, inputs, move |v| vec![reference::grouped_gemm(&v[0], &v[1], &ours, inner, out, rows)]);

    let starts: Vec<u32> = offsets.iter().map(|at| *at as u32).collect();
    let device_offsets = bench.cuda.upload(&starts)?;
    let tiles = tiles(bench, &device_offsets, [experts, rows], edge)?;
    let stretches: Vec<usize> = groups.iter().copied().chain([behind]).map(|n: usize| n.div_ceil(edge)).collect();
    let want: Vec<u32> = (0..experts + 2).map(|s| stretches[..s].iter().sum::<usize>() as u32).collect();
    bench.equal("tiles", &tiles.read()?, &want);

    // Rows that no expert has may hold anything.
    let planted = |values: &[f32], width: usize| {
        let mut values = values.to_vec();
        values[filled * width..].fill(f32::NAN);
        values
    };
    let x = bench.put(dtype, &planted(&problem.inputs[0], inner))?;
    let weight = bench.put(dtype, &problem.inputs[1])?;
    let y = bench.room(dtype, rows * out)?;
    let product = abi::GroupedGemm {
        a: x.ptr(),
        b: weight.ptr(),
        c: y.ptr(),
        offsets: device_offsets.ptr(),
        tiles: tiles.ptr(),
        rows: rows as u32,
        n: out as u32,
        k: inner as u32,
        experts: experts as u32,
    };
    bench.launch(&format!("grouped_gemm_{kind}_nt_{}", dtype.name()), &product)?;
    bench.value(&problem, 0, &y, dtype)?;
    if kind == "pipelined" {
        relu2(bench, &problem, product, (rows, out))?;
    }

    let dy = bench.put(dtype, &planted(&problem.seeds[0], out))?;
    let dx = bench.room(dtype, rows * inner)?;
    let args = abi::GroupedGemm { a: dy.ptr(), c: dx.ptr(), n: inner as u32, k: out as u32, ..product };
    bench.launch(&format!("grouped_gemm_{kind}_nn_{}", dtype.name()), &args)?;
    let (want_dx, want_dw) = gradients(&problem, &offsets, out, inner);
    bench.compare("gradient of x", &dx.read()?, &want_dx, dtype.tolerance().value);
    for accumulate in [0, 1] {
        let start = |at: usize| if accumulate == 1 { (at % 7) as f32 } else { f32::NAN };
        let dw = bench.put(Float::F32, &(0..experts * out * inner).map(start).collect::<Vec<_>>())?;
        let args = abi::GroupedWeights {
            dy: dy.ptr(),
            x: x.ptr(),
            dw: dw.ptr(),
            offsets: device_offsets.ptr(),
            m: out as u32,
            n: inner as u32,
            experts: experts as u32,
            accumulate,
        };
        bench.launch(&format!("grouped_gemm_{kind}_tn_{}", dtype.name()), &args)?;
        let added = |(at, g): (usize, f32)| if accumulate == 1 { g - start(at) } else { g };
        let grad: Vec<f32> = dw.read()?.into_iter().enumerate().map(added).collect();
        bench.compare("gradient of weight", &grad, &want_dw, Float::F32.tolerance().value);
    }
    Ok(())
}

/// dx [R, in] = dy·W of each row's expert, 0 behind them; dW [E, out, in] = dyᵀ·x over each expert's rows.
fn gradients(problem: &Problem, offsets: &[usize], out: usize, inner: usize) -> (Vec<f64>, Vec<f64>) {
    let (x, weight) = (&problem.exact[0], &problem.exact[1]);
    let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
    for (e, rows) in offsets.windows(2).enumerate() {
        let first = e * out * inner;
        for row in rows[0]..rows[1] {
            let (x, dx) = (&x[row * inner..][..inner], &mut dx[row * inner..][..inner]);
            for o in 0..out {
                let dy = f64::from(problem.seeds[0][row * out + o]);
                let (w, dw) = (&weight[first + o * inner..][..inner], &mut dw[first + o * inner..][..inner]);
                dx.iter_mut().zip(w).for_each(|(dx, w)| *dx += dy * w);
                dw.iter_mut().zip(x).for_each(|(dw, x)| *dw += dy * x);
            }
        }
    }
    (dx, dw)
}

/// relu(C)²·m, and C beside it.
fn relu2(
    bench: &mut Bench,
    problem: &Problem,
    product: abi::GroupedGemm,
    (rows, out): (usize, usize),
) -> Result<(), CudaError> {
    let draws = Draws::Rows((0..rows as u32).map(|row| row * 7 % 3).collect());
    let spec = MaskSpec { ends: vec![out / 2, out], draws };
    let keep = Generator::new(8).keep(3, 2).values;
    let mask = bench.mask(Some(&spec), &keep)?;
    let (c, raw) = (bench.room(Float::Bf16, rows * out)?, bench.room(Float::Bf16, rows * out)?);
    let product = abi::GroupedGemm { c: c.ptr(), ..product };
    let args = abi::GroupedRelu2 { product, raw: raw.ptr(), mask: mask.abi() };
    bench.launch("grouped_gemm_pipelined_nt_relu2_bf16", &args)?;
    bench.value(problem, 0, &raw, Float::Bf16)?;
    let keep: Vec<f64> = keep.iter().map(|k| f64::from(*k)).collect();
    let value = |(at, v): (usize, &f64)| v.max(0.0).powi(2) * spec.value(&keep, at / out, at % out);
    let want: Vec<f64> = problem.expected[0].iter().enumerate().map(value).collect();
    bench.compare("relu²", &c.read()?, &want, Float::Bf16.tolerance().value);
    Ok(())
}

/// Where each expert's tiles of `edge` rows start.
pub(super) fn tiles(
    bench: &mut Bench,
    offsets: &DeviceBuffer<u32>,
    [experts, rows]: [usize; 2],
    edge: usize,
) -> Result<DeviceBuffer<u32>, CudaError> {
    let tiles = bench.numbers::<u32>(experts + 2)?;
    let args = abi::GroupedTiles {
        offsets: offsets.ptr(),
        tiles: tiles.ptr(),
        experts: experts as u32,
        rows: rows as u32,
        edge: edge as u32,
        unused: 0,
    };
    bench.launch("grouped_gemm_tiles_u32", &args)?;
    Ok(tiles)
}
