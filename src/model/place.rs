//! Models on a GPU.

use super::Lm;
use crate::Result;
use crate::autograd::Params;
use crate::device::{self, Place};
use crate::tensor::DType;

/// What a model on a GPU is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Its weights stay as they are: they are held once, in the precision that is computed in.
    Inference,
    /// Parameters that are trained are held in f32, beside the copy that is computed with.
    Training,
}

/// What kernels take in f32 whatever the activations are: the scan's few numbers per head, and the router's bias.
fn stays_wide(name: &str) -> bool {
    ["A_log", "D", "dt_bias", "e_score_correction_bias"].contains(&name.rsplit('.').next().unwrap_or(name))
}

/// Copies of a model's parameters on a GPU. What is no part of the model (a search's router: a few thousand numbers, whose
/// results are wanted on the host) stays where it is.
///
/// # Errors
/// Where the GPU's memory is too small.
pub fn place(params: &Params, place: &Place, purpose: Purpose) -> Result<Params> {
    let mut placed = Params::default();
    for (id, param) in params.iter() {
        let mut param = param.clone();
        if !(param.name.starts_with("backbone.") || param.name.starts_with("lm_head.")) {
            placed.push(param);
            continue;
        }
        let narrow = place.precision.is_narrow() && !stays_wide(&param.name);
        let mut copy = None;
        if param.value.gpu().is_none() {
            let master = purpose == Purpose::Training && param.trainable;
            if narrow && master {
                copy = Some(param.value.cast(DType::Bf16).to_gpu(&place.gpu)?);
            }
            let stored = if narrow && !master { param.value.cast(DType::Bf16) } else { param.value };
            param.value = stored.to_gpu(&place.gpu)?;
        } else {
            copy = params.copy(id).cloned();
        }
        let id = placed.push(param);
        placed.set_copy(id, copy);
    }
    Ok(placed)
}

impl Lm {
    /// The model where jobs compute now, where that is a GPU.
    ///
    /// # Errors
    /// As [`Lm::placed`].
    pub fn at_current_place(&self) -> Result<Option<Lm>> {
        device::current().map(|place| self.placed(&place, Purpose::Inference)).transpose()
    }

    /// The model on a GPU.
    ///
    /// # Errors
    /// Where the GPU's memory is too small.
    pub fn placed(&self, on: &Place, purpose: Purpose) -> Result<Lm> {
        Lm::new(self.config.clone(), place(&self.params, on, purpose)?)
    }
}
