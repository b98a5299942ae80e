//! `nemotron_h`: configuration, checkpoint files, blocks and the language model.

mod attention;
mod block;
mod cache;
pub mod checkpoint;
pub mod config;
mod init;
mod lm;
mod mamba;
mod masks;
mod mlp;
mod moe;
mod place;
mod probe;
mod products;
mod stored;

pub use cache::{Cache, LayerCache};
pub use config::Config;
pub use init::initialise;
pub use lm::{Input, Lm, Output};
pub use masks::{ExpertMasking, LayerMasks, Masks};
pub use place::{Purpose, place, place_param};
pub use probe::{Probe, Reading};
pub use products::{Products, StepProducts};
pub use stored::{StoredLm, load, save};

use crate::Result;
use crate::autograd::{Param, Params};
use crate::tensor::Tensor;

/// The parameters of `config`, each made by `value(index, name, shape)`.
fn params_of(config: &Config, mut value: impl FnMut(usize, &str, &[usize]) -> Tensor) -> Result<Params> {
    let mut params = Params::default();
    for (index, spec) in config.tensors().into_iter().enumerate() {
        if spec.name.starts_with("mtp.") {
            continue; // multi-token prediction heads are carried along, not trained
        }
        let value = value(index, &spec.name, &spec.shape);
        params.push(param(spec.name, value));
    }
    Ok(params)
}

/// A parameter with the family's rules: matrices decay, the router's correction bias is moved by load, not by gradients.
pub(crate) fn param(name: String, value: Tensor) -> Param {
    let decay = value.dims().len() >= 2 && !name.contains("conv1d");
    let trainable = !name.ends_with("e_score_correction_bias");
    Param { name, value, decay, trainable, rate: 1.0 }
}
