use super::super::embedded::abi;
use super::super::{CudaError, DeviceBuffer};
use super::bench::{Bench, Data, Float};
use super::masks::{DeviceMask, address};
use super::problem::Problem;
use crate::Result;
use crate::autograd::check::{Generator, MaskSpec};
use crate::autograd::{Draws, Tape, Var};
use crate::ops::ssd_scan::reference::{self, Dims, Inputs};
use crate::ops::ssd_scan::{ScanOptions, ssd_scan};
use crate::tensor::{Segments, Tensor};

/// A rung of the ladder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rung {
    Recurrent,
    Chunked,
    TensorCore,
    /// Forward alone.
    Pipelined,
}

impl Rung {
    const ALL: [Rung; 4] = [Rung::Recurrent, Rung::Chunked, Rung::TensorCore, Rung::Pipelined];

    fn name(self) -> &'static str {
        match self {
            Rung::Recurrent => "recurrent",
            Rung::Chunked => "chunked",
            Rung::TensorCore => "tensor_core",
            Rung::Pipelined => "pipelined",
        }
    }

    /// Rows that its kernels take together.
    fn chunk(self) -> usize {
        match self {
            Rung::Recurrent => usize::MAX,
            Rung::Chunked => 32,
            Rung::TensorCore | Rung::Pipelined => 64,
        }
    }

    /// To what it rounds what its products read, and states before chunks.
    fn products(self) -> Float {
        if self.is_on_tensor_cores() { Float::Bf16 } else { Float::F32 }
    }

    fn is_on_tensor_cores(self) -> bool {
        matches!(self, Rung::TensorCore | Rung::Pipelined)
    }

    fn takes(self, dtype: Float, size: &Size) -> bool {
        match self {
            Rung::Recurrent => true,
            Rung::Chunked => !size.for_tiles,
            Rung::TensorCore | Rung::Pipelined => dtype == Float::Bf16,
        }
    }
}

/// What the tensor cores' states and their gradients may be off by: they are f32 sums of products of two bf16 parts, and of
/// decays that are exponentials of differences.
const SPLIT: f64 = 1.0 / 4096.0;

struct Size {
    /// H, P, G, N.
    dims: Dims,
    offsets: &'static [usize],
    limit: (f32, f32),
    ends: &'static [usize],
    /// Whether a state comes in and goes out.
    carried: bool,
    /// The range of a_log.
    a_log: (f64, f64),
    /// Whether it is there for chunks of 64 rows and their tiles: differences of the reference would take long.
    for_tiles: bool,
}

const FREE: (f32, f32) = (0.0, f32::INFINITY);

const fn size(dims: Dims, offsets: &'static [usize]) -> Size {
    Size { dims, offsets, limit: FREE, ends: &[], carried: true, a_log: (-1.0, 1.0), for_tiles: false }
}

const fn tiles(dims: Dims, offsets: &'static [usize]) -> Size {
    Size { for_tiles: true, ..size(dims, offsets) }
}

const SIZES: [Size; 30] = [
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
    // All dimensions of a thread beside odd numbers of columns, and the other way round.
    size((1, 64, 1, 3), &[0, 5]),
    size((1, 63, 1, 7), &[0, 37]),
    size((2, 61, 2, 127), &[0, 9]),
    // Decays that underflow beside such that do not.
    Size { a_log: (-4.0, 6.0), ..size((6, 4, 2, 8), &[0, 30, 70]) },
    // Chunks of 64 rows that are nearly full, full, and one row longer; rows of whole 16-byte vectors, and others.
    tiles((2, 16, 2, 24), &[0, 63, 127, 192]),
    tiles((3, 17, 1, 33), &[0, 65, 65, 98]),
    // Slow decays, so that states matter four chunks on.
    Size { a_log: (-5.0, -4.0), ..tiles((6, 9, 2, 12), &[0, 210]) },
    Size { a_log: (-5.0, -4.0), ..tiles((4, 24, 1, 70), &[0, 130]) },
    // All columns of the tiles, and rows and columns of the last in no pairs.
    tiles((2, 64, 1, 64), &[0, 130]),
    tiles((2, 64, 1, 128), &[0, 130]),
    tiles((2, 63, 1, 127), &[0, 60]),
    tiles((2, 61, 1, 63), &[0, 60]),
    Size { carried: false, ..tiles((2, 8, 1, 128), &[0, 66]) },
    Size { a_log: (-4.0, 6.0), ..tiles((6, 4, 2, 8), &[0, 30, 130]) },
    Size { a_log: (-4.0, 6.0), ..tiles((6, 4, 2, 72), &[0, 130]) },
    Size { limit: (0.3, 0.9), ..tiles((2, 8, 1, 8), &[0, 80]) },
    Size { ends: &[1, 2, 3], ..tiles((6, 8, 2, 8), &[0, 34, 135]) },
    Size { ends: &[1, 2, 3], ..tiles((3, 15, 1, 100), &[0, 34, 135]) },
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for size in &SIZES {
            one(bench, dtype, size)?;
        }
        bench.off_16_bytes(|bench| one(bench, dtype, &size((2, 8, 1, 8), &[0, 5])))?;
        // Heads that end in each of the dimensions that a thread has.
        for head_dim in (2..64).step_by(8) {
            one(bench, dtype, &size((3, head_dim, 1, 2), &[0, 5]))?;
        }
        // States that end in each piece of a tile, with whole pairs and without.
        for state in (5..128).filter(|n| matches!(n % 8, 5 | 6)) {
            one(bench, dtype, &tiles((2, 10, 1, state), &[0, 5]))?;
        }
    }
    Ok(())
}

/// All rungs at one size.
fn one(bench: &mut Bench, dtype: Float, size: &Size) -> Result<(), CudaError> {
    let wanted = |rung: &Rung| {
        let second_pass = |symbol: &str| !symbol.contains("forward") && !symbol.contains("backward");
        rung.takes(dtype, size) && bench.wants(|symbol| symbol.contains(rung.name()) || second_pass(symbol))
    };
    let rungs: Vec<Rung> = Rung::ALL.into_iter().filter(wanted).collect();
    if rungs.is_empty() {
        return Ok(());
    }
    let case = Case::new(bench, dtype, size)?;
    for rung in rungs {
        let (name, dtype) = (rung.name(), dtype.name());
        bench.case(format!("{name}, (H, P, G, N) = {:?}, segments {:?} in {dtype}", size.dims, size.offsets));
        let saved = case.forward(bench, rung)?;
        match rung {
            Rung::Recurrent => {}
            Rung::Chunked => case.hold_to_differences(bench, &saved)?,
            Rung::TensorCore => case.hold_to_host(bench, &saved)?,
            Rung::Pipelined => case.hold_to_rung_below(bench, &saved)?,
        }
    }
    Ok(())
}

/// A problem on the device.
struct Case<'s> {
    dtype: Float,
    size: &'s Size,
    segments: Segments,
    spec: Option<MaskSpec>,
    problem: Problem,
    mask: DeviceMask,
    /// xbc, dt.
    inputs: [Data; 2],
    /// a_log, d, dt_bias.
    per_head: [DeviceBuffer<f32>; 3],
    initial: Option<DeviceBuffer<f32>>,
    offsets: DeviceBuffer<u32>,
}

/// What the backward pass needs of the forward one.
struct Saved {
    unmasked: Data,
    starts: Data,
    chunks: DeviceBuffer<u32>,
}

impl<'s> Case<'s> {
    fn new(bench: &Bench, dtype: Float, size: &'s Size) -> Result<Case<'s>, CudaError> {
        let segments = Segments::from_offsets(size.offsets).unwrap_or_else(|| unreachable!("offsets of a case"));
        let length = segments.rows().div_ceil(3).max(1);
        let draws = Draws::Sequences { length, of_sequence: [1, 2, 0].as_slice().into() };
        let spec = (!size.ends.is_empty()).then(|| MaskSpec { ends: size.ends.to_vec(), draws });
        let problem = problem(dtype, size, segments.clone(), spec.clone());
        let put = |at: usize| bench.cuda.upload(&problem.inputs[at]);
        let offsets: Vec<u32> = size.offsets.iter().map(|at| *at as u32).collect();
        Ok(Case {
            dtype,
            size,
            segments,
            mask: bench.mask(spec.as_ref(), &problem.inputs[6])?,
            inputs: [bench.put(dtype, &problem.inputs[0])?, bench.put(dtype, &problem.inputs[1])?],
            per_head: [put(2)?, put(3)?, put(4)?],
            initial: size.carried.then(|| put(5)).transpose()?,
            offsets: bench.cuda.upload(&offsets)?,
            spec,
            problem,
        })
    }

    fn rows(&self) -> usize {
        self.segments.rows()
    }

    /// Elements of all segments' states.
    fn states(&self) -> usize {
        let (heads, p, _, n) = self.size.dims;
        self.segments.count() * heads * p * n
    }

    fn scan(&self, chunks: &DeviceBuffer<u32>) -> abi::Scan {
        let (heads, p, groups, n) = self.size.dims;
        abi::Scan {
            xbc: self.inputs[0].ptr(),
            dt: self.inputs[1].ptr(),
            a_log: self.per_head[0].ptr(),
            d: self.per_head[1].ptr(),
            dt_bias: self.per_head[2].ptr(),
            initial: address(&self.initial),
            offsets: self.offsets.ptr(),
            chunks: chunks.ptr(),
            mask: self.mask.abi(),
            rows: self.rows() as u32,
            heads: heads as u32,
            head_dim: p as u32,
            groups: groups as u32,
            state: n as u32,
            segments: self.segments.count() as u32,
            dt_low: self.size.limit.0,
            dt_high: self.size.limit.1,
        }
    }

    fn forward(&self, bench: &mut Bench, rung: Rung) -> Result<Saved, CudaError> {
        let (heads, p, _, n) = self.size.dims;
        let mut chunks = vec![0u32];
        for rows in self.segments.iter() {
            chunks.push(chunks[chunks.len() - 1] + rows.len().div_ceil(rung.chunk()) as u32);
        }
        let starts = chunks[self.segments.count()] as usize * heads * p * n;
        let outputs = self.rows() * heads * p;
        let (y, last) = (bench.room(self.dtype, outputs)?, bench.room(Float::F32, self.states())?);
        let saved = Saved {
            unmasked: bench.room(self.dtype, outputs)?,
            starts: bench.room(rung.products(), starts)?,
            chunks: bench.cuda.upload(&chunks)?,
        };
        let args = abi::ScanForward {
            scan: self.scan(&saved.chunks),
            y: y.ptr(),
            unmasked: saved.unmasked.ptr(),
            final_state: last.ptr(),
            starts: saved.starts.ptr(),
        };
        bench.launch(&format!("ssd_scan_{}_forward_{}", rung.name(), self.dtype.name()), &args)?;
        bench.value(&self.problem, 0, &y, self.dtype)?;
        // Without all that a pass may go without, the same y.
        let bare = bench.room(self.dtype, outputs)?;
        let none = std::ptr::null_mut();
        let args = abi::ScanForward { y: bare.ptr(), unmasked: none, final_state: none.cast(), starts: none, ..args };
        bench.launch(&format!("ssd_scan_{}_forward_{}", rung.name(), self.dtype.name()), &args)?;
        bench.equal("y alone", &bits(&bare.read()?), &bits(&y.read()?));
        let tolerance = if rung.is_on_tensor_cores() { SPLIT } else { Float::F32.tolerance().value };
        bench.compare("output 1", &last.read()?, &self.problem.expected[1], tolerance);
        Ok(saved)
    }

    /// The gradients of the problem's inputs, in their order; none of what it has not.
    fn gradients(&self, bench: &mut Bench, rung: Rung, saved: &Saved) -> Result<[Option<Vec<f32>>; 7], CudaError> {
        let (problem, dtype, rows) = (&self.problem, self.dtype, self.rows());
        let (heads, p, _, n) = self.size.dims;
        let dy = bench.put(dtype, &problem.seeds[0])?;
        let dfinal = bench.cuda.upload(&problem.seeds[1])?;
        let (dxbc, ddt) = (bench.room(dtype, problem.inputs[0].len())?, bench.room(dtype, rows * heads)?);
        let share = || bench.room(Float::F32, rows * heads * n);
        let (db, dc) = (share()?, share()?);
        let dinitial = bench.room(Float::F32, self.states())?;
        let partials = bench.room(Float::F32, self.segments.count() * 3 * heads)?;
        let args = abi::ScanBackward {
            scan: self.scan(&saved.chunks),
            dy: dy.ptr(),
            dfinal: dfinal.ptr(),
            starts: saved.starts.ptr(),
            dxbc: dxbc.ptr(),
            ddt: ddt.ptr(),
            dinitial: dinitial.ptr(),
            db: db.ptr(),
            dc: dc.ptr(),
            partials: partials.ptr(),
        };
        bench.launch(&format!("ssd_scan_{}_backward_{}", rung.name(), dtype.name()), &args)?;
        bench.launch(&format!("ssd_scan_group_sum_{}", dtype.name()), &args)?;
        let per_head = bench.column_sum(&partials, self.segments.count(), 3 * heads)?;
        let per_head = |i: usize| Some(per_head[i * heads..][..heads].to_vec());
        let mut keep = None;
        if let Some(sums) = bench.row_sums(&self.mask, rows)? {
            let args = abi::ScanMaskGrad {
                unmasked: saved.unmasked.ptr(),
                dy: dy.ptr(),
                row_sums: sums.ptr(),
                mask: self.mask.abi(),
                rows: rows as u32,
                heads: heads as u32,
                head_dim: p as u32,
                unused: 0,
            };
            bench.launch(&format!("ssd_scan_mask_grad_{}", dtype.name()), &args)?;
            keep = Some(bench.mask_grad(&self.mask, &sums, rows, 1)?);
        }
        let initial = self.size.carried.then(|| dinitial.read()).transpose()?;
        Ok([Some(dxbc.read()?), Some(ddt.read()?), per_head(0), per_head(1), per_head(2), initial, keep])
    }

    /// What a gradient may be off by. That of d has exact products on every rung, that of the mask is made from the stored
    /// output, rounded as that is.
    fn tolerance(&self, rung: Rung, input: usize) -> f64 {
        let stored = match input {
            0 | 1 | 6 => self.dtype,
            3 => Float::F32,
            5 if rung == Rung::TensorCore => return SPLIT,
            _ => rung.products(),
        };
        stored.tolerance().grad
    }

    /// The f32 rung's gradients against differences of the reference.
    fn hold_to_differences(&self, bench: &mut Bench, saved: &Saved) -> Result<(), CudaError> {
        let gradients = self.gradients(bench, Rung::Chunked, saved)?;
        for (input, gradient) in gradients.iter().enumerate() {
            if let Some(gradient) = gradient {
                bench.gradient(&self.problem, input, gradient, self.tolerance(Rung::Chunked, input));
            }
        }
        Ok(())
    }

    /// What the last rung leaves for the backward pass has the bits of the one before: it computes the same in the same order.
    fn hold_to_rung_below(&self, bench: &mut Bench, saved: &Saved) -> Result<(), CudaError> {
        let below = self.forward(bench, Rung::TensorCore)?;
        for (what, got, want) in [
            ("the states before chunks", &saved.starts, &below.starts),
            ("the unmasked output", &saved.unmasked, &below.unmasked),
        ] {
            bench.equal(what, &bits(&got.read()?), &bits(&want.read()?));
        }
        Ok(())
    }

    /// Every element of the tensor cores' gradients against those of the op on the host, which the ops' tests hold to
    /// differences. x, B and C each have a scale of their own.
    fn hold_to_host(&self, bench: &mut Bench, saved: &Saved) -> Result<(), CudaError> {
        let gradients = self.gradients(bench, Rung::TensorCore, saved)?;
        let expected = match bench.is_second() {
            true => vec![Vec::new(); gradients.len()],
            false => self.on_host().map_err(|e| CudaError::Wrong(e.to_string()))?,
        };
        let (heads, p, groups, n) = self.size.dims;
        let parts = [("x", heads * p), ("B", groups * n), ("C", groups * n)];
        for (input, (got, want)) in gradients.iter().zip(&expected).enumerate() {
            let (Some(got), tolerance) = (got, self.tolerance(Rung::TensorCore, input)) else { continue };
            let want: Vec<f64> = want.iter().map(|v| f64::from(*v)).collect();
            if input > 0 {
                bench.compare(&format!("gradient of {}", self.problem.names[input]), got, &want, tolerance);
                continue;
            }
            let (width, mut first) = (heads * p + 2 * groups * n, 0);
            for (name, columns) in parts {
                let got: Vec<f32> = got.chunks(width).flat_map(|row| &row[first..][..columns]).copied().collect();
                let want: Vec<f64> = want.chunks(width).flat_map(|row| &row[first..][..columns]).copied().collect();
                bench.compare(&format!("gradient of {name}"), &got, &want, tolerance);
                first += columns;
            }
        }
        Ok(())
    }

    /// The gradients by the op on the host, in f32.
    fn on_host(&self) -> Result<Vec<Vec<f32>>> {
        let (heads, head_dim, groups, state) = self.size.dims;
        let (rows, width) = (self.rows(), heads * head_dim + 2 * groups * state);
        let states = [self.segments.count(), heads, head_dim, state];
        let candidates = self.size.ends.len().max(1);
        let dims: [&[usize]; 7] =
            [&[rows, width], &[rows, heads], &[heads], &[heads], &[heads], &states, &[3, candidates]];
        let tape = Tape::new();
        let leaf = |(dims, values): (&[usize], &Vec<f32>)| tape.leaf(Tensor::from_slice(dims, values));
        let inputs: Vec<Var> = dims.into_iter().zip(&self.problem.inputs).map(leaf).collect();
        let mask = self.spec.as_ref().map(|spec| spec.mask(&inputs[6])).transpose()?;
        let options = ScanOptions {
            heads,
            head_dim,
            groups,
            state,
            chunk: 16,
            dt_limit: self.size.limit,
            segments: &self.segments,
            initial: Some(&inputs[5]),
            mask: mask.as_ref(),
            final_state: true,
        };
        let scan = ssd_scan(&tape, &inputs[0], &inputs[1], &inputs[2], &inputs[3], &inputs[4], &options)?;
        let outputs: Vec<Var> = [Some(scan.y), scan.final_state].into_iter().flatten().collect();
        let seed = |(output, seed): (&Var, &Vec<f32>)| Tensor::from_slice(output.shape().clone(), seed);
        let seeds = outputs.iter().zip(&self.problem.seeds).map(seed).collect();
        let gradients = tape.backward_from(&outputs, seeds, &mut ())?;
        let take = |input: &Var| gradients.take(input).map_or(Vec::new(), |gradient| gradient.f32().to_vec());
        Ok(inputs.iter().map(take).collect())
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// xbc, dt, a_log, d, dt_bias, initial, keep; y and the final states.
fn problem(dtype: Float, size: &Size, segments: Segments, mask: Option<MaskSpec>) -> Problem {
    let &Size { dims, limit, ends, carried, a_log, .. } = size;
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
        (generator.uniform("a_log", &[heads], a_log.0, a_log.1), Float::F32),
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
