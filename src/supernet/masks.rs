//! From candidates' probabilities to the masks of the model.

use super::search_space::{Axis, Gate, SearchSpace};
use crate::autograd::{Draws, Mask, Tape, Var};
use crate::model::config::Layer;
use crate::model::{ExpertMasking, LayerMasks, Masks};
use crate::ops::mask_keep::mask_keep;
use crate::{Error, Result};

impl SearchSpace {
    /// The masks of the sorted parent. `y`: per gate the candidates' probabilities, [draws, C], each row adding up to 1;
    /// `draws` says which draw each row of the activations belongs to. Gradients flow to `y`.
    pub fn masks(&self, y: &[Var], tape: &Tape<'_>, draws: Draws, expert_masking: ExpertMasking) -> Result<Masks> {
        self.check_probabilities(y)?;
        let keeps: Vec<Var> = y.iter().map(|y| mask_keep(tape, y)).collect::<Result<_>>()?;
        let mask = |axis, layer, ends: &dyn Fn(usize) -> usize| -> Result<Option<Mask>> {
            let Some(g) = self.gate(axis, layer) else { return Ok(None) };
            let ends: Vec<usize> = self.gates[g].candidates.iter().map(|c| ends(*c)).collect();
            Mask::new(&ends, keeps[g].clone(), draws.clone()).map(Some)
        };
        let d = self.parent.hidden_size;
        let hidden = mask(Axis::Hidden, None, &|width| width)?;
        let mut layers = Vec::with_capacity(self.parent.layers.len());
        for (i, layer) in self.parent.layers.iter().enumerate() {
            let mut masks = LayerMasks { hidden: hidden.clone(), expert_masking, ..LayerMasks::default() };
            match layer {
                Layer::Mamba(m) => {
                    masks.heads = mask(Axis::Heads, None, &|heads| heads / m.groups)?;
                    // Nothing is kept by "remove", all d channels by "keep".
                    masks.keep = mask(Axis::KeepMamba, Some(i), &|keep| keep * d)?;
                }
                Layer::Moe(m) => {
                    masks.experts = mask(Axis::Experts, Some(i), &|experts| experts / m.n_group)?;
                    masks.routed = mask(Axis::Routed, Some(i), &|width| width)?;
                    masks.shared = mask(Axis::Shared, Some(i), &|width| width)?;
                }
                Layer::Attention(_) | Layer::Mlp(_) => {}
            }
            layers.push(masks);
        }
        Ok(Masks { hidden, layers })
    }

    fn check_probabilities(&self, y: &[Var]) -> Result<()> {
        if y.len() != self.gates.len() {
            let expected = format!("one for each of {} gates", self.gates.len());
            return Err(Error::contract("masks", "y", y.len(), expected));
        }
        let draws = y.first().map_or(1, |y| y.shape().rows());
        let fits = |(gate, y): &(&Gate, &Var)| y.dims() == [draws, gate.candidates.len()];
        match self.gates.iter().zip(y).find(|pair| !fits(pair)) {
            Some((gate, y)) => {
                let expected = format!("[{draws}, {}] for {}", gate.candidates.len(), gate.name);
                Err(Error::contract("masks", "y", y.dims(), expected))
            }
            None => Ok(()),
        }
    }
}
