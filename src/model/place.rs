//! Models on a GPU.

use super::Lm;
use crate::Result;
use crate::autograd::{Param, Params};
use crate::device::{self, Place};
use crate::tensor::{DType, Tensor};

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
        let on_gpu = param.value.gpu().is_some();
        let (param, copy) = place_param(param.clone(), place, purpose)?;
        let copy = if on_gpu { params.copy(id).cloned() } else { copy };
        let id = placed.push(param);
        placed.set_copy(id, copy);
    }
    Ok(placed)
}

/// One parameter, and the copy that is computed with where that is another one. What is on a GPU stays as it is.
///
/// # Errors
/// As [`place`].
pub fn place_param(mut param: Param, place: &Place, purpose: Purpose) -> Result<(Param, Option<Tensor>)> {
    let is_model = param.name.starts_with("backbone.") || param.name.starts_with("lm_head.");
    if !is_model || param.value.gpu().is_some() {
        return Ok((param, None));
    }
    let narrow = place.precision.is_narrow() && !stays_wide(&param.name);
    let master = purpose == Purpose::Training && param.trainable;
    let narrowed = narrow.then(|| param.value.cast(DType::Bf16).to_gpu(&place.gpu)).transpose()?;
    Ok(match narrowed {
        Some(narrowed) if !master => {
            param.value = narrowed;
            (param, None)
        }
        copy => {
            param.value = param.value.to_gpu(&place.gpu)?;
            (param, copy)
        }
    })
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
