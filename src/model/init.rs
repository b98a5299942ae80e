//! Random weights for a model that starts from nothing.

use super::config::{Config, Layer};
use super::params_of;
use crate::Result;
use crate::autograd::Params;
use crate::numerics::Philox;
use crate::tensor::Tensor;

/// Every tensor of `config`, initialised as the family is: matrices normal with `initializer_range`, the projections back
/// into the residual stream divided by √(layers), norms 1, Mamba's A from 1 to 16, D 1, and dt_bias such that
/// softplus(dt_bias) is log-uniform in [time_step_min, time_step_max]. Each tensor has its own stream of `seed`.
pub fn initialise(config: &Config, seed: u64) -> Result<Params> {
    let residual = 1.0 / (config.layers.len().max(1) as f64).sqrt();
    params_of(config, |index, name, shape| {
        let noise = Philox::new(seed, index as u64);
        let values = |draw: &dyn Fn(u64) -> f64| {
            let count: usize = shape.iter().product();
            Tensor::from_slice(shape, &(0..count as u64).map(|i| draw(i) as f32).collect::<Vec<f32>>())
        };
        let leaf = name.rsplit('.').next().unwrap_or(name);
        match leaf {
            "A_log" => values(&|i| (1.0 + 15.0 * noise.uniform(i)).ln()),
            "D" => Tensor::full(shape, 1.0),
            "dt_bias" => values(&|i| initial_dt_bias(config, name, noise.uniform(i))),
            "bias" | "e_score_correction_bias" => Tensor::zeros(shape),
            _ if name.contains("norm") => Tensor::full(shape, 1.0),
            _ => {
                let into_residual = ["out_proj", "o_proj", "down_proj", "fc2_latent_proj"];
                let scale = if into_residual.iter().any(|n| name.contains(n)) { residual } else { 1.0 };
                // A depthwise kernel has few inputs: the usual uniform bound 1/√K.
                let conv = name.contains("conv1d");
                let k = shape.last().copied().unwrap_or(1).max(1) as f64;
                values(&|i| {
                    if conv {
                        (2.0 * noise.uniform(i) - 1.0) / k.sqrt()
                    } else {
                        scale * f64::from(config.initializer_range) * noise.normal(i)
                    }
                })
            }
        }
    })
}

/// The inverse of softplus at a log-uniform time step.
fn initial_dt_bias(config: &Config, name: &str, uniform: f64) -> f64 {
    let layer = name.split('.').nth(2).and_then(|i| i.parse::<usize>().ok()).and_then(|i| config.layers.get(i));
    let (low, high, floor) = match layer {
        Some(Layer::Mamba(m)) => (f64::from(m.time_step_min), f64::from(m.time_step_max), f64::from(m.time_step_floor)),
        _ => (1e-3, 1e-1, 1e-4),
    };
    let dt = (low.ln() + uniform * (high.ln() - low.ln())).exp().max(floor);
    dt + (-(-dt).exp_m1()).ln()
}
