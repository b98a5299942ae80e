use half::bf16;

use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Data, Float};
use super::problem::Problem;
use crate::autograd::check::Generator;
use crate::ops::adamw::{AdamWOptions, Update, reference};

/// Elements, update, largest norm, whether the parameter decays, elements of its buffers in front of it.
type Size = (usize, u64, f32, bool, usize);

const SIZES: [Size; 7] = [
    (0, 1, 1.0, true, 0),
    (1, 1, 0.3, false, 0),
    (1000, 7, f32::INFINITY, true, 0),
    (1003, 3, 1.0, true, 0),
    (1027, 3, 1.0, true, 1),
    (4099, 2, 5.0, false, 0),
    (40_001, 100_000, 5.0, true, 0),
];
/// What the other tensors add to the squared norm.
const OTHERS: f64 = 0.25;
const LEARNING_RATE: f32 = 1e-3;
/// Of this parameter, times the learning rate.
const RATE: f32 = 0.5;

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for size in SIZES {
            bench.case(format!("{} elements in {}, update {}", size.0, dtype.name(), size.1));
            one(bench, dtype, size)?;
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("24 elements in {}", dtype.name()));
            one(bench, dtype, (24, 3, 1.0, true, 0))
        })?;
    }
    Ok(())
}

fn one(bench: &mut Bench, dtype: Float, (size, update, max_norm, decay, offset): Size) -> Result<(), CudaError> {
    let mut generator = Generator::new(size as u64);
    let inputs = vec![
        (generator.normal("value", &[size], 1.0), Float::F32),
        (generator.normal("grad", &[size], 1.0), dtype),
        (generator.normal("first moment", &[size], 0.1), Float::F32),
        (generator.uniform("second moment", &[size], 0.0, 0.1), Float::F32),
    ];
    let options = AdamWOptions::default();
    let problem = Problem::new(Float::F32, inputs, move |v| {
        let scale = (f64::from(max_norm) / norm_of(&v[1])).min(1.0) as f32;
        let update = Update { learning_rate: LEARNING_RATE * RATE, scale, update, decay };
        reference::adamw(&v[0], &v[1], &v[2], &v[3], &update, &options).to_vec()
    });

    let grad = bench.put(dtype, &problem.inputs[1])?;
    let norm = norm(bench, dtype, &grad, size)?;
    bench.compare("norm", &norm.read()?, &[norm_of(&problem.exact[1])], 1e-6);
    let state = abi::StepState { update, learning_rate: LEARNING_RATE, max_norm, ..Default::default() };
    let state = bench.state(state)?;
    let weight = bench.placed::<bf16>(size)?;
    let put = |at: usize| bench.put(Float::F32, &[vec![7.0; offset], problem.inputs[at].clone()].concat());
    let (value, first, second) = (put(0)?, put(2)?, put(3)?);
    let args = abi::AdamWUpdate {
        state: state.ptr(),
        norm: norm.ptr(),
        grad: grad.ptr(),
        value: value.ptr_at(offset),
        first: first.ptr_at(offset),
        second: second.ptr_at(offset),
        weight: weight.ptr(),
        elements: size as u64,
        rate: RATE,
        weight_decay: if decay { options.weight_decay } else { 0.0 },
        beta1: options.beta1,
        beta2: options.beta2,
        eps: options.eps,
        unused: 0,
    };
    bench.launch(&format!("adamw_update_{}", dtype.name()), &args)?;
    for (output, got) in [&value, &first, &second].into_iter().enumerate() {
        let got = got.read()?;
        bench.equal("elements in front", &got[..offset], &vec![7.0; offset]);
        bench.compare(
            &format!("output {output}"),
            &got[offset..],
            &problem.expected[output],
            Float::F32.tolerance().value,
        );
    }
    let copy: Vec<u16> = value.read()?[offset..].iter().map(|v| bf16::from_f32(*v).to_bits()).collect();
    let bits: Vec<u16> = weight.read()?.into_iter().map(bf16::to_bits).collect();
    bench.equal("bf16 copy", &bits, &copy);
    Ok(())
}

fn norm_of(grad: &[f64]) -> f64 {
    (grad.iter().map(|g| g * g).sum::<f64>() + OTHERS).sqrt()
}

/// The norm of all gradients: this tensor's, and another's that is one partial sum.
fn norm(bench: &mut Bench, dtype: Float, grad: &Data, size: usize) -> Result<Data, CudaError> {
    let blocks = size.div_ceil(16384);
    let mut sums = vec![f64::NAN; blocks + 1];
    sums[blocks] = OTHERS;
    let partials = bench.cuda.upload(&sums)?;
    let args = abi::AdamWSquares { grad: grad.ptr(), partials: partials.ptr(), elements: size as u64 };
    bench.launch(&format!("adamw_squares_{}", dtype.name()), &args)?;
    let norm = bench.room(Float::F32, 1)?;
    let args = abi::AdamWNorm { partials: partials.ptr(), norm: norm.ptr(), count: blocks as u64 + 1 };
    bench.launch("adamw_norm_f64", &args)?;
    Ok(norm)
}
