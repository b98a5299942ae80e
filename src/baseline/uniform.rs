//! Minitron++: one width per axis for all layers (docs/method.md, "Baseline").

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
    let grid = Grid::new(space, resources)?;
    let fits = |choice: &Choice| resources.iter().all(|resource| resource.rho(&choice.0) <= 1.0);
    let within: Vec<bool> = (0..grid.points).into_par_iter().map(|point| fits(&grid.choice(point))).collect();
    let all: Vec<Choice> = maximal(&within, &grid.sizes).into_iter().map(|point| grid.choice(point)).collect();
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

/// Which limit keeps all uniform architectures out, and the one that comes closest to it: a limit that none meets or, where
/// each can be met alone, the one that is missed by least while the others hold.
///
/// # Errors
/// Those of [`uniform`]; [`Error::Usage`] where the layers of an axis have no width in common; [`Error::Contract`] where a
/// uniform architecture is within all limits.
pub fn nearest(space: &SearchSpace, resources: &[Resource]) -> Result<Error> {
    let grid = Grid::new(space, resources)?;
    if let Some(axis) = grid.axes.iter().find(|axis| axis.candidates.is_empty()) {
        let name = axis.gates.first().map_or("", |gate| space.gates[*gate].axis.name());
        let text =
            format!("{name}: found no width above 0 that all layers have, expected one for uniform architectures");
        return Err(Error::Usage(text));
    }
    let rho = |point: usize| -> Vec<f64> {
        let choice = grid.choice(point);
        resources.iter().map(|resource| resource.rho(&choice.0)).collect()
    };
    let rho: Vec<Vec<f64>> = (0..grid.points).into_par_iter().map(rho).collect();
    // The least ρ of a resource, over the points whose other ones are at most `others`.
    let least = |r: usize, others: f64| {
        let held = |point: &usize| rho[*point].iter().enumerate().all(|(other, rho)| other == r || *rho <= others);
        (0..grid.points).filter(held).min_by(|a, b| rho[*a][r].total_cmp(&rho[*b][r])).map(|point| (r, point))
    };
    let missed = |(r, point): &(usize, usize)| rho[*point][*r] > 1.0;
    let closest = [f64::INFINITY, 1.0].into_iter().find_map(|others| {
        let missed = (0..resources.len()).filter_map(|r| least(r, others)).filter(missed);
        missed.min_by(|a, b| rho[a.1][a.0].total_cmp(&rho[b.1][b.0]))
    });
    let widest = |point: usize| (0..resources.len()).max_by(|a, b| rho[point][*a].total_cmp(&rho[point][*b]));
    let all = (0..grid.points).filter_map(|point| widest(point).map(|r| (r, point)));
    let closest = closest.or_else(|| all.min_by(|a, b| rho[a.1][a.0].total_cmp(&rho[b.1][b.0])).filter(missed));
    let Some((r, point)) = closest else {
        return Err(Error::contract("uniform", "limits", "an architecture within them", "limits that none meets"));
    };
    let kept = (0..resources.len()).filter(|other| *other != r && rho[point][*other] <= 1.0);
    resources[r].unreachable(space, &grid.choice(point), kept.map(|other| resources[other].name.clone()).collect())
}

/// All combinations of widths, the last axis's changing fastest.
struct Grid {
    axes: Vec<Widths>,
    sizes: Vec<usize>,
    points: usize,
    parent: Choice,
}

impl Grid {
    fn new(space: &SearchSpace, resources: &[Resource]) -> Result<Grid> {
        check(space, resources)?;
        let axes = axes(space);
        let sizes: Vec<usize> = axes.iter().map(|axis| axis.candidates.len()).collect();
        let points = sizes.iter().try_fold(1, |n: usize, size| n.checked_mul(*size)).filter(|n| *n <= MOST_POINTS);
        let Some(points) = points else {
            let expected = format!("at most {MOST_POINTS} combinations");
            return Err(Error::Usage(format!("uniform architectures: found {sizes:?} widths, expected {expected}")));
        };
        Ok(Grid { axes, sizes, points, parent: space.parent_choice() })
    }

    fn choice(&self, mut point: usize) -> Choice {
        let mut choice = self.parent.clone();
        for (axis, size) in self.axes.iter().zip(&self.sizes).rev() {
            let width = &axis.candidates[point % size];
            axis.gates.iter().zip(width).for_each(|(gate, candidate)| choice.0[*gate] = *candidate);
            point /= size;
        }
        choice
    }
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
