//! Models with weights that mean nothing: their cost is a real model's.

use crate::Result;
use crate::autograd::Params;
use crate::device::{self, Meter, parallel};
use crate::model::{Config, Lm, Purpose, param, place_param};
use crate::tensor::Tensor;

/// A model of `config` with small random matrices, and the memory its weights take.
pub struct Dummy {
    pub lm: Lm,
    /// Bytes of each layer's weights, where the model computes.
    pub layer_bytes: Vec<usize>,
    /// Of the embedding, the final norm and the head.
    pub rest_bytes: usize,
}

impl Dummy {
    /// Where jobs compute now.
    ///
    /// # Errors
    /// Where a GPU's memory is too small.
    pub fn new(config: &Config) -> Result<Dummy> {
        let place = device::current();
        let meter = Meter::of(place.as_ref().map(|place| &place.gpu));
        let mut params = Params::default();
        let mut layer_bytes = vec![0; config.layers.len()];
        let mut rest_bytes = 0;
        for (index, spec) in config.tensors().into_iter().enumerate() {
            let before = meter.memory().live;
            let value = value(&spec.name, &spec.shape, config.initializer_range, index as u64);
            let layer = layer_of(&spec.name);
            let mut param = param(spec.name, value);
            if let Some(place) = &place {
                (param, _) = place_param(param, place, Purpose::Inference)?;
            }
            let bytes = meter.memory().live.saturating_sub(before);
            *layer.and_then(|i| layer_bytes.get_mut(i)).unwrap_or(&mut rest_bytes) += bytes;
            params.push(param);
        }
        Ok(Dummy { lm: Lm::new(config.clone(), params)?, layer_bytes, rest_bytes })
    }
}

fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("backbone.layers.")?.split('.').next()?.parse().ok()
}

/// Values in the ranges of a trained model, so that nothing overflows or becomes denormal, and routing spreads.
fn value(name: &str, shape: &[usize], range: f32, index: u64) -> Tensor {
    let leaf = name.rsplit('.').next().unwrap_or(name);
    match leaf {
        "A_log" => Tensor::full(shape, 1.0),
        "D" => Tensor::full(shape, 1.0),
        "dt_bias" => Tensor::full(shape, -4.0),
        "bias" | "e_score_correction_bias" => Tensor::zeros(shape),
        _ if name.contains("norm") => Tensor::full(shape, 1.0),
        _ => {
            let width = if name.contains("conv1d") { 0.5 } else { range.max(1e-3) * 3f32.sqrt() };
            Tensor::build(shape, |values| {
                parallel::for_rows(values, 1, |first, block| {
                    for (i, v) in block.iter_mut().enumerate() {
                        *v = width * signed_unit((index << 40) ^ (first + i) as u64);
                    }
                });
            })
        }
    }
}

/// A hash of `index` in [−1, 1): SplitMix64's output function (Steele, Lea, Flood 2014).
fn signed_unit(index: u64) -> f32 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 40) as f32 / (1u32 << 23) as f32 - 1.0
}
