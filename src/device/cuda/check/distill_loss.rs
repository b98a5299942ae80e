use super::super::embedded::abi;
use super::super::{CudaError, DeviceBuffer};
use super::bench::{Bench, Data, Float};
use super::masks::address;
use super::problem::Problem;
use crate::autograd::check::Generator;
use crate::ops::cross_entropy::reference::log_sum_exp;

struct Size {
    rows: usize,
    vocab: usize,
    /// Tokens that are looked at together.
    chunk: usize,
    temperature: f32,
    /// Every so many rows are valid; 0: none, 1: all.
    every: usize,
    /// Logits of thousands: all probability is one token's, and exponentials of plain logits would overflow.
    extreme: bool,
}

const fn size([rows, vocab, chunk, every]: [usize; 4], temperature: f32) -> Size {
    Size { rows, vocab, chunk, temperature, every, extreme: false }
}

const SIZES: [Size; 8] = [
    size([1, 1, 1, 1], 1.0),
    size([5, 11, 4, 0], 1.0),
    size([13, 37, 37, 1], 1.0),
    size([31, 101, 17, 3], 0.5),
    size([6, 4096, 1024, 2], 1.3),
    size([4, 2100, 2100, 1], 1.0),
    // Threads with several single tokens each.
    size([3, 2301, 1801, 1], 0.8),
    Size { extreme: true, ..size([9, 300, 128, 2], 1.0) },
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for size in &SIZES {
            let Size { rows, vocab, chunk, temperature, .. } = size;
            let dtype_name = dtype.name();
            bench.case(format!("{rows} rows of {vocab} by {chunk}, T {temperature}, gradient in {dtype_name}"));
            one(bench, dtype, size)?;
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("3 rows of 16, gradient in {}", dtype.name()));
            one(bench, dtype, &size([3, 16, 16, 1], 0.8))
        })?;
    }
    Ok(())
}

fn one(bench: &mut Bench, dtype: Float, size: &Size) -> Result<(), CudaError> {
    let &Size { rows, vocab, chunk, temperature, every, extreme } = size;
    let scale = 1.0 / temperature;
    let valid: Vec<u32> = (0..rows).map(|row| u32::from(every > 0 && row % every.max(1) == 0)).collect();
    let count = valid.iter().sum::<u32>().max(1);
    let problem = problem(size, valid.clone(), f64::from(scale));
    let device_valid = (every != 1).then(|| bench.cuda.upload(&valid)).transpose()?;
    let statistics = bench.numbers::<f64>(rows * 5)?;
    let columns: Vec<usize> = (0..vocab).step_by(chunk).collect();
    let part = |bench: &Bench, input: usize, first: usize| -> Result<(Data, usize), CudaError> {
        let width = chunk.min(vocab - first);
        let values: Vec<f32> =
            problem.inputs[input].chunks(vocab).flat_map(|row| &row[first..first + width]).copied().collect();
        Ok((bench.put(Float::F32, &values)?, width))
    };
    for first in &columns {
        let ((student, width), (teacher, _)) = (part(bench, 0, *first)?, part(bench, 1, *first)?);
        let args = abi::DistillSums {
            teacher: teacher.ptr(),
            student: student.ptr(),
            valid: address(&device_valid),
            statistics: statistics.ptr(),
            rows: rows as u32,
            vocab: width as u32,
            scale,
            first: u32::from(*first == 0),
        };
        bench.launch("distill_loss_sums_f32", &args)?;
    }
    mean(bench, &problem, &statistics, &device_valid, rows)?;

    let mut grad = vec![f32::NAN; rows * vocab];
    for first in &columns {
        let ((student, width), (teacher, _)) = (part(bench, 0, *first)?, part(bench, 1, *first)?);
        let dstudent = bench.room(dtype, rows * width)?;
        let args = abi::DistillGrad {
            teacher: teacher.ptr(),
            student: student.ptr(),
            valid: address(&device_valid),
            statistics: statistics.ptr(),
            dstudent: dstudent.ptr(),
            rows: rows as u32,
            vocab: width as u32,
            scale,
            factor: problem.seeds[0][0] / count as f32,
        };
        bench.launch(&format!("distill_loss_grad_{}", dtype.name()), &args)?;
        for (row, part) in dstudent.read()?.chunks(width).enumerate() {
            grad[row * vocab + first..][..width].copy_from_slice(part);
        }
    }
    if extreme {
        // Differences cannot follow steps from 0 to 1.
        let factor = f64::from(problem.seeds[0][0] / count as f32);
        bench.compare("gradient", &grad, &slopes(&problem.exact, vocab, &valid, factor), dtype.tolerance().grad);
    } else {
        bench.gradient(&problem, 0, &grad, dtype.tolerance().grad);
    }
    Ok(())
}

/// factor·(p_student − p_teacher) at temperature 1.
fn slopes(logits: &[Vec<f64>], vocab: usize, valid: &[u32], factor: f64) -> Vec<f64> {
    let probability = |logits: &[f64], at: usize| {
        let row = &logits[at / vocab * vocab..][..vocab];
        (logits[at] - log_sum_exp(row)).exp()
    };
    let slope =
        |at| f64::from(valid[at / vocab]) * factor * (probability(&logits[0], at) - probability(&logits[1], at));
    (0..logits[0].len()).map(slope).collect()
}

fn mean(
    bench: &mut Bench,
    problem: &Problem,
    statistics: &DeviceBuffer<f64>,
    valid: &Option<DeviceBuffer<u32>>,
    rows: usize,
) -> Result<(), CudaError> {
    let loss = bench.room(Float::F32, 1)?;
    let args = abi::DistillMean {
        statistics: statistics.ptr(),
        valid: address(valid),
        loss: loss.ptr(),
        rows: rows as u32,
        unused: 0,
    };
    bench.launch("distill_loss_mean_f32", &args)?;
    bench.value(problem, 0, &loss, Float::F32)
}

/// Student, teacher: logits [R, V].
fn problem(size: &Size, valid: Vec<u32>, scale: f64) -> Problem {
    let &Size { rows, vocab, extreme, .. } = size;
    let mut generator = Generator::new((rows + vocab) as u64);
    let std = if extreme { 3000.0 } else { 2.0 };
    let mut inputs = vec![
        (generator.normal("student", &[rows, vocab], std), Float::F32),
        (generator.normal("teacher", &[rows, vocab], std), Float::F32),
    ];
    if extreme {
        // Differences whose exponential is far below the smallest f32, and in f64 a subnormal number: of threads, of chunks.
        for (input, _) in &mut inputs {
            for (row, largest) in [(0, 5), (2, vocab - 3)] {
                input.values[row * vocab..][..vocab].iter_mut().for_each(|x| *x /= 3000.0);
                input.values[row * vocab + largest] = 720.0;
            }
        }
    }
    Problem::new(Float::F32, inputs, move |v| {
        let log_probs = |logits: &[f64], row: usize| -> Vec<f64> {
            let scaled: Vec<f64> = logits[row * vocab..][..vocab].iter().map(|x| x * scale).collect();
            let total = log_sum_exp(&scaled);
            scaled.into_iter().map(|x| x - total).collect()
        };
        let of_row = |row: usize| -> f64 {
            let (student, teacher) = (log_probs(&v[0], row), log_probs(&v[1], row));
            teacher.iter().zip(&student).map(|(t, s)| t.exp() * (t - s)).sum()
        };
        let total: f64 = (0..rows).filter(|row| valid[*row] == 1).map(of_row).sum();
        vec![vec![total / f64::from(valid.iter().sum::<u32>().max(1))]]
    })
}
