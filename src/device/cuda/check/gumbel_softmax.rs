use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::problem::Problem;
use crate::autograd::check::Generator;
use crate::ops::gumbel_softmax::{gumbel_noise, reference};

/// Draws, candidates, κ, τ.
// The last two have as many candidates as a block has threads, and more.
const SIZES: [(usize, usize, f32, f32); 7] = [
    (0, 3, 1.0, 1.0),
    (1, 1, 1.0, 1.0),
    (3, 5, 1.0, 1.0),
    (4, 2, 10.0, 0.5),
    (32, 40, 3.0, 0.2),
    (0, 300, 1.0, 1.0),
    (2, 300, 1.0, 1.0),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for size in SIZES {
        bench.case(format!("{} draws of {} candidates, κ {}, τ {}", size.0, size.1, size.2, size.3));
        one(bench, size)?;
    }
    Ok(())
}

fn one(bench: &mut Bench, (draws, candidates, kappa, tau): (usize, usize, f32, f32)) -> Result<(), CudaError> {
    let (seed, step, gate) = (7, 11, 3);
    let state = bench.state(abi::StepState { seed, step, kappa, tau, ..Default::default() })?;
    let noise = bench.room(Float::F32, draws * candidates)?;
    let args = abi::GumbelNoise {
        state: state.ptr(),
        noise: noise.ptr(),
        gate,
        draws: draws as u32,
        candidates: candidates as u32,
        unused: 0,
    };
    bench.launch("gumbel_softmax_noise_f32", &args)?;
    let ours = gumbel_noise(seed, step, gate as usize, draws, candidates);
    let wide: Vec<f64> = ours.f32().iter().map(|g| f64::from(*g)).collect();
    bench.compare("noise", &noise.read()?, &wide, Float::F32.tolerance().value);

    let noise = bench.put(Float::F32, ours.f32())?;
    let logits = Generator::new(candidates as u64).normal("logits", &[candidates], 0.3);
    let problem = Problem::new(Float::F32, vec![(logits, Float::F32)], move |v| {
        vec![reference::gumbel_softmax(&v[0], &wide, f64::from(kappa), f64::from(tau))]
    });
    let (logits, y) = (bench.put(Float::F32, &problem.inputs[0])?, bench.room(Float::F32, draws * candidates)?);
    let args = abi::GumbelForward {
        state: state.ptr(),
        logits: logits.ptr(),
        noise: noise.ptr(),
        y: y.ptr(),
        draws: draws as u32,
        candidates: candidates as u32,
    };
    bench.launch("gumbel_softmax_forward_f32", &args)?;
    bench.value(&problem, 0, &y, Float::F32)?;

    let (dy, dlogits) = (bench.put(Float::F32, &problem.seeds[0])?, bench.room(Float::F32, candidates)?);
    let args = abi::GumbelBackward {
        state: state.ptr(),
        y: y.ptr(),
        dy: dy.ptr(),
        dlogits: dlogits.ptr(),
        draws: draws as u32,
        candidates: candidates as u32,
        accumulate: 0,
        unused: 0,
    };
    bench.launch("gumbel_softmax_backward_f32", &args)?;
    let once = dlogits.read()?;
    bench.gradient(&problem, 0, &once, Float::F32.tolerance().grad);
    bench.launch("gumbel_softmax_backward_f32", &abi::GumbelBackward { accumulate: 1, ..args })?;
    let twice: Vec<f64> = once.iter().map(|g| 2.0 * f64::from(*g)).collect();
    bench.compare("accumulated gradient", &dlogits.read()?, &twice, Float::F32.tolerance().grad);
    Ok(())
}
