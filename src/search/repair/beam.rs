//! Layer by layer through a capped context: all partial choices that may still become the best one.

use std::collections::BTreeMap;

use super::dual::{Bound, net};
use super::problem::{Capped, Item, PerResource, RESOURCES, Range};

/// Partial choices that are made before the least promising are dropped.
const GENERATED: usize = 1 << 22;
/// Costs are compared to this, as ρ.
const TOLERANCE: f64 = 1e-10;

/// A choice for the first layers.
#[derive(Clone, Copy)]
struct State {
    value: f64,
    /// No way to complete it has a larger value.
    bound: f64,
    rho: PerResource,
    reached: u32,
    parent: u32,
    item: u32,
}

/// What the layers from one on can still add.
struct Rest {
    least: PerResource,
    most: PerResource,
    reached: u32,
}

pub struct Pass {
    /// Complete choices (item numbers per layer), the largest value first.
    pub complete: Vec<Vec<usize>>,
    /// Whether partial choices were dropped: then a better complete one may exist, of at most this value.
    pub dropped: Option<f64>,
}

/// Walks through the layers, keeping at most `width` partial choices, those of the largest bounds. Choices that cannot
/// exceed `known` are left out. `groups`: the caps that must be reached where a lower limit is set.
pub fn pass(problem: &Capped, ranges: &[Range], bound: &Bound, known: f64, width: usize, groups: u32) -> Pass {
    let layers: Vec<Vec<(usize, &Item, f64)>> = problem.items.iter().map(|items| losses(items, bound, known)).collect();
    let mut order: Vec<usize> = (0..layers.len()).collect();
    // Few options first: the many meet a frontier that is still small, and the bounds are tight by the end.
    order.sort_by_key(|layer| layers[*layer].len());
    let rest = rest(&layers, &order);
    let has_floor = ranges.iter().any(|range| range.low.is_finite());
    let mut dropped: Option<f64> = None;
    let first = State {
        value: problem.value,
        bound: bound.value,
        rho: problem.rho, // the highest caps are the lowest
        reached: problem.reached,
        parent: 0,
        item: 0,
    };
    let mut states = vec![first];
    let mut trail: Vec<Vec<(u32, u32)>> = Vec::new();
    for (depth, layer) in order.iter().enumerate() {
        let mut next = Vec::new();
        for (parent, state) in states.iter().enumerate() {
            for (number, item, loss) in &layers[*layer] {
                let bound = state.bound - loss;
                if bound <= known {
                    break; // losses rise
                }
                let mut rho = state.rho;
                rho.iter_mut().zip(&item.rho).for_each(|(sum, rho)| *sum += rho);
                let reached = state.reached | item.reached;
                let (value, parent, item) = (state.value + item.value, parent as u32, *number as u32);
                let state = State { value, bound, rho, reached, parent, item };
                if fits(&state, &rest[depth], ranges)
                    && (!has_floor || (reached | rest[depth].reached) & groups == groups)
                {
                    next.push(state);
                }
            }
            if next.len() > GENERATED {
                next = undominated(next, ranges, has_floor);
                keep_best(&mut next, GENERATED / 2, &mut dropped);
            }
        }
        states = undominated(next, ranges, has_floor);
        keep_best(&mut states, width, &mut dropped);
        trail.push(states.iter().map(|state| (state.parent, state.item)).collect());
    }
    states.sort_by(|a, b| b.value.total_cmp(&a.value));
    let complete = states.iter().map(|state| {
        let mut at = (state.parent, state.item);
        let mut picks = vec![0; layers.len()];
        for (depth, layer) in order.iter().enumerate().rev() {
            picks[*layer] = at.1 as usize;
            if depth > 0 {
                at = trail[depth - 1][at.0 as usize];
            }
        }
        picks
    });
    Pass { complete: complete.collect(), dropped }
}

/// All choices (item numbers per layer) that may exceed `known`, where they are at most `count`.
pub fn few(problem: &Capped, bound: &Bound, known: f64, count: usize) -> Option<Vec<Vec<usize>>> {
    let layers: Vec<Vec<(usize, &Item, f64)>> = problem.items.iter().map(|items| losses(items, bound, known)).collect();
    let all = layers.iter().try_fold(1usize, |n, items| n.checked_mul(items.len()).filter(|n| *n <= count));
    all?;
    Some(layers.iter().fold(vec![Vec::new()], |all: Vec<Vec<usize>>, items| {
        all.iter().flat_map(|head| items.iter().map(move |item| [head.as_slice(), &[item.0]].concat())).collect()
    }))
}

/// The items that a choice better than `known` can have, with what each loses against the layer's best, rising.
fn losses<'i>(items: &'i [Item], bound: &Bound, known: f64) -> Vec<(usize, &'i Item, f64)> {
    let best = items.iter().map(|item| net(item, &bound.prices)).fold(f64::NEG_INFINITY, f64::max);
    let with_loss = items.iter().enumerate().map(|(i, item)| (i, item, best - net(item, &bound.prices)));
    let mut kept: Vec<(usize, &Item, f64)> = with_loss.filter(|(_, _, loss)| bound.value - loss > known).collect();
    kept.sort_by(|a, b| a.2.total_cmp(&b.2));
    kept
}

/// Per depth: what the layers after it can add.
fn rest(layers: &[Vec<(usize, &Item, f64)>], order: &[usize]) -> Vec<Rest> {
    let mut sum = Rest { least: [0.0; RESOURCES], most: [0.0; RESOURCES], reached: 0 };
    let mut all = Vec::with_capacity(order.len());
    for layer in order.iter().rev() {
        all.push(Rest { ..sum });
        for r in 0..RESOURCES {
            let costs = || layers[*layer].iter().map(|(_, item, _)| item.rho[r]);
            sum.least[r] += costs().fold(f64::INFINITY, f64::min);
            sum.most[r] += costs().fold(f64::NEG_INFINITY, f64::max);
        }
        sum.reached |= layers[*layer].iter().fold(0, |bits, (_, item, _)| bits | item.reached);
    }
    all.reverse();
    all
}

fn fits(state: &State, rest: &Rest, ranges: &[Range]) -> bool {
    ranges.iter().enumerate().all(|(r, range)| {
        state.rho[r] + rest.least[r] <= range.high + TOLERANCE && state.rho[r] + rest.most[r] >= range.low - TOLERANCE
    })
}

fn keep_best(states: &mut Vec<State>, width: usize, dropped: &mut Option<f64>) {
    if states.len() > width {
        states.select_nth_unstable_by(width, |a, b| b.bound.total_cmp(&a.bound));
        let best = states[width..].iter().map(|state| state.bound).fold(f64::NEG_INFINITY, f64::max);
        *dropped = Some(dropped.map_or(best, |old| old.max(best)));
        states.truncate(width);
    }
}

/// Leaves out states that another one beats: at least its value, no more of any resource, and, where there is a lower limit,
/// exactly as much of that resource and the same caps reached.
fn undominated(mut states: Vec<State>, ranges: &[Range], has_floor: bool) -> Vec<State> {
    let bound = |r: &usize| ranges[*r].is_bound();
    let (mut equal, mut less): (Vec<usize>, Vec<usize>) =
        (0..ranges.len()).filter(bound).partition(|r| ranges[*r].low.is_finite());
    // The frontier below has two dimensions; of further resources only equal amounts are compared.
    equal.extend(less.drain(less.len().min(2)..));
    let key = |state: &State| {
        let mut key = [0i64; RESOURCES];
        equal.iter().for_each(|r| key[*r] = (state.rho[*r] * 1e12).round() as i64);
        (if has_floor { state.reached } else { 0 }, key)
    };
    let cost = |state: &State, i: usize| less.get(i).map_or(0.0, |r| state.rho[*r]);
    states.sort_unstable_by(|a, b| {
        let by_cost = cost(a, 0).total_cmp(&cost(b, 0)).then(cost(a, 1).total_cmp(&cost(b, 1)));
        key(a)
            .cmp(&key(b))
            .then(by_cost)
            .then(b.value.total_cmp(&a.value))
            .then((a.parent, a.item).cmp(&(b.parent, b.item)))
    });
    let mut kept: Vec<State> = Vec::with_capacity(states.len());
    let mut of = None;
    // The second cost → the largest value at no more of it; both rise.
    let mut frontier: BTreeMap<i64, f64> = BTreeMap::new();
    for state in states {
        if of != Some(key(&state)) {
            of = Some(key(&state));
            frontier.clear();
        }
        let second = (cost(&state, 1) * 1e12).round() as i64;
        if frontier.range(..=second).next_back().is_some_and(|(_, value)| *value >= state.value) {
            continue;
        }
        while let Some((at, _)) = frontier.range(second..).next().filter(|(_, value)| **value <= state.value) {
            let at = *at;
            frontier.remove(&at);
        }
        frontier.insert(second, state.value);
        kept.push(state);
    }
    kept
}
