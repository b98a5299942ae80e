//! How important each component is, and the order that follows.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::select::{LayerSelection, Selection, Units};
use crate::model::Config;
use crate::model::config::Layer;
use crate::{Error, Result, files};

/// Activation statistics of a model over calibration tokens; see [`super::Calibrator`]. Larger is more important.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Importance {
    /// Sequences and tokens that were read.
    pub sequences: u64,
    pub tokens: u64,
    /// `[d]`, residual channels: summed over the norms of all layers.
    pub hidden: Vec<f32>,
    pub layers: Vec<LayerImportance>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerImportance {
    /// 1 − cos(residual stream before the layer, after it), mean over tokens: how much the layer changes.
    pub change: f32,
    #[serde(flatten)]
    pub scores: Scores,
}

/// Scores of a layer's components.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Scores {
    Attention,
    Mamba {
        /// `[H]`.
        heads: Vec<f32>,
    },
    Moe {
        /// `[E]`; 0 for an expert that no token went to.
        experts: Vec<f32>,
        /// `[E][F]`.
        routed: Vec<Vec<f32>>,
        /// `[S]`.
        shared: Vec<f32>,
    },
    Mlp {
        /// `[F]`.
        width: Vec<f32>,
    },
}

impl Importance {
    /// Every component of a model of `config`, most important first: heads within their group, experts within their routing
    /// group, channels within their expert. Of equals the first stays first.
    ///
    /// # Errors
    /// [`Error::Contract`] where the scores belong to a model of other sizes or are not finite.
    pub fn ranking(&self, config: &Config) -> Result<Selection> {
        let same = |what: &'static str, found: usize, expected: usize| match found == expected {
            true => Ok(()),
            false => Err(Error::contract("importance", what, found, format!("{expected} scores, as the model"))),
        };
        same("hidden", self.hidden.len(), config.hidden_size)?;
        same("layers", self.layers.len(), config.layers.len())?;
        let mut layers = Vec::with_capacity(config.layers.len());
        for (source, (layer, of_layer)) in config.layers.iter().zip(&self.layers).enumerate() {
            let units = match (layer, &of_layer.scores) {
                (Layer::Attention(_), Scores::Attention) => Units::Attention,
                (Layer::Mamba(m), Scores::Mamba { heads }) => {
                    same("heads", heads.len(), m.heads)?;
                    Units::Mamba { heads: descending(heads, m.heads / m.groups)? }
                }
                (Layer::Mlp(m), Scores::Mlp { width }) => {
                    same("width", width.len(), m.intermediate)?;
                    Units::Mlp { width: descending(width, m.intermediate)? }
                }
                (Layer::Moe(m), Scores::Moe { experts, routed, shared }) => {
                    same("experts", experts.len(), m.experts)?;
                    same("routed", routed.len(), m.experts)?;
                    same("shared", shared.len(), m.shared_intermediate)?;
                    routed.iter().try_for_each(|scores| same("routed", scores.len(), m.intermediate))?;
                    let experts = descending(experts, m.experts / m.n_group)?;
                    let channels = |e: &usize| descending(&routed[*e], m.intermediate).map(Arc::from);
                    let routed = experts.iter().map(channels).collect::<Result<_>>()?;
                    Units::Moe { experts, routed, shared: descending(shared, m.shared_intermediate)? }
                }
                (layer, scores) => {
                    let expected = format!("scores of a {} layer", layer.kind().name());
                    return Err(Error::contract("importance", "layer", scores, expected));
                }
            };
            layers.push(LayerSelection { source, units });
        }
        Ok(Selection { hidden: descending(&self.hidden, config.hidden_size)?, layers })
    }

    /// Writes JSON, atomically.
    pub fn write(&self, path: &Path) -> Result<()> {
        files::write_atomic(path, |file| serde_json::to_writer(file, self).map_err(std::io::Error::other))
    }

    /// Reads what [`Importance::write`] wrote.
    pub fn from_file(path: &Path) -> Result<Importance> {
        files::read_json(path, "importance scores")
    }
}

/// Positions by falling score within each run of `group`; ties keep their order.
fn descending(scores: &[f32], group: usize) -> Result<Vec<usize>> {
    if let Some(score) = scores.iter().find(|score| !score.is_finite()) {
        return Err(Error::contract("importance", "score", score, "a finite number"));
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    for run in order.chunks_mut(group.max(1)) {
        // The sort is stable.
        run.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    }
    Ok(order)
}
