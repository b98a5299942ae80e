use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::optional;
use super::problem::Problem;
use crate::autograd::Draws;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::gated_group_norm::reference;

const EPS: f32 = 1e-3;

struct Size {
    rows: usize,
    groups: usize,
    columns: usize,
    head_dim: usize,
    rows_per_block: usize,
    /// Of the mask over heads; none where empty.
    ends: &'static [usize],
}

const fn size([rows, groups, columns, head_dim, rows_per_block]: [usize; 5], ends: &'static [usize]) -> Size {
    Size { rows, groups, columns, head_dim, rows_per_block, ends }
}

const SIZES: [Size; 10] = [
    size([0, 2, 2, 2, 1], &[]),
    size([1, 1, 3, 3, 1], &[]),
    size([67, 3, 11, 11, 20], &[]),
    size([50, 4, 16, 4, 13], &[]),
    size([30, 2, 18, 3, 16], &[2, 4, 6]),
    size([75, 4, 6, 2, 32], &[3]),
    size([20, 2, 512, 64, 9], &[2, 5, 8]),
    // Rows in many steps of single elements; a draw without heads where rows are of 16 bytes.
    size([9, 2, 75, 25, 4], &[1, 3]),
    size([7, 1, 151, 151, 3], &[]),
    size([12, 2, 576, 64, 5], &[9]),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for size in &SIZES {
            let (rows, groups, columns) = (size.rows, size.groups, size.columns);
            bench.case(format!(
                "{rows} rows of {groups} groups of {columns} in {}, mask {:?}",
                dtype.name(),
                size.ends
            ));
            one(bench, dtype, size, false)?;
            if size.ends.len() > 1 {
                one(bench, dtype, size, true)?;
            }
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("3 rows of 2 groups of 16 in {}", dtype.name()));
            one(bench, dtype, &size([3, 2, 16, 8, 2], &[1, 4]), true)
        })?;
    }
    Ok(())
}

fn one(bench: &mut Bench, dtype: Float, size: &Size, one_draw: bool) -> Result<(), CudaError> {
    let &Size { rows, groups, columns, head_dim, rows_per_block, ends } = size;
    let width = groups * columns;
    let (spec, problem) = problem(dtype, size, one_draw);
    let mask = bench.mask(spec.as_ref(), &problem.inputs[3])?;
    let put = |at: usize| bench.put(dtype, &problem.inputs[at]);
    let (y, z, weight) = (put(0)?, put(1)?, put(2)?);
    let out = bench.room(dtype, rows * width)?;
    let args = abi::GatedGroupNormForward {
        y: y.ptr(),
        z: z.ptr(),
        weight: weight.ptr(),
        out: out.ptr(),
        mask: mask.abi(),
        rows: rows as u32,
        groups: groups as u32,
        columns: columns as u32,
        head_dim: head_dim as u32,
        rows_per_block: rows_per_block as u32,
        eps: EPS,
    };
    bench.launch(&format!("gated_group_norm_forward_{}", dtype.name()), &args)?;
    bench.value(&problem, 0, &out, dtype)?;

    let blocks = rows.div_ceil(rows_per_block);
    let dout = bench.put(dtype, &problem.seeds[0])?;
    let (dy, dz) = (bench.room(dtype, rows * width)?, bench.room(dtype, rows * width)?);
    let partials = bench.room(Float::F32, blocks * width)?;
    let sums = bench.row_sums(&mask, rows * groups)?;
    let args = abi::GatedGroupNormBackward {
        y: y.ptr(),
        z: z.ptr(),
        weight: weight.ptr(),
        dout: dout.ptr(),
        dy: dy.ptr(),
        dz: dz.ptr(),
        weight_partials: partials.ptr(),
        row_sums: optional(&sums),
        mask: mask.abi(),
        rows: rows as u32,
        groups: groups as u32,
        columns: columns as u32,
        head_dim: head_dim as u32,
        rows_per_block: rows_per_block as u32,
        eps: EPS,
    };
    bench.launch(&format!("gated_group_norm_backward_{}", dtype.name()), &args)?;
    bench.gradient(&problem, 0, &dy.read()?, dtype.tolerance().grad);
    bench.gradient(&problem, 1, &dz.read()?, dtype.tolerance().grad);
    let dweight = bench.column_sum(&partials, blocks, width)?;
    bench.gradient(&problem, 2, &dweight, Float::F32.tolerance().grad);
    if let Some(sums) = sums {
        let grad = bench.mask_grad(&mask, &sums, rows * groups, groups)?;
        // Where a draw has no head at all, the denominator's difference has no two sides.
        match ends.len() {
            1 => bench.again("gradient of keep", &grad),
            _ => bench.gradient(&problem, 3, &grad, Float::F32.tolerance().grad),
        }
    }
    Ok(())
}

/// y, z, weight, keep.
fn problem(dtype: Float, size: &Size, one_draw: bool) -> (Option<MaskSpec>, Problem) {
    let &Size { rows, groups, columns, head_dim, ends, .. } = size;
    let width = groups * columns;
    let draws = match one_draw {
        true => Draws::One,
        false => Draws::Sequences { length: rows.div_ceil(3).max(1), of_sequence: [1, 2, 0].as_slice().into() },
    };
    let spec = (!ends.is_empty()).then(|| MaskSpec { ends: ends.to_vec(), draws });
    let mut generator = Generator::new((rows + width) as u64);
    let mut inputs = vec![
        (generator.normal("y", &[rows, width], 1.0), dtype),
        (generator.normal("z", &[rows, width], 1.0), dtype),
        (generator.normal("weight", &[width], 1.0), dtype),
        (generator.keep(3, ends.len().max(1)), Float::F32),
    ];
    if ends.len() == 1 {
        inputs[3].0.values[2] = 0.0;
    }
    let ours = spec.clone();
    let problem = Problem::new(dtype, inputs, move |v| {
        let heads = columns / head_dim;
        let n = |row: usize, group: usize| match &ours {
            None => columns as f64,
            Some(spec) => head_dim as f64 * (0..heads).map(|h| spec.value(&v[3], row, group * heads + h)).sum::<f64>(),
        };
        vec![reference::gated_group_norm(&v[0], &v[1], &v[2], groups, f64::from(EPS), n)]
    });
    (spec, problem)
}
