//! The gradient checker: an f32 op is held against differences of its naive f64 reference.
//!
//! Differences of the f32 op itself would drown in its rounding; the reference in f64 has none to speak of, is a page of
//! plain loops, and is checked by eye against the formula.

use std::sync::Arc;

use super::mask::{Draws, Mask};
use super::tape::{Tape, Var};
use crate::device::cuda::Cuda;
use crate::numerics::Philox;
use crate::tensor::Tensor;
use crate::{Result, device};

type Op = Box<dyn Fn(&Tape<'static>, &[Var]) -> Result<Vec<Var>> + Send + Sync>;
pub(crate) type Reference = Box<dyn Fn(&[Vec<f64>]) -> Vec<Vec<f64>> + Send + Sync>;

/// One set of inputs for an op, and what the op must give for them.
pub struct Case {
    pub name: String,
    pub inputs: Vec<Input>,
    /// f32 outputs of the op for the inputs, in order.
    pub op: Op,
    /// The same outputs from f64 copies of the inputs.
    pub reference: Reference,
    pub tolerance: Tolerance,
}

/// A float input of a [`Case`].
pub struct Input {
    pub name: &'static str,
    pub dims: Vec<usize>,
    pub values: Vec<f32>,
    /// Whether the gradient is checked.
    pub differentiable: bool,
}

/// |a − b| ≤ `value` · (scale + |b|), scale being the root mean square of the reference's tensor; the same for gradients.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub value: f64,
    pub grad: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance { value: 2e-5, grad: 1e-4 }
    }
}

impl Case {
    pub fn new(
        name: impl Into<String>,
        inputs: Vec<Input>,
        op: impl Fn(&Tape<'static>, &[Var]) -> Result<Vec<Var>> + Send + Sync + 'static,
        reference: impl Fn(&[Vec<f64>]) -> Vec<Vec<f64>> + Send + Sync + 'static,
    ) -> Case {
        Case {
            name: name.into(),
            inputs,
            op: Box::new(op),
            reference: Box::new(reference),
            tolerance: Tolerance::default(),
        }
    }
}

/// Random inputs for cases: every call draws from a new stream.
pub struct Generator {
    seed: u64,
    stream: u64,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { seed, stream: 0 }
    }

    /// Numbers from `draw(noise, element)`.
    pub fn values(&mut self, count: usize, draw: impl Fn(&Philox, u64) -> f64) -> Vec<f32> {
        self.stream += 1;
        let noise = Philox::new(self.seed, self.stream);
        (0..count as u64).map(|i| draw(&noise, i) as f32).collect()
    }

    /// A differentiable input, normal with this standard deviation.
    pub fn normal(&mut self, name: &'static str, dims: &[usize], std: f64) -> Input {
        let values = self.values(dims.iter().product(), |noise, i| std * noise.normal(i));
        Input { name, dims: dims.to_vec(), values, differentiable: true }
    }

    /// A differentiable input, uniform in [low, high).
    pub fn uniform(&mut self, name: &'static str, dims: &[usize], low: f64, high: f64) -> Input {
        let values = self.values(dims.iter().product(), |noise, i| low + (high - low) * noise.uniform(i));
        Input { name, dims: dims.to_vec(), values, differentiable: true }
    }

    /// Keep probabilities [draws, C] of a mask: falling along a row from 1, with an exact 0 at the end of every other draw.
    pub fn keep(&mut self, draws: usize, candidates: usize) -> Input {
        let mut input = self.uniform("keep", &[draws, candidates], 0.05, 1.0);
        for (draw, row) in input.values.chunks_mut(candidates).enumerate() {
            row.sort_by(|a, b| b.total_cmp(a));
            row[0] = 1.0;
            if draw % 2 == 1 && candidates > 1 {
                row[candidates - 1] = 0.0;
            }
        }
        input
    }
}

/// The parts of a mask that are not differentiated, for cases: builds the [`Mask`] and spells it out in f64.
#[derive(Clone, Debug)]
pub struct MaskSpec {
    pub ends: Vec<usize>,
    pub draws: Draws,
}

impl MaskSpec {
    pub fn mask(&self, keep: &Var) -> Result<Mask> {
        Mask::new(&self.ends, keep.clone(), self.draws.clone())
    }

    /// The mask of component i on row `row`.
    pub fn value(&self, keep: &[f64], row: usize, i: usize) -> f64 {
        let c = self.ends.len();
        let rank = i % self.ends[c - 1];
        let interval = self.ends.iter().position(|end| rank < *end).unwrap_or_else(|| unreachable!());
        keep[self.draws.of(row) * c + interval]
    }

    /// Σ over `width` components.
    pub fn total(&self, keep: &[f64], row: usize, width: usize) -> f64 {
        (0..width).map(|i| self.value(keep, row, i)).sum()
    }
}

/// Checks values, gradients and reproducibility of the op on a GPU, in f32.
pub fn check_on(case: &Case, gpu: &Arc<Cuda>) -> Result<(), String> {
    let problem = Problem::new(case);
    let run = || evaluate_on(case, &problem.seeds, Some(gpu)).map_err(|e| e.to_string());
    run().and_then(|one| hold(case, &problem, &one, &run()?)).map_err(|message| format!("{}: {message}", case.name))
}

/// What the reference makes of a case, and a gradient of each output to start from.
struct Problem {
    exact: Vec<Vec<f64>>,
    expected: Vec<Vec<f64>>,
    seeds: Vec<Vec<f32>>,
}

impl Problem {
    fn new(case: &Case) -> Problem {
        let widened = |i: &Input| i.values.iter().map(|v| f64::from(*v)).collect();
        let exact: Vec<Vec<f64>> = case.inputs.iter().map(widened).collect();
        let expected = (case.reference)(&exact);
        let mut generator = Generator::new(0x5eed);
        let seeds = expected.iter().map(|o| generator.values(o.len(), |noise, i| noise.normal(i))).collect();
        Problem { exact, expected, seeds }
    }
}

struct Evaluation {
    outputs: Vec<Tensor>,
    grads: Vec<Option<Tensor>>,
}

/// Checks values, gradients and reproducibility; the error says which number of which tensor is off and by how much.
pub fn check(case: &Case) -> Result<(), String> {
    device::pool::poison_allocations(true);
    let result = check_poisoned(case);
    device::pool::poison_allocations(false);
    result.map_err(|message| format!("{}: {message}", case.name))
}

fn check_poisoned(case: &Case) -> Result<(), String> {
    let problem = Problem::new(case);
    let run = |threads| {
        device::with_threads(threads, || evaluate_on(case, &problem.seeds, None))
            .and_then(|r| r)
            .map_err(|e| e.to_string())
    };
    hold(case, &problem, &run(1)?, &run(2)?)
}

/// Holds one run against the reference, and another against the first, bit by bit.
fn hold(case: &Case, problem: &Problem, one: &Evaluation, two: &Evaluation) -> Result<(), String> {
    let Problem { exact, expected, seeds } = problem;
    if one.outputs.len() != expected.len() {
        return Err(format!("{} outputs, the reference has {}", one.outputs.len(), expected.len()));
    }
    for (k, (got, want)) in one.outputs.iter().zip(expected).enumerate() {
        let got = widen(got);
        compare(&format!("output {k}"), &got, want, case.tolerance.value)?;
        same_bits(&format!("output {k}"), &one.outputs[k], &two.outputs[k])?;
    }
    for (i, input) in case.inputs.iter().enumerate().filter(|(_, input)| input.differentiable) {
        let grad = one.grads[i].clone().unwrap_or_else(|| Tensor::zeros(input.dims.as_slice()));
        if let (Some(a), Some(b)) = (&one.grads[i], &two.grads[i]) {
            same_bits(&format!("gradient of {}", input.name), a, b)?;
        }
        let (got, want) = differences(&case.reference, exact, seeds, i, &widen(&grad));
        compare(&format!("gradient of {}", input.name), &got, &want, case.tolerance.grad)?;
    }
    Ok(())
}

fn widen(tensor: &Tensor) -> Vec<f64> {
    tensor.f32().iter().map(|v| f64::from(*v)).collect()
}

/// Runs the op, its inputs on the GPU or on the host; what comes out is on the host.
fn evaluate_on(case: &Case, seeds: &[Vec<f32>], gpu: Option<&Arc<Cuda>>) -> Result<Evaluation> {
    let put = |tensor: Tensor| gpu.map_or(Ok(tensor.clone()), |gpu| tensor.to_gpu(gpu));
    let tape = Tape::new();
    let inputs: Vec<Var> = (case.inputs.iter())
        .map(|input| {
            let value = put(Tensor::from_slice(input.dims.as_slice(), &input.values))?;
            Ok(if input.differentiable { tape.leaf(value) } else { Var::constant(value) })
        })
        .collect::<Result<_>>()?;
    let outputs = (case.op)(&tape, &inputs)?;
    let values = outputs.iter().map(|o| o.value().to_host()).collect::<Result<_>>()?;
    let seed = |(o, s): (&Var, &Vec<f32>)| put(Tensor::from_slice(o.shape().clone(), s));
    let seeds = outputs.iter().zip(seeds).map(seed).collect::<Result<_>>()?;
    let grads = tape.backward_from(&outputs, seeds, &mut ())?;
    let grad = |input: &Var| grads.take(input).map(|grad| grad.to_host()).transpose();
    Ok(Evaluation { outputs: values, grads: inputs.iter().map(grad).collect::<Result<_>>()? })
}

/// Gradient entries of input `i`, the op's and the reference's: every entry of a small input, of a large one a sample and
/// the derivatives along three random directions.
pub(crate) fn differences(
    reference: &Reference,
    exact: &[Vec<f64>],
    seeds: &[Vec<f32>],
    i: usize,
    grad: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    const ALL: usize = 48;
    const SAMPLED: usize = 24;
    let loss = |inputs: &[Vec<f64>]| -> f64 {
        let outputs = reference(inputs);
        outputs.iter().zip(seeds).map(|(o, s)| o.iter().zip(s).map(|(o, s)| o * f64::from(*s)).sum::<f64>()).sum()
    };
    let along = |direction: &[(usize, f64)]| -> f64 {
        let step = 1e-6;
        let mut moved = exact.to_vec();
        let mut shift = |by: f64| -> f64 {
            for (at, d) in direction {
                moved[i][*at] = exact[i][*at] + by * d;
            }
            loss(&moved)
        };
        // Fourth order: the error of the step is far below f32's.
        let (a, b) = (shift(step) - shift(-step), shift(2.0 * step) - shift(-2.0 * step));
        (8.0 * a - b) / (12.0 * step)
    };
    let numel = grad.len();
    let noise = Philox::new(0xd1ff, i as u64);
    let mut directions: Vec<Vec<(usize, f64)>> = if numel <= ALL {
        (0..numel).map(|at| vec![(at, 1.0)]).collect()
    } else {
        (0..SAMPLED).map(|k| vec![((noise.uniform(k as u64) * numel as f64) as usize, 1.0)]).collect()
    };
    if numel > ALL {
        for k in 0..3 {
            let noise = Philox::new(0xd1ff + 1 + k, i as u64);
            let scale = 1.0 / (numel as f64).sqrt();
            directions.push((0..numel).map(|at| (at, scale * noise.normal(at as u64))).collect());
        }
    }
    directions.iter().map(|d| (d.iter().map(|(at, x)| grad[*at] * x).sum::<f64>(), along(d))).unzip()
}

pub(crate) fn compare(what: &str, got: &[f64], want: &[f64], tolerance: f64) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{what}: {} elements, the reference has {}", got.len(), want.len()));
    }
    let finite: Vec<f64> = want.iter().copied().filter(|w| w.is_finite()).collect();
    let scale = (finite.iter().map(|w| w * w).sum::<f64>() / finite.len().max(1) as f64).sqrt();
    for (at, (g, w)) in got.iter().zip(want).enumerate() {
        let fits = if w.is_finite() {
            (g - w).abs() <= tolerance * (scale + w.abs()) + 1e-9
        } else {
            g.to_bits() == w.to_bits()
        };
        if !fits {
            return Err(format!(
                "{what}[{at}] is {g:e}, the reference {w:e} (scale {scale:e}, tolerance {tolerance:e})"
            ));
        }
    }
    Ok(())
}

fn same_bits(what: &str, a: &Tensor, b: &Tensor) -> Result<(), String> {
    let differing = a.f32().iter().zip(b.f32()).position(|(x, y)| x.to_bits() != y.to_bits());
    match differing {
        Some(at) => Err(format!(
            "{what}[{at}] is {:e} in one run (on one thread) and {:e} in another (on two)",
            a.f32()[at],
            b.f32()[at]
        )),
        None => Ok(()),
    }
}
