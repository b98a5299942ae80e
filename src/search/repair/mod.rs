//! From probabilities to one architecture within the limits (docs/method.md, "Extraction and recovery").
//!
//! The leading candidates of all gates need not meet the limits, which the search holds in expectation alone. The repair is
//! the exact answer to: which architecture has the largest sum of the gates' log-probabilities, every ρ ≤ 1 and, where that
//! can be, the largest ρ at least 1 − δ?

mod beam;
mod dual;
mod problem;
mod solve;

use problem::{Objective, Problem, Range};
use solve::{Solution, solve};

use super::router::argmax;
use crate::cost::Resource;
use crate::supernet::{Choice, SearchSpace};
use crate::{Error, Result};

/// An architecture within the limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    pub choice: Choice,
    /// Cost over limit of the leading candidates, per resource.
    pub rho_before: Vec<f64>,
    /// Of `choice`.
    pub rho_after: Vec<f64>,
    /// Σ of the gates' log-probabilities of the leading candidates.
    pub log_probability_before: f64,
    /// Of `choice`.
    pub log_probability_after: f64,
    /// The names of gates whose candidate is not the leading one.
    pub gates_changed: Vec<String>,
    /// No architecture within the limits exceeds `log_probability_after` by more: 0 where it is the optimum, as it is
    /// unless a very large problem met the bound on memory.
    pub gap: f64,
}

impl Repair {
    /// A choice that is left as it is, with its costs over the limits.
    pub fn unchanged(choice: Choice, rho: Vec<f64>) -> Repair {
        Repair {
            choice,
            rho_before: rho.clone(),
            rho_after: rho,
            log_probability_before: 0.0,
            log_probability_after: 0.0,
            gates_changed: Vec::new(),
            gap: 0.0,
        }
    }
}

/// The architecture that maximises Σ over gates of `log_probabilities` (`[gates][C]`), subject to every ρ ≤ 1 and, if any
/// architecture can, max ρ ≥ 1 − `delta`. Where F = 0 the E gate keeps its leading candidate: it changes nothing.
///
/// # Errors
/// [`Error::Unreachable`] where no architecture meets all limits; [`Error::Contract`] where the arguments do not fit the
/// space.
pub fn repair(
    space: &SearchSpace,
    log_probabilities: &[Vec<f64>],
    resources: &[Resource],
    delta: f64,
) -> Result<Repair> {
    check(space, log_probabilities, resources)?;
    let leading = Choice(log_probabilities.iter().map(|p| argmax(p)).collect());
    let rho = |choice: &Choice| -> Vec<f64> { resources.iter().map(|r| r.rho(&choice.0)).collect() };
    let value = |choice: &Choice| choice.0.iter().zip(log_probabilities).map(|(c, p)| p[*c]).sum::<f64>();
    let used = |choice: &Choice| rho(choice).into_iter().fold(0.0, f64::max) >= 1.0 - delta;
    let counts = counts(resources);
    let solve = |objective, ranges: Vec<Range>, known: f64| -> Result<Option<Solution>> {
        let mut best: Option<Solution> = None;
        // What was left out under one number of kept layers may be better than what another has.
        let mut gap_to = f64::NEG_INFINITY;
        for (resources, exact) in &counts {
            let ranges = ranges.iter().chain(exact).copied().collect();
            let problem = Problem::new(space, log_probabilities, resources, objective, ranges)?;
            let known = best.as_ref().map_or(known, |best| best.value);
            if let Some(found) = solve(&problem, known) {
                gap_to = gap_to.max(found.value + found.gap);
                best = Some(found);
            }
        }
        Ok(best.map(|best| Solution { gap: (gap_to - best.value).max(0.0), ..best }))
    };
    let within = vec![Range::AT_MOST_1; resources.len()];

    let Some(mut solution) = solve(Objective::LogProbability, within.clone(), f64::NEG_INFINITY)? else {
        let solve = |objective, ranges| solve(objective, ranges, f64::NEG_INFINITY);
        return Err(unreachable_limit(space, resources, &solve)?);
    };
    if !resources.is_empty() && !used(&solution.choice) {
        let mut best: Option<Solution> = None;
        for r in 0..resources.len() {
            let mut ranges = within.clone();
            ranges[r].low = 1.0 - delta;
            let known = best.as_ref().map_or(f64::NEG_INFINITY, |best| best.value);
            best = solve(Objective::LogProbability, ranges, known)?.or(best);
        }
        solution = best.unwrap_or(solution);
    }

    let changed = space.gates.iter().zip(solution.choice.0.iter().zip(&leading.0)).filter(|(_, (a, b))| a != b);
    Ok(Repair {
        rho_before: rho(&leading),
        rho_after: rho(&solution.choice),
        log_probability_before: value(&leading),
        log_probability_after: value(&solution.choice),
        gates_changed: changed.map(|(gate, _)| gate.name.clone()).collect(),
        gap: solution.gap,
        choice: solution.choice,
    })
}

/// The resources as sums over layers, one set for every number of kept layers where a resource depends on that, with the
/// number as one more resource that must be met exactly.
fn counts(resources: &[Resource]) -> Vec<(Vec<Resource>, Option<Range>)> {
    let Some(counting) = resources.iter().position(|resource| resource.counted.is_some()) else {
        return vec![(resources.to_vec(), None)];
    };
    let layers = resources[counting].counted.as_ref().map_or(0, |counted| counted.kept.len());
    let with = |kept: usize| {
        let mut sums: Vec<Resource> = resources.to_vec();
        let mut number = None;
        for sum in &mut sums {
            if let Some((resource, kept)) = sum.with_kept(kept) {
                (*sum, number) = (resource, Some(kept));
            }
        }
        sums.extend(number);
        let exactly = kept as f64;
        (sums, Some(Range { low: exactly, high: exactly }))
    };
    (0..=layers).map(with).collect()
}

/// Which limit cannot be met: one that no architecture meets, or, where each can be met alone, the one that comes closest
/// while the others hold.
fn unreachable_limit(
    space: &SearchSpace,
    resources: &[Resource],
    solve: &dyn Fn(Objective, Vec<Range>) -> Result<Option<Solution>>,
) -> Result<Error> {
    let smallest = |r: usize, others: Range| -> Result<Option<Choice>> {
        let mut ranges = vec![others; resources.len()];
        ranges[r] = Range::ANY;
        Ok(solve(Objective::Cost(r), ranges)?.map(|solution| solution.choice))
    };
    let mut closest: Option<(usize, Choice)> = None;
    let mut kept = Vec::new();
    for others in [Range::ANY, Range::AT_MOST_1] {
        for r in 0..resources.len() {
            let Some(choice) = smallest(r, others)? else { continue };
            let rho = resources[r].rho(&choice.0);
            if rho > 1.0 && closest.as_ref().is_none_or(|(s, best)| rho < resources[*s].rho(&best.0)) {
                closest = Some((r, choice));
            }
        }
        if let Some((r, _)) = &closest {
            let held = resources.iter().enumerate().filter(|(other, _)| others.is_bound() && other != r);
            kept.extend(held.map(|(_, resource)| resource.name.clone()));
            break;
        }
    }
    let Some((r, choice)) = closest else {
        return Err(Error::contract(
            "repair",
            "limits",
            "no architecture",
            "at least one that meets all limits but one",
        ));
    };
    resources[r].unreachable(space, &choice, kept)
}

fn check(space: &SearchSpace, log_probabilities: &[Vec<f64>], resources: &[Resource]) -> Result<()> {
    let candidates: Vec<usize> = space.gates.iter().map(|gate| gate.candidates.len()).collect();
    let found: Vec<usize> = log_probabilities.iter().map(Vec::len).collect();
    let expected = || format!("{candidates:?}, the search space's");
    if found != candidates {
        return Err(Error::contract("repair", "log-probabilities", found, expected()));
    }
    if log_probabilities.iter().flatten().any(|p| !p.is_finite() || *p > 1e-9) {
        return Err(Error::contract("repair", "log-probabilities", "not finite or above 0", "finite, at most 0"));
    }
    match resources.iter().find(|resource| resource.candidates != candidates) {
        Some(resource) => Err(Error::contract("repair", "candidates of a resource", &resource.candidates, expected())),
        None => Ok(()),
    }
}
