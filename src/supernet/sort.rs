//! The parent with its most important components first.

use super::importance::Importance;
use super::select::{check_model, select};
use crate::Result;
use crate::model::Lm;

/// Permutes the weights so that every candidate of a search space is a prefix: of the residual channels, of each head group,
/// of each routing group's experts, of every expert's channels. Logits stay the parent's to rounding.
///
/// A multi-token prediction head, which is not among the model's parameters, is left behind: it reads the old order.
pub fn sort(lm: &Lm, importance: &Importance) -> Result<Lm> {
    let mut config = lm.config.clone();
    config.mtp = None;
    check_model(lm, &config)?;
    select(lm, &importance.ranking(&config)?, config)
}
