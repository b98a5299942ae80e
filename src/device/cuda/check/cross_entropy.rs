use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::problem::Problem;
use crate::autograd::check::Generator;
use crate::ops::cross_entropy::NOT_COUNTED;
use crate::ops::cross_entropy::reference::log_sum_exp;

/// Rows, V.
const SIZES: [(usize, usize); 9] =
    [(0, 5), (1, 1), (7, 37), (5, 4096), (3, 2500), (4, 2301), (18, 2052), (18, 515), (2, 64)];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for (rows, vocab) in SIZES {
            bench.case(format!("{rows} rows of {vocab}, gradient in {}", dtype.name()));
            one(bench, dtype, rows, vocab)?;
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("3 rows of 16, gradient in {}", dtype.name()));
            one(bench, dtype, 3, 16)
        })?;
        for vocab in [2056, 521] {
            bench.case(format!("equal logits among {vocab}, gradient in {}", dtype.name()));
            ties(bench, dtype, vocab)?;
        }
        for vocab in [64, 70] {
            bench.case(format!("NaN throughout {vocab}, gradient in {}", dtype.name()));
            broken(bench, dtype, vocab)?;
        }
    }
    Ok(())
}

/// The first of two equally likely tokens is taken, whichever lanes and warps they are with.
fn ties(bench: &mut Bench, dtype: Float, vocab: usize) -> Result<(), CudaError> {
    let of_lane = if vocab.is_multiple_of(4) { 4 } else { 1 };
    let (of_warp, of_block) = (32 * of_lane, 512 * of_lane);
    let others = (1..16).map(|warp| warp * of_warp).chain([1, 2, 4, 8, 16].map(|lane| lane * of_lane));
    // With the block's first thread, in its first step and in its second.
    let pairs = others.flat_map(|at| [[0, at], [at, of_block]]);
    // And alone there, behind what all others have.
    let pairs: Vec<[usize; 2]> = pairs.chain([[of_block, of_block]]).collect();
    let mut logits = vec![0.5f32; pairs.len() * vocab];
    for (row, pair) in pairs.iter().enumerate() {
        pair.iter().for_each(|at| logits[row * vocab + at] = 3.0);
    }
    let (_, tops) = losses_and_tops(bench, dtype, &logits, vocab)?;
    bench.equal("most likely tokens", &tops, &pairs.iter().map(|pair| pair[0] as u32).collect::<Vec<_>>());
    Ok(())
}

/// Of a row that is NaN throughout no token is the most likely.
fn broken(bench: &mut Bench, dtype: Float, vocab: usize) -> Result<(), CudaError> {
    let (losses, tops) = losses_and_tops(bench, dtype, &vec![f32::NAN; vocab], vocab)?;
    bench.equal("most likely tokens", &tops, &[NOT_COUNTED]);
    bench.equal("the loss is NaN", &[losses[0].is_nan()], &[true]);
    Ok(())
}

/// Rows' losses for token 3, and their most likely tokens, without gradients.
fn losses_and_tops(
    bench: &mut Bench,
    dtype: Float,
    logits: &[f32],
    vocab: usize,
) -> Result<(Vec<f32>, Vec<u32>), CudaError> {
    let rows = logits.len() / vocab;
    let device = bench.put(Float::F32, logits)?;
    let targets = bench.cuda.upload(&vec![3u32; rows])?;
    let (losses, tops) = (bench.room(Float::F32, rows)?, bench.numbers::<u32>(rows)?);
    let args = abi::CrossEntropy {
        logits: device.ptr(),
        targets: targets.ptr(),
        dlogits: std::ptr::null_mut(),
        losses: losses.ptr(),
        tops: tops.ptr(),
        rows: rows as u32,
        vocab: vocab as u32,
        scale: 1.0,
        unused: 0,
    };
    bench.launch(&format!("cross_entropy_rows_{}", dtype.name()), &args)?;
    Ok((losses.read()?, tops.read()?))
}

fn one(bench: &mut Bench, dtype: Float, rows: usize, vocab: usize) -> Result<(), CudaError> {
    let mut logits = Generator::new((rows + vocab) as u64).normal("logits", &[rows, vocab], 3.0);
    let mut targets: Vec<u32> = (0..rows).map(|row| (row * row * 31 % vocab) as u32).collect();
    targets.iter_mut().skip(2).step_by(5).for_each(|target| *target = NOT_COUNTED);
    if vocab == 64 {
        // Logits of all magnitudes, and one that alone is not −∞.
        logits.values[..vocab].iter_mut().for_each(|x| *x *= 1000.0);
        logits.values[vocab..].fill(f32::NEG_INFINITY);
        logits.values[vocab + targets[1] as usize] = 2.0;
    }
    if rows >= 16 {
        // The largest logit with each of the block's warps.
        let of_warp = if vocab.is_multiple_of(4) { 128 } else { 32 };
        (0..rows).for_each(|row| logits.values[row * vocab + row % 16 * of_warp + 7] = 25.0);
    } else if vocab > 2048 {
        // The largest logit more than once: beside itself, and where the same thread and another come later.
        for (row, at) in [(0, 1), (1, 1000)] {
            for again in [at, at + 1, at + 3, at + 512, at + 1024] {
                logits.values[row * vocab + again] = 20.0;
            }
        }
        let last = (rows - 1) * vocab;
        (logits.values[last + 5], logits.values[last + 5 + 2048]) = (20.0, 20.0);
    }
    let counted = targets.iter().filter(|t| **t != NOT_COUNTED).count().max(1);
    let ours = targets.clone();
    let nats = move |logits: &[f64]| -> Vec<f64> {
        let row = |(row, target): (usize, &u32)| match *target {
            NOT_COUNTED => 0.0,
            target => log_sum_exp(&logits[row * vocab..][..vocab]) - logits[row * vocab + target as usize],
        };
        ours.iter().enumerate().map(row).collect()
    };
    let same = nats.clone();
    let problem = Problem::new(Float::F32, vec![(logits, Float::F32)], move |v| {
        vec![vec![same(&v[0]).iter().sum::<f64>() / counted as f64]]
    });

    let (logits, device_targets) = (bench.put(Float::F32, &problem.inputs[0])?, bench.cuda.upload(&targets)?);
    let (dlogits, losses) = (bench.room(dtype, rows * vocab)?, bench.room(Float::F32, rows)?);
    let tops = bench.numbers::<u32>(rows)?;
    let args = abi::CrossEntropy {
        logits: logits.ptr(),
        targets: device_targets.ptr(),
        dlogits: dlogits.ptr(),
        losses: losses.ptr(),
        tops: tops.ptr(),
        rows: rows as u32,
        vocab: vocab as u32,
        scale: 1.0 / counted as f32,
        unused: 0,
    };
    bench.launch(&format!("cross_entropy_rows_{}", dtype.name()), &args)?;
    bench.compare("losses", &losses.read()?, &nats(&problem.exact[0]), Float::F32.tolerance().value);
    let best = |row: usize| {
        let logits = &problem.inputs[0][row * vocab..][..vocab];
        (0..vocab).fold(0, |best, at| if logits[at] > logits[best] { at } else { best }) as u32
    };
    let want = |row: usize| if targets[row] == NOT_COUNTED { NOT_COUNTED } else { best(row) };
    bench.equal("most likely tokens", &tops.read()?, &(0..rows).map(want).collect::<Vec<_>>());

    let loss = bench.room(Float::F32, 1)?;
    let args = abi::CrossEntropyMean {
        losses: losses.ptr(),
        targets: device_targets.ptr(),
        loss: loss.ptr(),
        rows: rows as u32,
        unused: 0,
    };
    bench.launch("cross_entropy_mean_f32", &args)?;
    bench.value(&problem, 0, &loss, Float::F32)?;
    let grad: Vec<f32> = dlogits.read()?.iter().map(|g| g * problem.seeds[0][0]).collect();
    match vocab {
        // Steps to both sides of −∞ are no steps.
        64 => bench.again("gradient", &grad),
        _ => bench.gradient(&problem, 0, &grad, dtype.tolerance().grad),
    }
    Ok(())
}
