use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::optional;
use super::problem::Problem;
use crate::autograd::check::Generator;
use crate::ops::causal_conv1d::reference;
use crate::tensor::Segments;

struct Size {
    channels: usize,
    kernel: usize,
    offsets: &'static [usize],
    bias: bool,
    carried: bool,
    stretch: usize,
}

const fn size(
    (channels, kernel): (usize, usize),
    offsets: &'static [usize],
    bias: bool,
    carried: bool,
    stretch: usize,
) -> Size {
    Size { channels, kernel, offsets, bias, carried, stretch }
}

const SIZES: [Size; 25] = [
    size((5, 4), &[0, 0], true, false, 64),
    size((1, 4), &[0, 1], true, false, 64),
    size((3, 1), &[0, 5], true, true, 2),
    size((19, 4), &[0, 1, 1, 3, 40], true, false, 16),
    size((7, 3), &[0, 1, 9], true, true, 4),
    size((33, 4), &[0, 65, 200], false, false, 64),
    size((256, 4), &[0, 0, 3, 70, 70, 200], true, true, 32),
    size((132, 2), &[0, 2, 5, 130], true, true, 5),
    size((8, 4), &[0, 1, 2, 3, 4, 5], true, true, 2),
    // Short segments inside a stretch.
    size((8, 4), &[0, 5, 6, 8, 9, 20], true, false, 16),
    size((7, 4), &[0, 5, 6, 8, 9, 20], true, true, 16),
    // Every number of taps, with channels in fours.
    size((8, 3), &[0, 5, 6, 8, 9, 20], true, true, 7),
    size((4, 1), &[0, 3, 9], false, true, 4),
    size((12, 2), &[0, 1, 9], true, false, 3),
    // Of the last warp two lanes have channels, and one.
    size((8, 4), &[0, 5, 6, 8, 9, 20], true, true, 7),
    size((136, 4), &[0, 9], true, false, 4),
    size((132, 4), &[0, 9], true, false, 4),
    // Behind segments without rows, with fewer taps than there can be.
    size((8, 3), &[0, 0, 5, 5, 6, 6, 8, 8, 20], true, true, 7),
    size((7, 3), &[0, 0, 5, 5, 6, 6, 8, 8, 20], true, true, 7),
    size((5, 2), &[0, 0, 5, 5, 6, 6, 8, 8, 20], true, true, 7),
    // All that a lane owns, one channel at a time.
    size((131, 4), &[0, 5, 20], true, true, 4),
    size((131, 3), &[0, 5, 20], true, false, 7),
    size((131, 2), &[0, 9], false, true, 4),
    size((131, 1), &[0, 6], true, false, 4),
    // Rows far inside a segment, fewer taps than there can be, channels in fours.
    size((12, 3), &[0, 3, 20], true, true, 5),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for size in &SIZES {
            let Size { channels, kernel, offsets, .. } = size;
            bench.case(format!("{channels} channels, {kernel} taps, segments {offsets:?} in {}", dtype.name()));
            one(bench, dtype, size)?;
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("8 channels in {}", dtype.name()));
            one(bench, dtype, &size((8, 4), &[0, 3, 8], true, true, 3))
        })?;
    }
    Ok(())
}

fn one(bench: &mut Bench, dtype: Float, size: &Size) -> Result<(), CudaError> {
    let &Size { channels, kernel, offsets, bias, carried, stretch } = size;
    let segments = Segments::from_offsets(offsets).unwrap_or_else(|| unreachable!("offsets of a case"));
    let rows = segments.rows();
    let problem = problem(dtype, size, segments);
    let put = |at: usize| bench.put(dtype, &problem.inputs[at]);
    let (x, weight) = (put(0)?, put(1)?);
    // What is carried into segments without rows goes into the state alone.
    let before = (kernel - 1) * channels;
    let mut used = problem.inputs[3].clone();
    for (segment, _) in offsets.windows(2).enumerate().filter(|(_, ends)| carried && ends[0] == ends[1]) {
        used[segment * before..][..before].fill(f32::NAN);
    }
    let used = carried.then(|| bench.put(dtype, &used)).transpose()?;
    let initial = carried.then(|| put(3)).transpose()?;
    let bias_data = bias.then(|| put(2)).transpose()?;
    let starts = bench.cuda.upload(&offsets.iter().map(|at| *at as u32).collect::<Vec<_>>())?;
    let conv = abi::Conv {
        x: x.ptr(),
        weight: weight.ptr(),
        bias: optional(&bias_data),
        initial: optional(&used),
        offsets: starts.ptr(),
        rows: rows as u32,
        channels: channels as u32,
        kernel: kernel as u32,
        segments: offsets.len() as u32 - 1,
        stretch: stretch as u32,
        unused: 0,
    };
    let y = bench.room(dtype, rows * channels)?;
    bench.launch(&format!("causal_conv1d_forward_{}", dtype.name()), &abi::ConvForward { conv, y: y.ptr() })?;
    bench.value(&problem, 0, &y, dtype)?;

    let (stretches, width) = (rows.div_ceil(stretch), channels * (kernel + 1));
    let (dy, dx) = (bench.put(dtype, &problem.seeds[0])?, bench.room(dtype, rows * channels)?);
    let partials = bench.room(Float::F32, stretches * width)?;
    let args = abi::ConvBackward { conv, dy: dy.ptr(), dx: dx.ptr(), partials: partials.ptr() };
    bench.launch(&format!("causal_conv1d_backward_{}", dtype.name()), &args)?;
    bench.gradient(&problem, 0, &dx.read()?, dtype.tolerance().grad);
    let grads = bench.column_sum(&partials, stretches, width)?;
    bench.gradient(&problem, 1, &grads[..channels * kernel], Float::F32.tolerance().grad);
    if bias {
        bench.gradient(&problem, 2, &grads[channels * kernel..], Float::F32.tolerance().grad);
    }

    let state = bench.room(dtype, (offsets.len() - 1) * (kernel - 1) * channels)?;
    let args = abi::ConvState {
        x: x.ptr(),
        initial: optional(&initial),
        offsets: starts.ptr(),
        state: state.ptr(),
        channels: channels as u32,
        kernel: kernel as u32,
        segments: offsets.len() as u32 - 1,
        unused: 0,
    };
    bench.launch(&format!("causal_conv1d_state_{}", dtype.name()), &args)?;
    bench.equal("state", &state.read()?, &last_inputs(&problem, size));
    Ok(())
}

/// x, weight, bias, initial; the last two empty where there is none.
fn problem(dtype: Float, size: &Size, segments: Segments) -> Problem {
    let &Size { channels, kernel, bias, carried, .. } = size;
    let mut generator = Generator::new(segments.rows() as u64);
    let before = if carried { segments.count() } else { 0 };
    let inputs = vec![
        (generator.normal("x", &[segments.rows(), channels], 1.0), dtype),
        (generator.normal("weight", &[channels, kernel], 0.5), dtype),
        (generator.normal("bias", &[if bias { channels } else { 0 }], 0.5), dtype),
        (generator.normal("initial", &[before, kernel - 1, channels], 1.0), dtype),
    ];
    Problem::new(dtype, inputs, move |v| {
        vec![reference::causal_conv1d(&v[0], &v[1], &v[2], &v[3], (channels, kernel), &segments)]
    })
}

/// [S, K − 1, C]: what the next call carries in.
fn last_inputs(problem: &Problem, size: &Size) -> Vec<f32> {
    let before = (size.kernel - 1) * size.channels;
    let mut state = Vec::new();
    for (segment, range) in size.offsets.windows(2).enumerate() {
        let mut inputs = match size.carried {
            true => problem.inputs[3][segment * before..][..before].to_vec(),
            false => vec![0.0; before],
        };
        inputs.extend_from_slice(&problem.inputs[0][range[0] * size.channels..range[1] * size.channels]);
        state.extend_from_slice(&inputs[inputs.len() - before..]);
    }
    state
}
