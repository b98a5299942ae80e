use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::address;
use super::problem::Problem;
use crate::autograd::Draws;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::ssd_scan::reference::{self, Dims, Inputs};
use crate::tensor::Segments;

/// Rows that the kernels take together.
const CHUNK: usize = 32;

struct Size {
    /// H, P, G, N.
    dims: Dims,
    offsets: &'static [usize],
    limit: (f32, f32),
    ends: &'static [usize],
    /// Whether a state comes in and goes out.
    carried: bool,
}

const FREE: (f32, f32) = (0.0, f32::INFINITY);

const fn size(dims: Dims, offsets: &'static [usize]) -> Size {
    Size { dims, offsets, limit: FREE, ends: &[], carried: true }
}

const SIZES: [Size; 12] = [
    size((2, 3, 1, 4), &[0, 0]),
    size((1, 1, 1, 1), &[0, 1]),
    size((4, 3, 2, 5), &[0, 9]),
    size((4, 5, 2, 3), &[0, 13, 13, 14, 40]),
    size((4, 3, 2, 5), &[0, 5, 38]),
    size((1, 64, 1, 128), &[0, 33]),
    Size { limit: (0.3, 0.9), ..size((2, 4, 2, 3), &[0, 17]) },
    Size { ends: &[1, 2, 3], ..size((6, 3, 2, 4), &[0, 14, 28, 42]) },
    // Heads of whole 16-byte vectors, and enough of them in a group.
    Size { ends: &[2, 5, 9], ..size((9, 8, 1, 4), &[0, 14, 28, 42]) },
    // As many columns as all lanes of a warp have.
    Size { ends: &[2, 5, 9], ..size((9, 64, 1, 4), &[0, 12]) },
    Size { ends: &[1, 2, 3], ..size((3, 35, 1, 2), &[0, 12]) },
    Size { carried: false, ..size((2, 3, 1, 4), &[0, 67]) },
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for size in &SIZES {
            bench.case(format!("(H, P, G, N) = {:?}, segments {:?} in {}", size.dims, size.offsets, dtype.name()));
            one(bench, dtype, size)?;
        }
        // Heads that end in each of the dimensions that a thread has.
        for head_dim in (2..64).step_by(8) {
            bench.case(format!("a head of {head_dim} in {}", dtype.name()));
            one(bench, dtype, &size((1, head_dim, 1, 2), &[0, 5]))?;
        }
    }
    Ok(())
}

fn one(bench: &mut Bench, dtype: Float, size: &Size) -> Result<(), CudaError> {
    let (heads, p, groups, n) = size.dims;
    let segments = Segments::from_offsets(size.offsets).unwrap_or_else(|| unreachable!("offsets of a case"));
    let (rows, count) = (segments.rows(), segments.count());
    let draws = Draws::Sequences { length: rows.div_ceil(3).max(1), of_sequence: [1, 2, 0].as_slice().into() };
    let spec = (!size.ends.is_empty()).then(|| MaskSpec { ends: size.ends.to_vec(), draws });
    let lengths: Vec<usize> = segments.iter().map(|rows| rows.len().div_ceil(CHUNK)).collect();
    let chunks: Vec<u32> = (0..=count).map(|s| lengths[..s].iter().sum::<usize>() as u32).collect();
    let starts_len = chunks[count] as usize * heads * p * n;
    let problem = problem(dtype, size, segments, spec.clone());

    let mask = bench.mask(spec.as_ref(), &problem.inputs[6])?;
    let (xbc, dt) = (bench.put(dtype, &problem.inputs[0])?, bench.put(dtype, &problem.inputs[1])?);
    let put = |at: usize| bench.cuda.upload(&problem.inputs[at]);
    let (a_log, d, dt_bias) = (put(2)?, put(3)?, put(4)?);
    let initial = size.carried.then(|| put(5)).transpose()?;
    let offsets = bench.cuda.upload(&size.offsets.iter().map(|at| *at as u32).collect::<Vec<_>>())?;
    let device_chunks = bench.cuda.upload(&chunks)?;
    let scan = abi::Scan {
        xbc: xbc.ptr(),
        dt: dt.ptr(),
        a_log: a_log.ptr(),
        d: d.ptr(),
        dt_bias: dt_bias.ptr(),
        initial: address(&initial),
        offsets: offsets.ptr(),
        chunks: device_chunks.ptr(),
        mask: mask.abi(),
        rows: rows as u32,
        heads: heads as u32,
        head_dim: p as u32,
        groups: groups as u32,
        state: n as u32,
        segments: count as u32,
        dt_low: size.limit.0,
        dt_high: size.limit.1,
    };
    let (y, unmasked) = (bench.room(dtype, rows * heads * p)?, bench.room(dtype, rows * heads * p)?);
    let (last, starts) = (bench.room(Float::F32, count * heads * p * n)?, bench.room(Float::F32, starts_len)?);
    let args =
        abi::ScanForward { scan, y: y.ptr(), unmasked: unmasked.ptr(), final_state: last.ptr(), starts: starts.ptr() };
    bench.launch(&format!("ssd_scan_chunked_forward_{}", dtype.name()), &args)?;
    bench.value(&problem, 0, &y, dtype)?;
    bench.value(&problem, 1, &last, Float::F32)?;

    let dy = bench.put(dtype, &problem.seeds[0])?;
    let dfinal = bench.put(Float::F32, &problem.seeds[1])?;
    let (dxbc, ddt) = (bench.room(dtype, problem.inputs[0].len())?, bench.room(dtype, rows * heads)?);
    let (db, dc) = (bench.room(Float::F32, rows * heads * n)?, bench.room(Float::F32, rows * heads * n)?);
    let dinitial = bench.room(Float::F32, count * heads * p * n)?;
    let partials = bench.room(Float::F32, count * 3 * heads)?;
    let args = abi::ScanBackward {
        scan,
        dy: dy.ptr(),
        dfinal: dfinal.ptr(),
        starts: starts.ptr(),
        dxbc: dxbc.ptr(),
        ddt: ddt.ptr(),
        dinitial: dinitial.ptr(),
        db: db.ptr(),
        dc: dc.ptr(),
        partials: partials.ptr(),
    };
    bench.launch(&format!("ssd_scan_chunked_backward_{}", dtype.name()), &args)?;
    bench.launch(&format!("ssd_scan_group_sum_{}", dtype.name()), &args)?;
    bench.gradient(&problem, 0, &dxbc.read()?, dtype.tolerance().grad);
    bench.gradient(&problem, 1, &ddt.read()?, dtype.tolerance().grad);
    let per_head = bench.column_sum(&partials, count, 3 * heads)?;
    for (at, grad) in per_head.chunks(heads).enumerate() {
        bench.gradient(&problem, 2 + at, grad, Float::F32.tolerance().grad);
    }
    if size.carried {
        bench.gradient(&problem, 5, &dinitial.read()?, Float::F32.tolerance().grad);
    }
    if let Some(sums) = bench.row_sums(&mask, rows)? {
        let args = abi::ScanMaskGrad {
            unmasked: unmasked.ptr(),
            dy: dy.ptr(),
            row_sums: sums.ptr(),
            mask: mask.abi(),
            rows: rows as u32,
            heads: heads as u32,
            head_dim: p as u32,
            unused: 0,
        };
        bench.launch(&format!("ssd_scan_mask_grad_{}", dtype.name()), &args)?;
        let grad = bench.mask_grad(&mask, &sums, rows, 1)?;
        // It is made from the stored output, rounded as that is.
        bench.gradient(&problem, 6, &grad, dtype.tolerance().grad);
    }
    Ok(())
}

/// xbc, dt, a_log, d, dt_bias, initial, keep; y and the final states.
fn problem(dtype: Float, size: &Size, segments: Segments, mask: Option<MaskSpec>) -> Problem {
    let &Size { dims, limit, ends, carried, .. } = size;
    let (heads, p, groups, n) = dims;
    let rows = segments.rows();
    let mut generator = Generator::new((rows + heads) as u64);
    let state = [segments.count(), heads, p, n];
    let mut initial = generator.normal("initial", &state, 1.0);
    if !carried {
        initial.values.fill(0.0);
    }
    let inputs = vec![
        (generator.normal("xbc", &[rows, heads * p + 2 * groups * n], 1.0), dtype),
        (generator.normal("dt", &[rows, heads], 1.0), dtype),
        (generator.uniform("a_log", &[heads], -1.0, 1.0), Float::F32),
        (generator.normal("d", &[heads], 1.0), Float::F32),
        (generator.normal("dt_bias", &[heads], 0.5), Float::F32),
        (initial, Float::F32),
        (generator.keep(3, ends.len().max(1)), Float::F32),
    ];
    Problem::new(dtype, inputs, move |v| {
        let inputs = Inputs { xbc: &v[0], dt: &v[1], a_log: &v[2], d: &v[3], dt_bias: &v[4], initial: &v[5] };
        let m = |row, h| mask.as_ref().map_or(1.0, |mask| mask.value(&v[6], row, h));
        let (y, states) = reference::ssd_scan(&inputs, dims, limit, &segments, m);
        vec![y, states]
    })
}
