//! Minitron++: one width per axis for all layers (METHOD, "Baseline").

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::cost::Resource;
use crate::supernet::{Axis, Choice, SearchSpace};
use crate::{Error, Result};

/// More points than this are no baseline that anybody lists.
const MOST_POINTS: usize = 1 << 22;

/// Which limits the candidates come close to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// Every one: the paper's rule.
    Each,
    /// At least one. No maximal candidate reaches the floor of each: the limits do not bind together.
    Binding,
    /// None: the widths are too coarse. All maximal candidates are kept.
    Neither,
}

/// The baseline's candidates and how many were left out on the way to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uniform {
    pub choices: Vec<Choice>,
    pub reach: Reach,
    /// Uniform architectures within every limit.
    pub within: usize,
    /// Those of them that cannot grow on any axis without shrinking on another.
    pub maximal: usize,
}

/// One axis, its widths rising.
struct Widths {
    gates: Vec<usize>,
    /// Per width the candidate of each gate.
    candidates: Vec<Vec<usize>>,
}

/// All uniform architectures within the limits that cannot grow, with ρ ≥ `floor` as [`Reach`] says.
///
/// A width of an axis is a size above 0 that every gate of the axis has; a layer without a gate for it keeps the parent's.
/// No layer is removed. A candidate can grow where another one within the limits is at least as wide on every axis.
/// The last axis's widths change fastest.
///
/// # Errors
/// [`Error::Contract`] where a resource belongs to another space; [`Error::Usage`] where there are more than four million
/// combinations of widths.
pub fn uniform(space: &SearchSpace, resources: &[Resource], floor: f64) -> Result<Uniform> {
    check(space, resources)?;
    let axes = axes(space);
    let sizes: Vec<usize> = axes.iter().map(|axis| axis.candidates.len()).collect();
    let points = sizes.iter().try_fold(1, |n: usize, size| n.checked_mul(*size)).filter(|n| *n <= MOST_POINTS);
    let Some(points) = points else {
        let expected = format!("at most {MOST_POINTS} combinations");
        return Err(Error::Usage(format!("uniform architectures: found {sizes:?} widths, expected {expected}")));
    };
    let parent = space.parent_choice();
    let choice = |mut point: usize| {
        let mut choice = parent.clone();
        for (axis, size) in axes.iter().zip(&sizes).rev() {
            let width = &axis.candidates[point % size];
            axis.gates.iter().zip(width).for_each(|(gate, candidate)| choice.0[*gate] = *candidate);
            point /= size;
        }
        choice
    };
    let fits = |choice: &Choice| resources.iter().all(|resource| resource.rho(&choice.0) <= 1.0);
    let within: Vec<bool> = (0..points).into_par_iter().map(|point| fits(&choice(point))).collect();
    let all: Vec<Choice> = maximal(&within, &sizes).into_iter().map(choice).collect();
    let mut found = Uniform {
        choices: Vec::new(),
        reach: Reach::Each,
        within: within.iter().filter(|within| **within).count(),
        maximal: all.len(),
    };
    for (reach, keep) in [(Reach::Each, reaches_each as Keep), (Reach::Binding, reaches_one), (Reach::Neither, any)] {
        found.reach = reach;
        found.choices = all.iter().filter(|choice| keep(resources, choice, floor)).cloned().collect();
        if !found.choices.is_empty() || all.is_empty() {
            break;
        }
    }
    Ok(found)
}

type Keep = fn(&[Resource], &Choice, f64) -> bool;

fn reaches_each(resources: &[Resource], choice: &Choice, floor: f64) -> bool {
    resources.iter().all(|resource| resource.rho(&choice.0) >= floor)
}

fn reaches_one(resources: &[Resource], choice: &Choice, floor: f64) -> bool {
    resources.iter().any(|resource| resource.rho(&choice.0) >= floor)
}

fn any(_: &[Resource], _: &Choice, _: f64) -> bool {
    true
}

/// The points of a grid that are `within` and have no other such point that is at least as large in every dimension.
fn maximal(within: &[bool], sizes: &[usize]) -> Vec<usize> {
    // Whether the point or one above it is within; points above come later.
    let mut covered = within.to_vec();
    let mut maximal = Vec::new();
    for point in (0..within.len()).rev() {
        let mut stride = 1;
        let mut above = false;
        for size in sizes.iter().rev() {
            above |= point / stride % size + 1 < *size && covered[point + stride];
            stride *= size;
        }
        if within[point] && !above {
            maximal.push(point);
        }
        covered[point] |= above;
    }
    maximal.reverse();
    maximal
}

fn axes(space: &SearchSpace) -> Vec<Widths> {
    let widths = |axis: Axis| {
        let gates: Vec<usize> = (0..space.gates.len()).filter(|g| space.gates[*g].axis == axis).collect();
        let first = &space.gates[*gates.first()?].candidates;
        let everywhere = |width: &usize| -> Option<Vec<usize>> {
            gates.iter().map(|g| space.gates[*g].candidates.iter().position(|size| size == width)).collect()
        };
        let candidates = first.iter().filter(|width| **width > 0).filter_map(everywhere).collect();
        Some(Widths { gates, candidates })
    };
    // Of the axis "keep", every layer stays.
    [Axis::Hidden, Axis::Heads, Axis::Experts, Axis::Routed, Axis::Shared].into_iter().filter_map(widths).collect()
}

fn check(space: &SearchSpace, resources: &[Resource]) -> Result<()> {
    let candidates: Vec<usize> = space.gates.iter().map(|gate| gate.candidates.len()).collect();
    match resources.iter().find(|resource| resource.candidates != candidates) {
        Some(resource) => {
            let expected = format!("{candidates:?}, the search space's");
            Err(Error::contract("uniform", "candidates of a resource", &resource.candidates, expected))
        }
        None => Ok(()),
    }
}
