//! AdamW (Loshchilov & Hutter, arXiv 1711.05101): f32 masters, decoupled weight decay, global-norm clipping.

pub mod cases;
mod cpu;
pub mod reference;

use crate::autograd::{Gradients, ParamId, Params};
use crate::tensor::Tensor;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    pub beta1: f32,
    pub beta2: f32,
    pub eps: f32,
    /// Applied to parameters that decay (matrices): value ← value·(1 − lr·weight_decay).
    pub weight_decay: f32,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        AdamWOptions { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 }
    }
}

/// First and second moments of every parameter, and how many updates they have seen.
pub struct Moments {
    pub first: Vec<Tensor>,
    pub second: Vec<Tensor>,
    pub updates: u64,
}

impl Moments {
    pub fn new(params: &Params) -> Moments {
        let zeros = || params.iter().map(|(_, p)| Tensor::zeros(p.value.shape().clone())).collect();
        Moments { first: zeros(), second: zeros(), updates: 0 }
    }
}

/// One parameter's update. `scale` multiplies the gradient (clipping); `update` counts from 1.
pub struct Update {
    pub learning_rate: f32,
    pub scale: f32,
    pub update: u64,
    pub decay: bool,
}

/// value, first and second moment ← one AdamW step along `grad`; all of one size.
pub fn adamw(
    value: &mut Tensor,
    grad: &Tensor,
    first: &mut Tensor,
    second: &mut Tensor,
    update: &Update,
    o: &AdamWOptions,
) {
    cpu::update(value.f32_mut(), grad.f32(), first.f32_mut(), second.f32_mut(), update, o);
}

/// Σ g² over all gradients, in f64 in the parameters' order.
pub fn squared_norm<'g>(grads: impl Iterator<Item = (ParamId, &'g Tensor)>) -> f64 {
    grads.map(|(_, grad)| cpu::squares(grad.f32())).sum()
}

/// The gradients' norm, √ of [`squared_norm`].
pub fn global_norm<'g>(grads: impl Iterator<Item = (ParamId, &'g Tensor)>) -> f32 {
    squared_norm(grads).sqrt() as f32
}

/// Clips to `max_norm` by scaling (∞: never), then updates every trainable parameter that has a gradient. `norm` is the
/// gradients' [`global_norm`].
pub fn step(
    params: &mut Params,
    grads: &Gradients,
    moments: &mut Moments,
    learning_rate: f32,
    (norm, max_norm): (f32, f32),
    o: &AdamWOptions,
) {
    moments.updates += 1;
    let scale = if norm > max_norm { max_norm / norm } else { 1.0 };
    for (id, grad) in grads.iter() {
        let param = params.get_mut(id);
        if param.trainable {
            let learning_rate = learning_rate * param.rate;
            let update = Update { learning_rate, scale, update: moments.updates, decay: param.decay };
            let (first, second) = (&mut moments.first[id.0], &mut moments.second[id.0]);
            adamw(&mut param.value, grad, first, second, &update, o);
        }
    }
}
