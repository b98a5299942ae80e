//! Best-first over contexts and caps, each by bounds and then layer by layer.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::beam;
use super::dual::{Bound, Start, best_prices, relaxation};
use super::problem::{Capped, Context, PerResource, Problem};
use crate::supernet::Choice;

/// Choices that are tried one by one.
const FEW: usize = 512;
/// Partial choices of the passes, one after the other, until none had to be dropped.
const WIDTHS: [usize; 4] = [64, 2_048, 32_768, 300_000];

pub struct Solution {
    pub choice: Choice,
    pub value: f64,
    /// No choice in range exceeds `value` by more.
    pub gap: f64,
}

/// All choices of a context whose widest layers lie between two caps.
struct Node {
    /// No choice in it has a larger value.
    bound: f64,
    prices: PerResource,
    context: usize,
    /// Per group, the numbers of the lowest and the highest cap.
    caps: Vec<[usize; 2]>,
}

impl Ord for Node {
    fn cmp(&self, other: &Node) -> Ordering {
        let place = |node: &Node| (node.context, node.caps.clone());
        self.bound.total_cmp(&other.bound).then_with(|| place(other).cmp(&place(self)))
    }
}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Node) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Node {}

struct Solver<'p> {
    problem: &'p Problem,
    best: Option<Choice>,
    /// Of `best`, or the value that is known from elsewhere.
    value: f64,
    /// The largest bound of what was dropped unseen.
    dropped: f64,
}

/// The choice in range with the largest value, if one exceeds `known`.
pub fn solve(problem: &Problem, known: f64) -> Option<Solution> {
    let mut solver = Solver { problem, best: None, value: known, dropped: f64::NEG_INFINITY };
    let contexts: Vec<Context> = (0..problem.contexts()).map(|number| problem.context(number)).collect();
    let mut heap = BinaryHeap::new();
    for (number, context) in contexts.iter().enumerate() {
        let all = context.caps.iter().map(|caps| [0, caps.len() - 1]).collect();
        heap.extend(solver.node(&contexts, number, all, None));
    }
    while let Some(node) = heap.pop() {
        if node.bound <= solver.enough() {
            break; // and so are all others
        }
        let context = &contexts[node.context];
        let split = (0..node.caps.len()).filter(|g| node.caps[*g][0] < node.caps[*g][1]).max_by(|a, b| {
            let span = |g: &usize| context.caps[*g][node.caps[*g][1]] - context.caps[*g][node.caps[*g][0]];
            span(a).total_cmp(&span(b))
        });
        let Some(group) = split else {
            solver.search_capped(context, &node);
            continue;
        };
        if solver.try_all(context, &node) {
            continue;
        }
        if solver.best.is_none() {
            solver.first_guess(context, &node);
        }
        let [low, high] = node.caps[group];
        let middle = (low + high) / 2;
        for half in [[low, middle], [middle + 1, high]] {
            let mut caps = node.caps.clone();
            caps[group] = half;
            heap.extend(solver.node(&contexts, node.context, caps, Some((&node.prices, node.bound))));
        }
    }
    let Solver { best, value, dropped, .. } = solver;
    best.map(|choice| Solution { choice, value, gap: (dropped - value).max(0.0) })
}

impl Solver<'_> {
    /// The value that a new choice must exceed; differences of rounding do not count.
    fn enough(&self) -> f64 {
        if self.value.is_finite() { self.value + 1e-11 * (1.0 + self.value.abs()) } else { self.value }
    }

    /// What a bound must exceed: below the least value that a choice has, there is none.
    fn enough_for(&self, problem: &Capped) -> f64 {
        let floor = problem.floor();
        self.enough().max(floor - 1e-9 * (1.0 + floor.abs()))
    }

    /// A node with its bound, unless it cannot hold a better choice. `parent`: prices and bound of the node it is part of.
    fn node(
        &mut self,
        contexts: &[Context],
        context: usize,
        caps: Vec<[usize; 2]>,
        parent: Option<(&PerResource, f64)>,
    ) -> Option<Node> {
        let capped = self.problem.capped(&contexts[context], &caps)?;
        let enough = self.enough_for(&capped);
        let mut bound = Bound { prices: [0.0; _], value: f64::INFINITY };
        let start = match parent {
            Some((prices, value)) => {
                let (here, _) = relaxation(&capped, &self.problem.ranges, prices, &mut Vec::new());
                bound = Bound { prices: *prices, value: here.min(value) };
                Start::Near(*prices)
            }
            None => Start::Anywhere,
        };
        if bound.value > enough {
            let iterations = if parent.is_some() { 40 } else { 200 };
            let ranges = &self.problem.ranges;
            let offer = |picks: &[usize]| self.offer(&contexts[context], &capped, picks);
            let found = best_prices(&capped, ranges, start, iterations, enough, offer);
            if found.value < bound.value {
                bound = found;
            }
        }
        let Bound { prices, value } = bound;
        (value > self.enough_for(&capped)).then_some(Node { bound: value, prices, context, caps })
    }

    /// Tries every choice of a node where they are few.
    fn try_all(&mut self, context: &Context, node: &Node) -> bool {
        let Some(capped) = self.problem.capped(context, &node.caps) else { return true };
        let bound = Bound { prices: node.prices, value: node.bound };
        let Some(all) = beam::few(&capped, &bound, self.enough(), FEW) else { return false };
        all.iter().for_each(|picks| self.offer(context, &capped, picks));
        true
    }

    /// A choice to begin with, if a narrow pass finds one at the highest caps' cost.
    fn first_guess(&mut self, context: &Context, node: &Node) {
        let highest: Vec<[usize; 2]> = node.caps.iter().map(|[_, high]| [*high; 2]).collect();
        let Some(capped) = self.problem.capped(context, &highest) else { return };
        let bound = best_prices(&capped, &self.problem.ranges, Start::Near(node.prices), 60, f64::NEG_INFINITY, |_| {});
        let pass = beam::pass(&capped, &self.problem.ranges, &bound, f64::NEG_INFINITY, WIDTHS[0], 0);
        for picks in &pass.complete {
            self.offer(context, &capped, picks);
        }
    }

    fn search_capped(&mut self, context: &Context, node: &Node) {
        let Some(capped) = self.problem.capped(context, &node.caps) else { return };
        let ranges = &self.problem.ranges;
        let enough = self.enough_for(&capped);
        let offer = |picks: &[usize]| self.offer(context, &capped, picks);
        let mut bound = best_prices(&capped, ranges, Start::Near(node.prices), 200, enough, offer);
        let anywhere = best_prices(&capped, ranges, Start::Anywhere, 400, enough, |_| {});
        if anywhere.value < bound.value {
            bound = anywhere;
        }
        for width in WIDTHS {
            let enough = self.enough_for(&capped);
            if bound.value <= enough {
                return;
            }
            let pass = beam::pass(&capped, ranges, &bound, enough, width, self.problem.all_groups());
            for picks in &pass.complete {
                self.offer(context, &capped, picks);
            }
            match pass.dropped {
                Some(best) if best > self.enough() && width == WIDTHS[WIDTHS.len() - 1] => {
                    self.dropped = self.dropped.max(best);
                }
                Some(best) if best > self.enough() => {}
                _ => return,
            }
        }
    }

    /// Keeps a complete choice if it is in range and better.
    fn offer(&mut self, context: &Context, capped: &Capped, picks: &[usize]) {
        let at_most = capped.value + picks.iter().zip(&capped.items).map(|(i, items)| items[*i].value).sum::<f64>();
        if at_most <= self.enough() {
            return;
        }
        let options: Vec<u16> = picks.iter().zip(&capped.items).map(|(i, items)| items[*i].option).collect();
        let choice = self.problem.choice(context, &options);
        let value = self.problem.value(&choice);
        if value > self.enough() && self.problem.is_feasible(&choice) {
            (self.best, self.value) = (Some(Choice(choice)), value);
        }
    }
}
