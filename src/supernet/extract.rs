//! A student cut out of the sorted parent.

use std::sync::Arc;

use super::architecture::Choice;
use super::search_space::SearchSpace;
use super::select::{LayerSelection, Selection, Units, check_model, select};
use crate::Result;
use crate::model::Lm;
use crate::model::config::Layer;

/// The model of [`SearchSpace::config_of`], its weights the prefixes of `sorted`, which has the parent's sizes.
///
/// # Errors
/// [`crate::Error::Contract`] where `sorted` is another model or `choice` belongs to another space.
pub fn extract(sorted: &Lm, space: &SearchSpace, choice: &Choice) -> Result<Lm> {
    let config = space.config_of(choice)?;
    check_model(sorted, &space.parent)?;
    let layers = space
        .layers_of(choice)?
        .into_iter()
        .map(|(source, layer)| LayerSelection { source, units: prefixes(&space.parent.layers[source], &layer) });
    let selection = Selection { hidden: (0..config.hidden_size).collect(), layers: layers.collect() };
    select(sorted, &selection, config)
}

fn prefixes(parent: &Layer, student: &Layer) -> Units {
    match (parent, student) {
        (Layer::Mamba(parent), Layer::Mamba(student)) => {
            Units::Mamba { heads: group_prefixes(parent.heads, student.heads, parent.groups) }
        }
        (Layer::Moe(parent), Layer::Moe(student)) => {
            let routed: Arc<[usize]> = (0..student.intermediate).collect();
            Units::Moe {
                experts: group_prefixes(parent.experts, student.experts, parent.n_group),
                routed: vec![routed; student.experts],
                shared: (0..student.shared_intermediate).collect(),
            }
        }
        (_, Layer::Mlp(student)) => Units::Mlp { width: (0..student.intermediate).collect() },
        _ => Units::Attention,
    }
}

/// The first kept / groups of each group.
fn group_prefixes(all: usize, kept: usize, groups: usize) -> Vec<usize> {
    let (size, kept) = (all / groups, kept / groups);
    (0..groups).flat_map(|group| group * size..group * size + kept).collect()
}
