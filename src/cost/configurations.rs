//! The layer configurations of a search space, by the gates that choose them.

use crate::Result;
use crate::model::config::Layer;
use crate::supernet::{Axis, Choice, SearchSpace};

/// Every layer of the parent under every choice, factored as costs are: global gates, then each layer's own.
#[derive(Clone, Debug)]
pub struct Configurations {
    /// Gates of the whole model (d, H), as indices into the space's gates.
    pub global_gates: Vec<usize>,
    /// d of each context: of each combination of the global gates, row by row, the last gate fastest.
    pub hidden_sizes: Vec<usize>,
    /// One per layer of the parent.
    pub layers: Vec<LayerConfigurations>,
}

#[derive(Clone, Debug)]
pub struct LayerConfigurations {
    /// The layer's own gates, as indices into the space's gates.
    pub gates: Vec<usize>,
    /// `[contexts][combinations]`; `None` where the layer is removed.
    pub options: Vec<Vec<Option<Layer>>>,
}

impl Configurations {
    pub fn new(space: &SearchSpace) -> Result<Configurations> {
        let of_layer =
            |layer| (0..space.gates.len()).filter(|g| space.gates[*g].layer == layer).collect::<Vec<usize>>();
        let global_gates = of_layer(None);
        let contexts = combinations(space, &global_gates);
        let hidden = global_gates.iter().position(|g| space.gates[*g].axis == Axis::Hidden);
        let hidden_sizes = (contexts.iter())
            .map(|context| match hidden {
                Some(at) => space.gates[global_gates[at]].candidates[context[at]],
                None => space.parent.hidden_size,
            })
            .collect();
        let layers = (0..space.parent.layers.len())
            .map(|i| {
                let gates = of_layer(Some(i));
                let alone = alone(space, i, &global_gates, &gates);
                let own = combinations(space, &gates);
                let option = |context: &Vec<usize>, own: &Vec<usize>| {
                    let choice = Choice([context.as_slice(), own].concat());
                    Ok(alone.layers_of(&choice)?.first().map(|(_, layer)| *layer))
                };
                let options = (contexts.iter())
                    .map(|context| own.iter().map(|own| option(context, own)).collect::<Result<_>>())
                    .collect::<Result<_>>()?;
                Ok(LayerConfigurations { gates, options })
            })
            .collect::<Result<_>>()?;
        Ok(Configurations { global_gates, hidden_sizes, layers })
    }
}

/// The space of a model of layer `i` alone: its gates are the global ones, then the layer's own.
fn alone(space: &SearchSpace, i: usize, global: &[usize], own: &[usize]) -> SearchSpace {
    let mut parent = space.parent.clone();
    parent.layers = vec![space.parent.layers[i]];
    let mut gates: Vec<_> = global.iter().chain(own).map(|g| space.gates[*g].clone()).collect();
    gates[global.len()..].iter_mut().for_each(|gate| gate.layer = Some(0));
    SearchSpace { parent, gates }
}

/// All combinations of candidates of `gates`, row by row, the last gate fastest.
fn combinations(space: &SearchSpace, gates: &[usize]) -> Vec<Vec<usize>> {
    gates.iter().fold(vec![Vec::new()], |all, gate| {
        let candidates = 0..space.gates[*gate].candidates.len();
        all.iter()
            .flat_map(|head: &Vec<usize>| candidates.clone().map(move |c| [head.as_slice(), &[c]].concat()))
            .collect()
    })
}
