//! AdamW (Loshchilov & Hutter, arXiv 1711.05101): f32 masters, decoupled weight decay, global-norm clipping.

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use crate::Result;
use crate::autograd::{Gradients, ParamId, Params};
use crate::tensor::{DType, Tensor};

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
    /// Zeros, each where its parameter is.
    ///
    /// # Errors
    /// Where a GPU's memory is too small.
    pub fn new(params: &Params) -> Result<Moments> {
        let zeros = || {
            let of = |p: &Tensor| Tensor::zeros_beside(p, DType::F32, p.shape().clone());
            params.iter().map(|(_, p)| of(&p.value)).collect::<Result<Vec<Tensor>>>()
        };
        Ok(Moments { first: zeros()?, second: zeros()?, updates: 0 })
    }
}

/// One parameter's update. `scale` multiplies the gradient (clipping); `update` counts from 1.
pub struct Update {
    pub learning_rate: f32,
    pub scale: f32,
    pub update: u64,
    pub decay: bool,
}

/// value, first and second moment ← one AdamW step along `grad`; all of one size, in one place.
///
/// # Errors
/// On a GPU, where the driver fails.
pub fn adamw(
    value: &mut Tensor,
    grad: &Tensor,
    first: &mut Tensor,
    second: &mut Tensor,
    update: &Update,
    o: &AdamWOptions,
) -> Result<()> {
    if let Some(gpu) = grad.gpu() {
        let step = cuda::Step::of(gpu, update)?;
        return cuda::update(gpu, [value, first, second], None, grad, &step, (1.0, update.decay), o);
    }
    cpu::update(value.f32_mut(), grad.f32(), first.f32_mut(), second.f32_mut(), update, o);
    Ok(())
}

/// Σ g² over all gradients, in f64 in the parameters' order.
///
/// # Errors
/// On a GPU, where the driver fails.
pub fn squared_norm<'g>(grads: impl Iterator<Item = (ParamId, &'g Tensor)>) -> Result<f64> {
    let grads: Vec<&Tensor> = grads.map(|(_, grad)| grad).collect();
    let far: Vec<&Tensor> = grads.iter().copied().filter(|grad| grad.gpu().is_some()).collect();
    let mut squares = match far.first().and_then(|grad| grad.gpu()) {
        Some(gpu) => cuda::squares(gpu, &far)?.into_iter(),
        None => Vec::new().into_iter(),
    };
    let square = |grad: &&Tensor| match grad.gpu() {
        Some(_) => squares.next().unwrap_or_default(),
        None => cpu::squares(grad.f32()),
    };
    Ok(grads.iter().map(square).sum())
}

/// The gradients' norm, √ of [`squared_norm`].
///
/// # Errors
/// As [`squared_norm`].
pub fn global_norm<'g>(grads: impl Iterator<Item = (ParamId, &'g Tensor)>) -> Result<f32> {
    Ok(squared_norm(grads)?.sqrt() as f32)
}

/// Clips to `max_norm` by scaling (∞: never), then updates every trainable parameter that has a gradient. `norm` is the
/// gradients' [`global_norm`].
///
/// # Errors
/// On a GPU, where the driver fails.
pub fn step(
    params: &mut Params,
    grads: &Gradients,
    moments: &mut Moments,
    learning_rate: f32,
    (norm, max_norm): (f32, f32),
    o: &AdamWOptions,
) -> Result<()> {
    moments.updates += 1;
    let scale = if norm > max_norm { max_norm / norm } else { 1.0 };
    for (id, grad) in grads.iter() {
        let (param, copy) = params.get_both(id);
        if param.trainable {
            if let Some(gpu) = grad.gpu() {
                let step = cuda::Step::new(gpu, moments.updates, learning_rate, norm, max_norm)?;
                let state = [&mut param.value, &mut moments.first[id.0], &mut moments.second[id.0]];
                cuda::update(gpu, state, copy, grad, &step, (param.rate, param.decay), o)?;
                continue;
            }
            let learning_rate = learning_rate * param.rate;
            let update = Update { learning_rate, scale, update: moments.updates, decay: param.decay };
            let (first, second) = (&mut moments.first[id.0], &mut moments.second[id.0]);
            adamw(&mut param.value, grad, first, second, &update, o)?;
        }
    }
    Ok(())
}
