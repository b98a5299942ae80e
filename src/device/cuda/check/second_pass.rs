//! The sums that other ops' backward kernels leave to a second launch.

use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::DeviceMask;
use crate::autograd::Draws;
use crate::autograd::check::{Generator, MaskSpec};

pub fn column_sum(bench: &mut Bench) -> Result<(), CudaError> {
    for (rows, width) in [(0, 5), (1, 1), (7, 33), (260, 64)] {
        bench.case(format!("{rows} partial sums of {width} columns"));
        let mut generator = Generator::new(rows as u64);
        let partials = generator.normal("partials", &[rows, width], 1.0).values;
        let start = generator.normal("out", &[width], 1.0).values;
        let (device, out) = (bench.put(Float::F32, &partials)?, bench.put(Float::F32, &start)?);
        let sum = |j: usize| partials.iter().skip(j).step_by(width).map(|p| f64::from(*p)).sum::<f64>();
        let want: Vec<f64> = (0..width).map(sum).collect();
        let got = bench.column_sum(&device, rows, width)?;
        bench.compare("sums", &got, &want, Float::F32.tolerance().value);
        let args = abi::ColumnSum {
            partials: device.ptr(),
            out: out.ptr(),
            rows: rows as u32,
            width: width as u32,
            accumulate: 1,
            unused: 0,
        };
        bench.launch("column_sum_rows_f32", &args)?;
        let want: Vec<f64> = want.iter().zip(&start).map(|(sum, start)| sum + f64::from(*start)).collect();
        bench.compare("accumulated sums", &out.read()?, &want, Float::F32.tolerance().value);
    }
    Ok(())
}

pub fn mask_grad(bench: &mut Bench) -> Result<(), CudaError> {
    let scattered = |rows: u32| Draws::Rows((0..rows).map(|row| row * row % 5).collect());
    let sequences = Draws::Sequences { length: 1000, of_sequence: [1, 0, 1].as_slice().into() };
    for (rows, candidates, draws, of_row) in
        [(1usize, 1usize, 1usize, Draws::One), (2100, 3, 5, scattered(2100)), (3000, 32, 2, sequences)]
    {
        bench.case(format!("{rows} rows, {candidates} candidates, {draws} draws"));
        let spec = MaskSpec { ends: (1..=candidates).collect(), draws: of_row };
        let mut generator = Generator::new(rows as u64);
        let sums = generator.normal("row sums", &[rows, candidates], 1.0).values;
        let mask = bench.mask(Some(&spec), &vec![1.0; draws * candidates])?;
        let device = bench.put(Float::F32, &sums)?;
        let mut want = vec![0.0; draws * candidates];
        for (row, sums) in sums.chunks(candidates).enumerate() {
            let of_draw = &mut want[spec.draws.of(row) * candidates..][..candidates];
            of_draw.iter_mut().zip(sums).for_each(|(want, sum)| *want += f64::from(*sum));
        }
        let got = bench.mask_grad(&mask, &device, rows, 1)?;
        bench.compare("gradient", &got, &want, Float::F32.tolerance().value);
        tiles(bench, &spec, &mask, &sums, draws)?;
    }
    Ok(())
}

/// The sums over each tile of rows alone.
fn tiles(bench: &mut Bench, spec: &MaskSpec, mask: &DeviceMask, sums: &[f32], draws: usize) -> Result<(), CudaError> {
    const TILE: usize = 1024;
    let rows = sums.len() / mask.candidates;
    let mut want = vec![0.0; rows.div_ceil(TILE) * draws * mask.candidates];
    for (row, sums) in sums.chunks(mask.candidates).enumerate() {
        let of_draw = &mut want[(row / TILE * draws + spec.draws.of(row)) * mask.candidates..][..mask.candidates];
        of_draw.iter_mut().zip(sums).for_each(|(want, sum)| *want += f64::from(*sum));
    }
    let (device, partials) = (bench.put(Float::F32, sums)?, bench.room(Float::F32, want.len())?);
    let args = mask.grad(&device, &partials, std::ptr::null_mut(), rows, 1);
    bench.launch("mask_grad_tiles_f32", &args)?;
    bench.compare("sums of tiles", &partials.read()?, &want, Float::F32.tolerance().value);
    Ok(())
}
