use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::{masks, optional};
use super::problem::Problem;
use crate::autograd::Draws;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::rms_norm::reference;

const EPS: f32 = 1e-3;
/// Rows, width, rows of a block.
const SIZES: [(usize, usize, usize); 8] =
    [(0, 8, 1), (1, 2, 1), (9, 16, 3), (33, 72, 11), (70, 29, 23), (5, 600, 2), (3, 1301, 2), (2, 2568, 2)];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for size in SIZES {
            for (at, mask) in masks(size.0, size.1).into_iter().enumerate() {
                bench.case(format!("{} rows of {} in {}, mask {at}", size.0, size.1, dtype.name()));
                one(bench, dtype, size, mask, false)?;
            }
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("3 rows of 16 in {}", dtype.name()));
            one(bench, dtype, (3, 16, 2), masks(3, 16).swap_remove(2), false)
        })?;
        // A draw without any column: nothing is divided by 0.
        for width in [64, 29, 301, 1028] {
            bench.case(format!("9 rows of {width} in {}, some masked out", dtype.name()));
            let draws = Draws::Sequences { length: 3, of_sequence: [2, 0, 1].as_slice().into() };
            let mask = Some((MaskSpec { ends: vec![width], draws }, 3));
            one(bench, dtype, (9, width, 3), mask, true)?;
        }
    }
    // Shared memory beyond what a launch gets unasked.
    bench.case("rows of 4096");
    one(bench, Float::F32, (3, 4096, 2), None, false)
}

fn one(
    bench: &mut Bench,
    dtype: Float,
    (rows, d, rows_per_block): (usize, usize, usize),
    mask: Option<(MaskSpec, usize)>,
    empty: bool,
) -> Result<(), CudaError> {
    let mut generator = Generator::new((rows + d) as u64);
    let (spec, draws) = mask.map_or((None, 1), |(spec, draws)| (Some(spec), draws));
    let mut inputs = vec![
        (generator.normal("x", &[rows, d], 2.0), dtype),
        (generator.normal("weight", &[d], 1.0), dtype),
        (generator.keep(draws, spec.as_ref().map_or(1, |s| s.ends.len())), Float::F32),
    ];
    if empty {
        inputs[2].0.values[1] = 0.0;
    }
    let ours = spec.clone();
    let problem = Problem::new(dtype, inputs, move |v| {
        let n = |row| ours.as_ref().map_or(d as f64, |mask| mask.total(&v[2], row, d));
        vec![reference::rms_norm(&v[0], &v[1], f64::from(EPS), n)]
    });

    let mask = bench.mask(spec.as_ref(), &problem.inputs[2])?;
    let (x, weight) = (bench.put(dtype, &problem.inputs[0])?, bench.put(dtype, &problem.inputs[1])?);
    let (y, scales) = (bench.room(dtype, rows * d)?, bench.room(Float::F32, rows)?);
    let args = abi::RmsNormForward {
        x: x.ptr(),
        weight: weight.ptr(),
        y: y.ptr(),
        scales: scales.ptr(),
        mask: mask.abi(),
        rows: rows as u32,
        width: d as u32,
        rows_per_block: rows_per_block as u32,
        eps: EPS,
    };
    bench.launch(&format!("rms_norm_forward_{}", dtype.name()), &args)?;
    bench.value(&problem, 0, &y, dtype)?;
    bench.again("scales", &scales.read()?);

    let blocks = rows.div_ceil(rows_per_block);
    let dy = bench.put(dtype, &problem.seeds[0])?;
    let (dx, partials) = (bench.room(dtype, rows * d)?, bench.room(Float::F32, blocks * d)?);
    let sums = bench.row_sums(&mask, rows)?;
    let args = abi::RmsNormBackward {
        x: x.ptr(),
        weight: weight.ptr(),
        dy: dy.ptr(),
        scales: scales.ptr(),
        dx: dx.ptr(),
        weight_partials: partials.ptr(),
        row_sums: optional(&sums),
        mask: mask.abi(),
        rows: rows as u32,
        width: d as u32,
        rows_per_block: rows_per_block as u32,
        unused: 0,
    };
    bench.launch(&format!("rms_norm_backward_{}", dtype.name()), &args)?;
    bench.gradient(&problem, 0, &dx.read()?, dtype.tolerance().grad);
    let dweight = bench.column_sum(&partials, blocks, d)?;
    bench.gradient(&problem, 1, &dweight, Float::F32.tolerance().grad);
    if let Some(sums) = sums {
        let grad = bench.mask_grad(&mask, &sums, rows, 1)?;
        // Where a draw has no column at all, the denominator's difference has no two sides.
        match empty {
            true => bench.again("gradient of keep", &grad),
            false => bench.gradient(&problem, 2, &grad, Float::F32.tolerance().grad),
        }
    }
    Ok(())
}
