//! The gates of a search space over one parent.

use super::space::Space;
use crate::model::Config;
use crate::model::config::{Layer, Mamba, Moe};
use crate::{Error, Result};

/// What a gate chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// d, of the model.
    Hidden,
    /// H, of all Mamba layers.
    Heads,
    /// Whether a Mamba layer stays: 0 or 1.
    KeepMamba,
    /// E of a MoE layer.
    Experts,
    /// F of a MoE layer.
    Routed,
    /// S of a MoE layer.
    Shared,
}

impl Axis {
    /// What gates of the axis are called, without the layer: the keys of a space file.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Hidden => "hidden_size",
            Axis::Heads => "mamba.heads",
            Axis::KeepMamba => "keep",
            Axis::Experts => "experts",
            Axis::Routed => "intermediate",
            Axis::Shared => "shared_intermediate",
        }
    }
}

/// One choice among candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    pub axis: Axis,
    /// The parent's layer that it belongs to; `None` for the whole model.
    pub layer: Option<usize>,
    /// At least two, rising; the last is the parent's size.
    pub candidates: Vec<usize>,
    /// `hidden_size`, `mamba.heads`, `layers.3.experts`, …
    pub name: String,
}

/// A parent and the gates that shrink it.
#[derive(Clone, Debug)]
pub struct SearchSpace {
    /// Without its multi-token prediction head: that head reads the parent's hidden states, no student has it.
    pub parent: Config,
    /// The model's, then layer by layer. An axis with one candidate has no gate.
    pub gates: Vec<Gate>,
}

impl SearchSpace {
    /// The space over `parent`. A parent without layers of a kind has no gates for them.
    ///
    /// # Errors
    /// [`Error::Input`] naming the file and the key where a candidate cannot be: above the parent's size, a duplicate, one
    /// that heads or experts cannot be grouped by, one with fewer experts than a token uses, 0 where a width must stay, or
    /// where the parent's own size is missing. Also where nothing is left to choose.
    pub fn new(space: &Space, parent: &Config) -> Result<SearchSpace> {
        let mut parent = parent.clone();
        parent.mtp = None;
        let builder = Builder { space, parent: &parent };
        let mut gates = builder.hidden()?;
        gates.extend(builder.heads()?);
        gates.extend(builder.layers()?);
        if gates.is_empty() {
            let expected = "an axis with two candidates or more of a layer that the parent has";
            return Err(Error::input(&space.file, "top level", "nothing to choose", expected));
        }
        let space_over = SearchSpace { parent, gates };
        if (0..space_over.parent.layers.len()).all(|layer| space_over.may_go(layer)) {
            let expected = "a layer that stays: a width above 0, or a parent with layers that no axis removes";
            return Err(Error::input(&space.file, "top level", "a space that removes every layer", expected));
        }
        Ok(space_over)
    }

    /// Whether a choice leaves the layer out.
    fn may_go(&self, layer: usize) -> bool {
        let may_be_0 = |axis, fixed: usize| match self.gate(axis, Some(layer)) {
            Some(gate) => self.gates[gate].candidates[0] == 0,
            None => fixed == 0,
        };
        match &self.parent.layers[layer] {
            Layer::Mamba(_) => may_be_0(Axis::KeepMamba, 1),
            Layer::Moe(m) => may_be_0(Axis::Routed, m.intermediate) && may_be_0(Axis::Shared, m.shared_intermediate),
            Layer::Attention(_) | Layer::Mlp(_) => false,
        }
    }

    /// The gate of an axis, as an index; `None` where it is fixed. `layer` is `None` for d and H.
    pub fn gate(&self, axis: Axis, layer: Option<usize>) -> Option<usize> {
        self.gates.iter().position(|gate| gate.axis == axis && gate.layer == layer)
    }
}

/// A list of candidates and its key.
struct List<'s> {
    key: &'static str,
    values: &'s [usize],
    zero: bool,
}

struct Builder<'s> {
    space: &'s Space,
    parent: &'s Config,
}

impl Builder<'_> {
    fn fault<T>(&self, key: &str, found: impl ToString, expected: impl Into<String>) -> Result<T> {
        Err(Error::input(&self.space.file, key, found.to_string(), expected))
    }

    /// What holds whatever the layer: `largest` is the parent's largest size.
    fn check(&self, list: &List<'_>, largest: usize) -> Result<()> {
        if list.values.is_empty() {
            return self.fault(list.key, "no candidates", "at least one");
        }
        for (i, value) in list.values.iter().enumerate() {
            if list.values[..i].contains(value) {
                return self.fault(list.key, format!("{value} twice"), "every candidate once");
            }
            if *value == 0 && !list.zero {
                return self.fault(list.key, 0, "at least 1");
            }
            if *value > largest {
                return self.fault(list.key, value, format!("at most {largest}, the parent's size"));
            }
        }
        Ok(())
    }

    /// The candidates for a layer of `size`, rising.
    fn candidates(&self, list: &List<'_>, size: usize, of: &str) -> Result<Vec<usize>> {
        let mut candidates: Vec<usize> = list.values.iter().copied().filter(|value| *value <= size).collect();
        candidates.sort_unstable();
        if candidates.last() != Some(&size) {
            let expected = format!("{size} among them, the parent's own size{of}");
            return self.fault(list.key, format!("{:?}", list.values), expected);
        }
        Ok(candidates)
    }

    fn hidden(&self) -> Result<Vec<Gate>> {
        let Some(values) = &self.space.hidden_size else { return Ok(Vec::new()) };
        let list = List { key: "hidden_size", values, zero: false };
        self.check(&list, self.parent.hidden_size)?;
        Ok(gate(Axis::Hidden, None, self.candidates(&list, self.parent.hidden_size, "")?))
    }

    fn heads(&self) -> Result<Vec<Gate>> {
        let Some(values) = &self.space.mamba.heads else { return Ok(Vec::new()) };
        let mambas: Vec<&Mamba> =
            self.parent.layers.iter().filter_map(|l| if let Layer::Mamba(m) = l { Some(m) } else { None }).collect();
        let list = List { key: "mamba.heads", values, zero: false };
        let Some(first) = mambas.first() else {
            self.check(&list, usize::MAX)?;
            return Ok(Vec::new());
        };
        if mambas.iter().any(|m| (m.heads, m.groups) != (first.heads, first.groups)) {
            return self.fault(list.key, "a parent whose Mamba layers differ", "the same heads in all Mamba layers");
        }
        self.check(&list, first.heads)?;
        if let Some(value) = values.iter().find(|value| !value.is_multiple_of(first.groups)) {
            return self.fault(list.key, value, format!("a multiple of n_groups = {}", first.groups));
        }
        Ok(gate(Axis::Heads, None, self.candidates(&list, first.heads, "")?))
    }

    fn layers(&self) -> Result<Vec<Gate>> {
        let mut gates = Vec::new();
        let moes = || self.parent.layers.iter().filter_map(|l| if let Layer::Moe(m) = l { Some(m) } else { None });
        let axes = self.moe_axes();
        for (list, _, size) in &axes {
            // Without MoE layers the list must still be one.
            self.check(list, moes().map(size).max().unwrap_or(usize::MAX))?;
        }
        for (i, layer) in self.parent.layers.iter().enumerate() {
            match layer {
                Layer::Mamba(_) if self.space.mamba.remove => gates.extend(gate(Axis::KeepMamba, Some(i), vec![0, 1])),
                Layer::Moe(moe) => {
                    for (list, axis, size) in axes.iter().filter(|(_, _, size)| size(moe) > 0) {
                        let candidates = self.candidates(list, size(moe), &format!(" in layer {i}"))?;
                        if *axis == Axis::Experts {
                            candidates.iter().try_for_each(|e| self.check_experts(*e, moe))?;
                        }
                        gates.extend(gate(*axis, Some(i), candidates));
                    }
                }
                _ => {}
            }
        }
        Ok(gates)
    }

    #[expect(clippy::type_complexity, reason = "a table of three columns, read in one place")]
    fn moe_axes(&self) -> Vec<(List<'_>, Axis, fn(&Moe) -> usize)> {
        let moe = &self.space.moe;
        let axes: [(_, &Option<Vec<usize>>, _, _, fn(&Moe) -> usize); 3] = [
            ("moe.experts", &moe.experts, false, Axis::Experts, |m| m.experts),
            ("moe.intermediate", &moe.intermediate, true, Axis::Routed, |m| m.intermediate),
            ("moe.shared_intermediate", &moe.shared_intermediate, true, Axis::Shared, |m| m.shared_intermediate),
        ];
        let given = axes.into_iter().filter_map(|(key, values, zero, axis, size)| {
            values.as_ref().map(|values| (List { key, values, zero }, axis, size))
        });
        given.collect()
    }

    fn check_experts(&self, experts: usize, moe: &Moe) -> Result<()> {
        let key = "moe.experts";
        if experts < moe.top_k {
            return self.fault(key, experts, format!("at least num_experts_per_tok = {}", moe.top_k));
        }
        if !experts.is_multiple_of(moe.n_group) {
            return self.fault(key, experts, format!("a multiple of n_group = {}", moe.n_group));
        }
        let each = experts / moe.n_group;
        if moe.n_group > 1 && each < 2 {
            return self.fault(key, experts, format!("at least 2 experts in each of n_group = {} groups", moe.n_group));
        }
        if moe.topk_group * each < moe.top_k {
            let found = format!("{experts}, {} within topk_group = {} groups", moe.topk_group * each, moe.topk_group);
            return self.fault(key, found, format!("at least num_experts_per_tok = {}", moe.top_k));
        }
        Ok(())
    }
}

/// A gate, unless there is nothing to choose.
fn gate(axis: Axis, layer: Option<usize>, candidates: Vec<usize>) -> Vec<Gate> {
    let leaf = axis.name();
    let name = layer.map_or_else(|| leaf.to_owned(), |i| format!("layers.{i}.{leaf}"));
    if candidates.len() < 2 { Vec::new() } else { vec![Gate { axis, layer, candidates, name }] }
}
