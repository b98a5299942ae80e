//! The repair's problem, cut into contexts, caps of the widest layers, and independent layers.

use super::super::router::argmax;
use crate::cost::{LayerTerm, Resource};
use crate::supernet::{Axis, SearchSpace};
use crate::{Error, Result};

/// Limited quantities that a problem can have.
pub const RESOURCES: usize = 4;
/// Groups of widest layers, over all resources.
const GROUPS: usize = 32;

/// A number per resource; those of absent resources are 0.
pub type PerResource = [f64; RESOURCES];

/// What is maximised.
#[derive(Clone, Copy, Debug)]
pub enum Objective {
    /// Σ of the gates' log-probabilities.
    LogProbability,
    /// −ρ of a resource.
    Cost(usize),
}

/// Bounds of a resource's ρ.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    pub const ANY: Range = Range { low: f64::NEG_INFINITY, high: f64::INFINITY };
    pub const AT_MOST_1: Range = Range { low: f64::NEG_INFINITY, high: 1.0 };

    pub fn is_bound(&self) -> bool {
        self.low.is_finite() || self.high.is_finite()
    }
}

/// Gates that share a term of some resource: a layer's. Everything else adds up over components.
struct Component {
    gates: Vec<usize>,
    /// The candidates of the gates, option by option.
    options: Vec<Vec<usize>>,
}

pub struct Problem {
    pub resources: Vec<Resource>,
    pub ranges: Vec<Range>,
    /// The search space's gates: how many candidates each has is the resources' business.
    gates: usize,
    log_probabilities: Vec<Vec<f64>>,
    objective: Objective,
    globals: Vec<usize>,
    components: Vec<Component>,
    /// (resource, group of its `widest`).
    groups: Vec<(usize, usize)>,
}

/// One way to fill in a component, in a context.
#[derive(Clone, Debug)]
pub struct Item {
    pub value: f64,
    pub rho: PerResource,
    /// Which groups' highest caps it reaches.
    pub reached: u32,
    pub option: u16,
}

/// A context's tables.
pub struct Context {
    /// Every gate's candidate; those of components are filled in later.
    pub choice: Vec<usize>,
    pub value: f64,
    pub rho: PerResource,
    /// Per component.
    pub items: Vec<Vec<Item>>,
    /// Per component and option, per group: how wide it makes the group's widest layer, as ρ.
    widths: Vec<Vec<Vec<f64>>>,
    /// Per group, rising: what the widest layer can be, as ρ.
    pub caps: Vec<Vec<f64>>,
}

/// A context in which the widest layer of every group is between two caps.
pub struct Capped {
    pub value: f64,
    /// Of what the components do not choose, at the lowest caps.
    pub rho: PerResource,
    /// At the highest.
    pub rho_most: PerResource,
    pub items: Vec<Vec<Item>>,
    /// The groups whose highest cap is reached whatever the components are.
    pub reached: u32,
}

impl Capped {
    /// Every choice has at least this value.
    pub fn floor(&self) -> f64 {
        let least = |items: &Vec<Item>| items.iter().map(|item| item.value).fold(f64::INFINITY, f64::min);
        self.value + self.items.iter().map(least).sum::<f64>()
    }
}

impl Problem {
    pub fn new(
        space: &SearchSpace,
        log_probabilities: &[Vec<f64>],
        resources: &[Resource],
        objective: Objective,
        ranges: Vec<Range>,
    ) -> Result<Problem> {
        let groups: Vec<(usize, usize)> =
            resources.iter().enumerate().flat_map(|(r, of)| (0..of.widest.len()).map(move |g| (r, g))).collect();
        if resources.len() > RESOURCES || groups.len() > GROUPS {
            let found = format!("{} limits, {} groups of widest layers", resources.len(), groups.len());
            return Err(Error::contract("repair", "resources", found, format!("at most {RESOURCES} and {GROUPS}")));
        }
        let mut globals: Vec<usize> = resources.iter().flat_map(|r| r.global_gates.iter().copied()).collect();
        globals.sort_unstable();
        globals.dedup();
        let components = components(space, log_probabilities, resources, &globals);
        if let Some(large) = components.iter().find(|c| c.options.len() > usize::from(u16::MAX)) {
            let expected = format!("at most {} options of one layer", u16::MAX);
            return Err(Error::contract("repair", "resources", large.options.len(), expected));
        }
        Ok(Problem {
            resources: resources.to_vec(),
            ranges,
            gates: space.gates.len(),
            log_probabilities: log_probabilities.to_vec(),
            objective,
            globals,
            components,
            groups,
        })
    }

    /// How many combinations the global gates have.
    pub fn contexts(&self) -> usize {
        self.globals.iter().map(|gate| self.log_probabilities[*gate].len()).product()
    }

    /// The tables of a context.
    pub fn context(&self, number: usize) -> Context {
        // Gates that no cost knows of keep their leading candidate.
        let mut choice: Vec<usize> = self.log_probabilities.iter().map(|p| argmax(p)).collect();
        let mut rest = number;
        for gate in self.globals.iter().rev() {
            let candidates = self.log_probabilities[*gate].len();
            choice[*gate] = rest % candidates;
            rest /= candidates;
        }
        let inside: Vec<usize> = self.components.iter().flat_map(|c| c.gates.iter().copied()).collect();
        let outside = (0..self.gates).filter(|gate| !inside.contains(gate));
        let mut value = outside.map(|gate| self.log_probabilities[gate][choice[gate]]).sum();
        let mut rho = [0.0; RESOURCES];
        for (rho, resource) in rho.iter_mut().zip(&self.resources) {
            let at = resource.combination(&resource.global_gates, &choice);
            let fixed =
                resource.layers.iter().filter(|term| !self.is_chosen(term)).map(|t| at_choice(resource, t, &choice));
            *rho = (resource.constant[at] + fixed.sum::<f64>()) / resource.limit;
        }
        if let Objective::Cost(r) = self.objective {
            value = -rho[r];
        }
        let (items, widths): (Vec<_>, Vec<_>) =
            self.components.iter().map(|component| self.items(component, &choice)).unzip();
        let caps = self.caps(&choice, &widths);
        Context { choice, value, rho, items, widths, caps }
    }

    fn is_chosen(&self, term: &LayerTerm) -> bool {
        term.gates.iter().any(|gate| !self.globals.contains(gate))
    }

    fn items(&self, component: &Component, choice: &[usize]) -> (Vec<Item>, Vec<Vec<f64>>) {
        let belongs = |term: &&LayerTerm| term.gates.iter().any(|gate| component.gates.contains(gate));
        let terms: Vec<Vec<&LayerTerm>> =
            self.resources.iter().map(|r| r.layers.iter().filter(belongs).collect()).collect();
        let widest: Vec<Vec<&LayerTerm>> =
            self.groups.iter().map(|(r, g)| self.resources[*r].widest[*g].iter().filter(belongs).collect()).collect();
        let mut choice = choice.to_vec();
        let item = |(number, option): (usize, &Vec<usize>)| {
            component.gates.iter().zip(option).for_each(|(gate, candidate)| choice[*gate] = *candidate);
            let mut rho = [0.0; RESOURCES];
            for ((rho, resource), terms) in rho.iter_mut().zip(&self.resources).zip(&terms) {
                *rho = terms.iter().map(|term| at_choice(resource, term, &choice)).sum::<f64>() / resource.limit;
            }
            let value = match self.objective {
                Objective::LogProbability => {
                    component.gates.iter().zip(option).map(|(gate, c)| self.log_probabilities[*gate][*c]).sum()
                }
                Objective::Cost(r) => -rho[r],
            };
            let width = |((r, _), terms): (&(usize, usize), &Vec<&LayerTerm>)| {
                let resource = &self.resources[*r];
                terms.iter().map(|term| at_choice(resource, term, &choice)).fold(0.0, f64::max) / resource.limit
            };
            let widths = self.groups.iter().zip(&widest).map(width).collect();
            (Item { value, rho, reached: 0, option: number as u16 }, widths)
        };
        component.options.iter().enumerate().map(item).unzip()
    }

    fn caps(&self, choice: &[usize], widths: &[Vec<Vec<f64>>]) -> Vec<Vec<f64>> {
        let caps = |(group, (r, g)): (usize, &(usize, usize))| {
            let resource = &self.resources[*r];
            let fixed = resource.widest[*g].iter().filter(|term| !self.is_chosen(term));
            let least = fixed.map(|term| at_choice(resource, term, choice)).fold(0.0, f64::max) / resource.limit;
            let mut caps: Vec<f64> = widths.iter().flatten().map(|of| of[group]).filter(|w| *w > least).collect();
            caps.push(least);
            caps.sort_by(f64::total_cmp);
            caps.dedup();
            caps
        };
        self.groups.iter().enumerate().map(caps).collect()
    }

    /// The choices of a context whose widest layers are between the caps of these numbers, [lowest, highest] per group;
    /// `None` where there are none: a layer has no option below the highest, or no layer reaches the lowest.
    pub fn capped(&self, context: &Context, caps: &[[usize; 2]]) -> Option<Capped> {
        let (mut value, mut rho, mut rho_most) = (context.value, context.rho, context.rho);
        let mut reached = 0;
        for (group, ((r, _), [low, high])) in self.groups.iter().zip(caps).enumerate() {
            rho[*r] += context.caps[group][*low];
            rho_most[*r] += context.caps[group][*high];
            reached |= u32::from(*high == 0) << group;
            if matches!(self.objective, Objective::Cost(of) if of == *r) {
                value -= context.caps[group][*low];
            }
        }
        let highest: Vec<f64> = caps.iter().zip(&context.caps).map(|([_, high], caps)| caps[*high]).collect();
        let below = |(items, widths): (&Vec<Item>, &Vec<Vec<f64>>)| {
            let kept: Vec<Item> = (items.iter().zip(widths))
                .filter(|(_, widths)| widths.iter().zip(&highest).all(|(width, cap)| width <= cap))
                .map(|(item, widths)| {
                    let reached = (0..caps.len()).filter(|g| widths[*g] == highest[*g]);
                    Item { reached: reached.fold(0, |bits, g| bits | 1 << g), ..item.clone() }
                })
                .collect();
            (!kept.is_empty()).then_some(kept)
        };
        let items = context.items.iter().zip(&context.widths).map(below).collect::<Option<_>>()?;
        // Some layer must be as wide as the lowest cap, within the highest of all groups.
        let within = |widths: &&Vec<f64>| widths.iter().zip(&highest).all(|(width, cap)| width <= cap);
        let is_reached = |(group, [low, _]): (usize, &[usize; 2])| {
            let lowest = context.caps[group][*low];
            *low == 0 || context.widths.iter().flatten().filter(within).any(|widths| widths[group] >= lowest)
        };
        if !caps.iter().enumerate().all(is_reached) {
            return None;
        }
        Some(Capped { value, rho, rho_most, items, reached })
    }

    /// The objective at a whole choice.
    pub fn value(&self, choice: &[usize]) -> f64 {
        match self.objective {
            Objective::LogProbability => choice.iter().zip(&self.log_probabilities).map(|(c, p)| p[*c]).sum(),
            Objective::Cost(r) => -self.resources[r].rho(choice),
        }
    }

    /// The groups' bits.
    pub fn all_groups(&self) -> u32 {
        (0..self.groups.len()).fold(0, |bits, g| bits | 1 << g)
    }

    /// The whole choice of one option per component.
    pub fn choice(&self, context: &Context, options: &[u16]) -> Vec<usize> {
        let mut choice = context.choice.clone();
        for (component, option) in self.components.iter().zip(options) {
            let option = &component.options[usize::from(*option)];
            component.gates.iter().zip(option).for_each(|(gate, candidate)| choice[*gate] = *candidate);
        }
        choice
    }

    /// Whether a choice's true costs are in range.
    pub fn is_feasible(&self, choice: &[usize]) -> bool {
        self.resources.iter().zip(&self.ranges).all(|(resource, range)| {
            let rho = resource.rho(choice);
            range.low <= rho && rho <= range.high
        })
    }
}

fn at_choice(resource: &Resource, term: &LayerTerm, choice: &[usize]) -> f64 {
    let context = resource.combination(&resource.global_gates, choice);
    term.values[context][resource.combination(&term.gates, choice)]
}

/// The sets of gates that terms hold together, with their options.
fn components(
    space: &SearchSpace,
    log_probabilities: &[Vec<f64>],
    resources: &[Resource],
    globals: &[usize],
) -> Vec<Component> {
    // The lowest gate that each gate is joined with.
    let mut root: Vec<usize> = (0..space.gates.len()).collect();
    let mut known = vec![false; root.len()];
    let mut join = |gates: &[usize]| {
        let own: Vec<usize> = gates.iter().copied().filter(|gate| !globals.contains(gate)).collect();
        let Some(least) = own.iter().map(|gate| root[*gate]).min() else { return };
        for gate in own {
            let old = root[gate];
            root.iter_mut().filter(|r| **r == old).for_each(|r| *r = least);
        }
    };
    for resource in resources {
        for term in resource.layers.iter().chain(resource.widest.iter().flatten()) {
            join(&term.gates);
            term.gates.iter().for_each(|gate| known[*gate] = true);
        }
    }
    // Experts matter only where routed width is left, so their gates belong together.
    let pairs: Vec<(usize, usize)> = (space.gates.iter().enumerate())
        .filter(|(_, gate)| gate.axis == Axis::Routed)
        .filter_map(|(routed, gate)| Some((space.gate(Axis::Experts, gate.layer)?, routed)))
        .filter(|(experts, routed)| known[*experts] || known[*routed])
        .collect();
    for (experts, routed) in &pairs {
        join(&[*experts, *routed]);
        (known[*experts], known[*routed]) = (true, true);
    }
    let members = |of: usize| -> Vec<usize> {
        (0..root.len()).filter(|gate| root[*gate] == of && known[*gate] && !globals.contains(gate)).collect()
    };
    let component = |gates: Vec<usize>| {
        let all = gates.iter().fold(vec![Vec::new()], |all: Vec<Vec<usize>>, gate| {
            let candidates = 0..log_probabilities[*gate].len();
            all.iter().flat_map(|head| candidates.clone().map(move |c| [head.as_slice(), &[c]].concat())).collect()
        });
        let at = |gate: usize| gates.iter().position(|g| *g == gate);
        let is_distinct = |option: &Vec<usize>| {
            pairs.iter().all(|(experts, routed)| match (at(*experts), at(*routed)) {
                (Some(e), Some(f)) if space.gates[*routed].candidates[option[f]] == 0 => {
                    option[e] == argmax(&log_probabilities[*experts])
                }
                _ => true,
            })
        };
        Component { options: all.into_iter().filter(is_distinct).collect(), gates }
    };
    (0..root.len()).map(members).filter(|gates| !gates.is_empty()).map(component).collect()
}
