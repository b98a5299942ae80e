//! The network that the logits of every gate come from.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::autograd::{Param, ParamId, Params, Tape, Var, on_host};
use crate::numerics::Philox;
use crate::ops::embedding::embedding;
use crate::ops::linear::linear;
use crate::ops::relu2::relu2;
use crate::ops::residual_add::residual_add;
use crate::ops::rms_norm::rms_norm;
use crate::tensor::Tensor;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouterOptions {
    /// Numbers that each gate is described by, and width of the hidden layer.
    pub width: usize,
    /// Where the output layer starts: the standard deviation of the first logits. 0, all candidates equal, is the method;
    /// above 0 it is the paper's comparison, which favours candidates by chance.
    pub output_std: f32,
    /// Times the step's learning rate.
    pub rate: f32,
    /// Steps over which `rate` rises linearly. 0 is the method.
    pub warmup_steps: u64,
}

impl Default for RouterOptions {
    fn default() -> Self {
        RouterOptions { width: 64, output_std: 0.0, rate: 1.0, warmup_steps: 0 }
    }
}

/// One learned vector per gate → hidden layer → logits of the gate's candidates: x + ReLU²(W·x), normed, times the output
/// weights. The sum keeps a gate alive whose hidden units are all off; the norm keeps a step of its logits of one size.
#[derive(Clone, Debug)]
pub struct Router {
    embedding: ParamId,
    hidden: ParamId,
    /// Per gate [C, width].
    outputs: Vec<ParamId>,
    options: RouterOptions,
    /// The output layer as it started: a gate whose weights are still these has never had a gradient.
    start: Vec<Tensor>,
}

impl Router {
    /// Adds the network's parameters to `params`, for gates with these numbers of candidates.
    pub fn new(params: &mut Params, candidates: &[usize], options: RouterOptions, seed: u64) -> Router {
        let mut tensors = 0;
        let mut weights = |name: String, rows: usize, columns: usize, std: f64| {
            // From the end, far from the streams of the steps' Gumbel noise.
            let noise = Philox::new(seed, u64::MAX - tensors);
            tensors += 1;
            let values: Vec<f32> = (0..(rows * columns) as u64).map(|i| (std * noise.normal(i)) as f32).collect();
            let value = Tensor::from_slice([rows, columns], &values);
            // Decay would pull every gate back to equal candidates.
            params.push(Param { name, value, decay: false, trainable: true, rate: options.rate })
        };
        let width = options.width;
        let unit = 1.0 / (width.max(1) as f64).sqrt();
        let embedding = weights("router.embedding.weight".into(), candidates.len(), width, 1.0);
        let hidden = weights("router.hidden.weight".into(), width, width, unit);
        let std = f64::from(options.output_std) * unit;
        let output = |(gate, c): (usize, &usize)| weights(format!("router.output.{gate}.weight"), *c, width, std);
        let outputs: Vec<ParamId> = candidates.iter().enumerate().map(output).collect();
        let start = outputs.iter().map(|id| params.get(*id).value.clone()).collect();
        Router { embedding, hidden, outputs, options, start }
    }

    /// The logits `[C]` of a gate, computed on the host.
    pub fn logits(&self, tape: &Tape<'_>, params: &Params, gate: usize) -> Result<Var> {
        on_host(|| self.network(tape, params, gate))
    }

    fn network(&self, tape: &Tape<'_>, params: &Params, gate: usize) -> Result<Var> {
        let table = tape.param(params, self.embedding);
        let x = embedding(tape, &[gate as u32], &table, None)?;
        let hidden = relu2(tape, &linear(tape, &x, &tape.param(params, self.hidden))?, None)?;
        let x = residual_add(tape, &x, &hidden, None, None)?;
        let x = rms_norm(tape, &x, &Var::constant(Tensor::full([x.shape().last()], 1.0)), 1e-6, None)?;
        let z = linear(tape, &x, &tape.param(params, self.outputs[gate]))?;
        let candidates = z.shape().last();
        Ok(z.reshape([candidates]))
    }

    pub fn gates(&self) -> usize {
        self.outputs.len()
    }

    /// All gates' logits as they are now.
    pub fn values(&self, params: &Params) -> Result<Vec<Vec<f32>>> {
        let tape = Tape::inference();
        (0..self.gates()).map(|gate| Ok(self.logits(&tape, params, gate)?.f32().to_vec())).collect()
    }

    /// Whether a gate's output weights have left their start: without decay, only a gradient moves them.
    pub fn has_moved(&self, params: &Params, gate: usize) -> bool {
        params.get(self.outputs[gate]).value.f32() != self.start[gate].f32()
    }

    /// Sets the rate of the network's parameters for a step: the warm-up.
    pub fn set_rate(&self, params: &mut Params, step: u64) {
        let RouterOptions { rate, warmup_steps, .. } = self.options;
        let warm = if step < warmup_steps { (step + 1) as f32 / warmup_steps as f32 } else { 1.0 };
        for id in [self.embedding, self.hidden].into_iter().chain(self.outputs.iter().copied()) {
            params.get_mut(id).rate = rate * warm;
        }
    }
}

/// softmax(κ·z): the exact probability that a draw's largest entry is each candidate.
pub fn probabilities(logits: &[f32], kappa: f32) -> Vec<f64> {
    log_probabilities(logits, kappa).into_iter().map(f64::exp).collect()
}

/// ln softmax(κ·z).
pub fn log_probabilities(logits: &[f32], kappa: f32) -> Vec<f64> {
    let scaled: Vec<f64> = logits.iter().map(|z| f64::from(kappa) * f64::from(*z)).collect();
    let largest = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = scaled.iter().map(|z| (z - largest).exp()).sum::<f64>().ln() + largest;
    scaled.into_iter().map(|z| z - total).collect()
}

/// The first of the largest.
pub fn argmax<T: PartialOrd>(values: &[T]) -> usize {
    (1..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}
