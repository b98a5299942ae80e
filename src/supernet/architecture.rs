//! A point of the search space: one candidate per gate, and the configuration that it means.

use std::path::Path;

use serde_json::{Map, Value};

use super::search_space::{Axis, Gate, SearchSpace};
use crate::model::Config;
use crate::model::config::{Layer, Mlp};
use crate::numerics::Philox;
use crate::{Error, Result};

/// The index of the chosen candidate of each gate, in the order of [`SearchSpace::gates`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Choice(pub Vec<usize>);

impl SearchSpace {
    /// The parent itself.
    pub fn parent_choice(&self) -> Choice {
        Choice(self.gates.iter().map(|gate| gate.candidates.len() - 1).collect())
    }

    /// The same size in all layers of an axis, the parent's where `sizes` does not name the axis.
    ///
    /// # Errors
    /// [`Error::Usage`] where a gate of the axis has no such candidate, or the space has no gate of the axis.
    pub fn uniform(&self, sizes: &[(Axis, usize)]) -> Result<Choice> {
        let mut choice = self.parent_choice();
        for (axis, size) in sizes {
            let mut found = false;
            for (gate, index) in self.gates.iter().zip(&mut choice.0).filter(|(gate, _)| gate.axis == *axis) {
                *index = index_of(gate, *size).ok_or_else(|| {
                    Error::Usage(format!("{}: found {size}, expected one of {:?}", gate.name, gate.candidates))
                })?;
                found = true;
            }
            if !found {
                return Err(Error::Usage(format!(
                    "the search space has no gate for {axis:?}: its size is the parent's"
                )));
            }
        }
        Ok(choice)
    }

    /// Every gate's candidate drawn uniformly; the same for the same seed.
    pub fn random(&self, seed: u64) -> Choice {
        let draw = |(i, gate): (usize, &Gate)| {
            let uniform = Philox::new(seed, i as u64).uniform(0);
            ((uniform * gate.candidates.len() as f64) as usize).min(gate.candidates.len() - 1)
        };
        Choice(self.gates.iter().enumerate().map(draw).collect())
    }

    /// Refuses a choice of another space.
    pub fn check(&self, choice: &Choice) -> Result<()> {
        if choice.0.len() != self.gates.len() {
            let expected = format!("one candidate for each of {} gates", self.gates.len());
            return Err(Error::contract("supernet", "choice", choice.0.len(), expected));
        }
        match self.gates.iter().zip(&choice.0).find(|(gate, index)| **index >= gate.candidates.len()) {
            Some((gate, index)) => {
                let expected = format!("below {}, the candidates of {}", gate.candidates.len(), gate.name);
                Err(Error::contract("supernet", "choice", index, expected))
            }
            None => Ok(()),
        }
    }

    /// The chosen size of an axis; `fixed` where the axis has no gate.
    fn size(&self, choice: &Choice, axis: Axis, layer: Option<usize>, fixed: usize) -> usize {
        self.gate(axis, layer).map_or(fixed, |g| self.gates[g].candidates[choice.0[g]])
    }

    /// The layers of a choice, each with its number in the parent. A Mamba layer that is not kept and a MoE layer of
    /// F = S = 0 are left out; one of F = 0 < S is an MLP layer.
    pub fn layers_of(&self, choice: &Choice) -> Result<Vec<(usize, Layer)>> {
        self.check(choice)?;
        let layer = |(i, layer): (usize, &Layer)| match layer {
            Layer::Mamba(mamba) => {
                let mut mamba = *mamba;
                mamba.heads = self.size(choice, Axis::Heads, None, mamba.heads);
                (self.size(choice, Axis::KeepMamba, Some(i), 1) > 0).then_some((i, Layer::Mamba(mamba)))
            }
            Layer::Moe(moe) => {
                let mut moe = *moe;
                moe.experts = self.size(choice, Axis::Experts, Some(i), moe.experts);
                moe.intermediate = self.size(choice, Axis::Routed, Some(i), moe.intermediate);
                moe.shared_intermediate = self.size(choice, Axis::Shared, Some(i), moe.shared_intermediate);
                match (moe.intermediate, moe.shared_intermediate) {
                    (0, 0) => None,
                    (0, intermediate) => Some((i, Layer::Mlp(Mlp { intermediate }))),
                    _ => Some((i, Layer::Moe(moe))),
                }
            }
            other => Some((i, *other)),
        };
        Ok(self.parent.layers.iter().enumerate().filter_map(layer).collect())
    }

    /// The student's configuration. Fails where no layer is left.
    ///
    /// `time_step_min`, which the family uses for initialisation alone, is lowered to the limit that the scan keeps:
    /// transformers floors Mamba's time steps at it, and a trained model may go below.
    pub fn config_of(&self, choice: &Choice) -> Result<Config> {
        let mut config = self.parent.clone();
        config.layers = self.layers_of(choice)?.into_iter().map(|(_, layer)| layer).collect();
        config.hidden_size = self.size(choice, Axis::Hidden, None, config.hidden_size);
        config.layers.iter_mut().for_each(lower_time_step_min);
        config.validate(Path::new("architecture"))?;
        Ok(config)
    }

    /// A choice for people and files: gate name → size; `keep` gates are true or false.
    pub fn choice_to_json(&self, choice: &Choice) -> Result<Value> {
        self.check(choice)?;
        let entry = |(gate, index): (&Gate, &usize)| {
            let size = gate.candidates[*index];
            let value = if gate.axis == Axis::KeepMamba { Value::Bool(size > 0) } else { size.into() };
            (gate.name.clone(), value)
        };
        Ok(Value::Object(self.gates.iter().zip(&choice.0).map(entry).collect::<Map<_, _>>()))
    }

    /// Reads what [`SearchSpace::choice_to_json`] wrote; `file` is for error messages only.
    ///
    /// # Errors
    /// [`Error::Input`] naming the file and the gate that is missing, unknown, or has a size that is no candidate.
    pub fn choice_from_json(&self, file: &Path, json: &Value) -> Result<Choice> {
        let Value::Object(map) = json else {
            return Err(Error::input(file, "top level", json.to_string(), "an object of gates and sizes"));
        };
        if let Some((name, value)) = map.iter().find(|(name, _)| self.gates.iter().all(|gate| gate.name != **name)) {
            return Err(Error::input(file, name, value.to_string(), "no such gate in this search space"));
        }
        let index = |gate: &Gate| {
            let value = map.get(&gate.name);
            let size = match value {
                Some(Value::Bool(keep)) if gate.axis == Axis::KeepMamba => Some(usize::from(*keep)),
                Some(Value::Number(size)) if gate.axis != Axis::KeepMamba => {
                    size.as_u64().and_then(|size| usize::try_from(size).ok())
                }
                _ => None,
            };
            size.and_then(|size| index_of(gate, size)).ok_or_else(|| {
                let found = value.map_or_else(|| "no such key".into(), Value::to_string);
                let expected = match gate.axis {
                    Axis::KeepMamba => "true or false".into(),
                    _ => format!("one of {:?}", gate.candidates),
                };
                Error::input(file, &gate.name, found, expected)
            })
        };
        Ok(Choice(self.gates.iter().map(index).collect::<Result<_>>()?))
    }
}

fn index_of(gate: &Gate, size: usize) -> Option<usize> {
    gate.candidates.iter().position(|candidate| *candidate == size)
}

/// To the lower end of `time_step_limit`; where that is 0, to the least number that still has a logarithm.
fn lower_time_step_min(layer: &mut Layer) {
    if let Layer::Mamba(m) = layer {
        m.time_step_min = m.time_step_min.min(m.time_step_limit.0.max(f32::MIN_POSITIVE));
    }
}
