use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::{masks, optional, planted};
use super::problem::Problem;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::relu2::reference;

/// Among them rows that a warp walks in many steps, of 16 bytes and of single elements.
const SIZES: [(usize, usize); 8] = [(0, 8), (1, 1), (33, 72), (70, 29), (5, 600), (1030, 8), (3, 301), (2, 2568)];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for (rows, width) in SIZES {
            for (at, mask) in masks(rows, width).into_iter().enumerate() {
                bench.case(format!("{rows} rows of {width} in {}, mask {at}", dtype.name()));
                one(bench, dtype, (rows, width), mask)?;
            }
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("3 rows of 16 in {}", dtype.name()));
            one(bench, dtype, (3, 16), masks(3, 16).swap_remove(2))
        })?;
    }
    Ok(())
}

fn one(
    bench: &mut Bench,
    dtype: Float,
    (rows, width): (usize, usize),
    mask: Option<(MaskSpec, usize)>,
) -> Result<(), CudaError> {
    let mut generator = Generator::new((rows + width) as u64);
    let (spec, draws) = mask.map_or((None, 1), |(spec, draws)| (Some(spec), draws));
    let inputs = vec![
        (generator.normal("x", &[rows, width], 1.0), dtype),
        (generator.keep(draws, spec.as_ref().map_or(1, |s| s.ends.len())), Float::F32),
    ];
    let ours = spec.clone();
    let m = move |keep: &[f64], row: usize, j: usize| ours.as_ref().map_or(1.0, |mask| mask.value(keep, row, j));
    let same = m.clone();
    let problem =
        Problem::new(dtype, inputs, move |v| vec![reference::relu2(&v[0], width, |row, j| same(&v[1], row, j))]);

    let mask = bench.mask(spec.as_ref(), &problem.inputs[1])?;
    let x = bench.put(dtype, &planted(&problem.inputs[0], width, |row, j| m(&problem.exact[1], row, j) == 0.0))?;
    let y = bench.room(dtype, rows * width)?;
    let (r, w) = (rows as u32, width as u32);
    let args = abi::Relu2Forward { x: x.ptr(), y: y.ptr(), mask: mask.abi(), rows: r, width: w };
    bench.launch(&format!("relu2_forward_{}", dtype.name()), &args)?;
    bench.value(&problem, 0, &y, dtype)?;

    let (x, dy) = (bench.put(dtype, &problem.inputs[0])?, bench.put(dtype, &problem.seeds[0])?);
    let dx = bench.room(dtype, rows * width)?;
    let sums = bench.row_sums(&mask, rows)?;
    let args = abi::Relu2Backward {
        x: x.ptr(),
        dy: dy.ptr(),
        dx: dx.ptr(),
        row_sums: optional(&sums),
        mask: mask.abi(),
        rows: r,
        width: w,
    };
    bench.launch(&format!("relu2_backward_{}", dtype.name()), &args)?;
    bench.gradient(&problem, 0, &dx.read()?, dtype.tolerance().grad);
    if let Some(sums) = sums {
        let grad = bench.mask_grad(&mask, &sums, rows, 1)?;
        bench.gradient(&problem, 1, &grad, Float::F32.tolerance().grad);
    }
    Ok(())
}
