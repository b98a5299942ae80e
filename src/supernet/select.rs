//! A model made of chosen components of another: the one operation behind sorting and extraction.

use std::sync::Arc;

use crate::autograd::Params;
use crate::device::parallel::for_rows;
use crate::model::config::{Layer, Mamba, TensorSpec};
use crate::model::{Config, Lm, param};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Which components of a model make up another one, in their new order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Residual channels.
    pub hidden: Vec<usize>,
    /// One per layer of the new model.
    pub layers: Vec<LayerSelection>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSelection {
    /// The layer's number in the model that is selected from.
    pub source: usize,
    pub units: Units,
}

/// The chosen components of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Units {
    /// All of it.
    Attention,
    /// Heads; new groups are equal runs of them, each from one old group.
    Mamba { heads: Vec<usize> },
    Moe {
        experts: Vec<usize>,
        /// Channels of each chosen expert.
        routed: Vec<Arc<[usize]>>,
        shared: Vec<usize>,
    },
    /// Channels of an MLP layer, or of a MoE layer's shared expert, which becomes one.
    Mlp { width: Vec<usize> },
}

/// The model of `target`'s sizes that `selection` takes from `source`.
pub fn select(source: &Lm, selection: &Selection, target: Config) -> Result<Lm> {
    let from = Source { lm: source, selection };
    let mut params = Params::default();
    for spec in target.tensors() {
        let value = from.tensor(&spec)?;
        if value.dims() != spec.shape {
            return Err(Error::Contract {
                op: "supernet",
                argument: "selection",
                found: format!("{} of shape {:?}", spec.name, value.dims()),
                expected: format!("{:?}, as the architecture says", spec.shape),
            });
        }
        params.push(param(spec.name, value));
    }
    Lm::new(target, params)
}

/// Refuses a model that has other tensors than `config`.
pub fn check_model(lm: &Lm, config: &Config) -> Result<()> {
    for spec in config.tensors() {
        let found = lm.params.find(&spec.name).map(|id| lm.params.get(id).value.dims());
        if found != Some(spec.shape.as_slice()) {
            return Err(Error::Contract {
                op: "supernet",
                argument: "model",
                found: found.map_or_else(|| format!("no {}", spec.name), |dims| format!("{} {dims:?}", spec.name)),
                expected: format!("{:?}, as in the parent", spec.shape),
            });
        }
    }
    Ok(())
}

struct Source<'s> {
    lm: &'s Lm,
    selection: &'s Selection,
}

impl Source<'_> {
    fn tensor(&self, spec: &TensorSpec) -> Result<Tensor> {
        let hidden = &self.selection.hidden;
        let name = spec.name.as_str();
        let Some(of_layer) = name.strip_prefix("backbone.layers.") else {
            return match name {
                "backbone.norm_f.weight" => self.take(name, Some(hidden), None),
                _ => self.take(name, None, Some(hidden)), // embedding and head, [V, d]
            };
        };
        let layer = of_layer.split_once('.').and_then(|(i, leaf)| Some((i.parse::<usize>().ok()?, leaf)));
        let Some((layer, leaf)) = layer.and_then(|(i, leaf)| Some((self.selection.layers.get(i)?, leaf))) else {
            return Err(Error::contract("supernet", "selection", name, "a layer that was selected"));
        };
        self.layer_tensor(layer, leaf)
    }

    fn layer_tensor(&self, layer: &LayerSelection, leaf: &str) -> Result<Tensor> {
        let hidden = Some(self.selection.hidden.as_slice());
        let name = |leaf: &str| format!("backbone.layers.{}.{leaf}", layer.source);
        let old = &self.lm.config.layers[layer.source];
        if leaf == "norm.weight" {
            return self.take(&name(leaf), hidden, None);
        }
        let weight = name(leaf);
        let leaf = leaf.strip_prefix("mixer.").unwrap_or(leaf);
        match (&layer.units, old) {
            (Units::Attention, _) if leaf == "o_proj.weight" => self.take(&weight, hidden, None),
            (Units::Attention, _) => self.take(&weight, None, hidden),
            (Units::Mamba { heads }, Layer::Mamba(old)) => match leaf {
                "in_proj.weight" => self.take(&weight, Some(&in_proj_rows(old, heads)), hidden),
                "conv1d.weight" | "conv1d.bias" => self.take(&weight, Some(&conv_channels(old, heads)), None),
                "norm.weight" => self.take(&weight, Some(&head_channels(old, heads)), None),
                "out_proj.weight" => self.take(&weight, hidden, Some(&head_channels(old, heads))),
                _ => self.take(&weight, Some(heads), None), // A_log, D, dt_bias
            },
            (Units::Mlp { width }, old) => {
                let old = if matches!(old, Layer::Moe(_)) { "mixer.shared_experts" } else { "mixer" };
                let weight = name(&format!("{old}.{leaf}"));
                if leaf.starts_with("up") {
                    self.take(&weight, Some(width), hidden)
                } else {
                    self.take(&weight, hidden, Some(width))
                }
            }
            (Units::Moe { experts, routed, shared }, Layer::Moe(old)) => {
                // In a latent space the experts read and write no residual channels.
                let outer = if old.latent.is_some() { None } else { hidden };
                match leaf {
                    "gate.weight" => self.take(&weight, Some(experts), hidden),
                    "gate.e_score_correction_bias" => self.take(&weight, Some(experts), None),
                    "shared_experts.up_proj.weight" => self.take(&weight, Some(shared), hidden),
                    "shared_experts.down_proj.weight" => self.take(&weight, hidden, Some(shared)),
                    "fc1_latent_proj.weight" => self.take(&weight, None, hidden),
                    "fc2_latent_proj.weight" => self.take(&weight, hidden, None),
                    "experts.up_proj.weight" => {
                        self.take_experts(&weight, experts, |slot| (Some(&routed[slot]), outer))
                    }
                    _ => self.take_experts(&weight, experts, |slot| (outer, Some(&routed[slot]))),
                }
            }
            (units, old) => {
                Err(Error::contract("supernet", "selection", units, format!("parts of a {:?}", old.kind())))
            }
        }
    }

    fn find(&self, name: &str) -> Result<&Tensor> {
        let id = self.lm.params.find(name);
        let id =
            id.ok_or_else(|| Error::contract("supernet", "model", format!("no {name}"), "the parent's tensors"))?;
        Ok(&self.lm.params.get(id).value)
    }

    /// A vector's or a matrix's chosen rows and columns; `None` takes all.
    fn take(&self, name: &str, rows: Option<&[usize]>, cols: Option<&[usize]>) -> Result<Tensor> {
        let tensor = self.find(name)?;
        let (dims, size) = (tensor.dims(), matrix_size(tensor.dims()));
        check_indices(name, size, rows, cols)?;
        let mut shape = dims.to_vec();
        shape[0] = rows.map_or(size.0, <[usize]>::len);
        if dims.len() > 1 {
            shape[1] = cols.map_or(size.1, <[usize]>::len);
        }
        let width = if dims.len() > 1 { shape[1] } else { 1 };
        Ok(Tensor::build(shape.as_slice(), |out| {
            for_rows(out, width, |first, out| copy(tensor.f32(), size.1, rows, cols, (first, width), out));
        }))
    }

    /// Chosen experts of a stack [E, rows, columns]; `part(slot)` are the rows and columns of the expert in that new place.
    fn take_experts<'p>(
        &self,
        name: &str,
        experts: &[usize],
        part: impl Fn(usize) -> (Option<&'p [usize]>, Option<&'p [usize]>) + Sync,
    ) -> Result<Tensor> {
        let stack = self.find(name)?;
        let &[count, rows, cols] = stack.dims() else {
            return Err(Error::contract("supernet", "experts", stack.dims(), "[E, rows, columns]"));
        };
        check_indices(name, (count, 1), Some(experts), None)?;
        let size = |slot| {
            let (r, c) = part(slot);
            (r.map_or(rows, <[usize]>::len), c.map_or(cols, <[usize]>::len))
        };
        for slot in 0..experts.len() {
            let (r, c) = part(slot);
            check_indices(name, (rows, cols), r, c)?;
            if size(slot) != size(0) {
                return Err(Error::contract("supernet", "experts", size(slot), format!("{:?} in all", size(0))));
            }
        }
        let (height, width) = if experts.is_empty() { (rows, cols) } else { size(0) };
        Ok(Tensor::build([experts.len(), height, width], |out| {
            for_rows(out, height * width, |first, out| {
                for (i, out) in out.chunks_exact_mut(height * width).enumerate() {
                    let slot = first + i;
                    let expert = &stack.f32()[experts[slot] * rows * cols..][..rows * cols];
                    let (r, c) = part(slot);
                    copy(expert, cols, r, c, (0, width), out);
                }
            });
        }))
    }
}

/// Rows and columns; a vector is one column.
fn matrix_size(dims: &[usize]) -> (usize, usize) {
    (dims.first().copied().unwrap_or(1), dims.get(1).copied().unwrap_or(1))
}

fn check_indices(name: &str, size: (usize, usize), rows: Option<&[usize]>, cols: Option<&[usize]>) -> Result<()> {
    for (what, chosen, size) in [("rows", rows, size.0), ("columns", cols, size.1)] {
        if let Some(index) = chosen.unwrap_or(&[]).iter().find(|index| **index >= size) {
            let expected = format!("below {size}, the {what} of {name}");
            return Err(Error::contract("supernet", "selection", index, expected));
        }
    }
    Ok(())
}

/// Fills `out`, rows of `width` from the chosen row `first` on, from a matrix of `cols_before` columns.
fn copy(
    values: &[f32],
    cols_before: usize,
    rows: Option<&[usize]>,
    cols: Option<&[usize]>,
    (first, width): (usize, usize),
    out: &mut [f32],
) {
    for (i, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
        let row = rows.map_or(first + i, |rows| rows[first + i]);
        let row = &values[row * cols_before..][..cols_before];
        match cols {
            None => out.copy_from_slice(row),
            Some(cols) => out.iter_mut().zip(cols).for_each(|(out, col)| *out = row[*col]),
        }
    }
}

/// The columns of heads among d_inner.
fn head_channels(old: &Mamba, heads: &[usize]) -> Vec<usize> {
    heads.iter().flat_map(|head| head * old.head_dim..(head + 1) * old.head_dim).collect()
}

/// x | B | C: the heads' channels, and all of B and C.
fn conv_channels(old: &Mamba, heads: &[usize]) -> Vec<usize> {
    let mut channels = head_channels(old, heads);
    channels.extend(old.inner()..old.conv_channels());
    channels
}

/// z | x | B | C | dt.
fn in_proj_rows(old: &Mamba, heads: &[usize]) -> Vec<usize> {
    let mut rows = head_channels(old, heads);
    rows.extend(conv_channels(old, heads).into_iter().map(|channel| old.inner() + channel));
    rows.extend(heads.iter().map(|head| old.inner() + old.conv_channels() + head));
    rows
}
