//! From probabilities to one architecture within the limits (METHOD, "Extraction and recovery").
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
    let problem = |objective, ranges: Vec<Range>| Problem::new(space, log_probabilities, resources, objective, ranges);
    let within = vec![Range::AT_MOST_1; resources.len()];

    let most_probable = problem(Objective::LogProbability, within.clone())?;
    let Some(mut solution) = solve(&most_probable, f64::NEG_INFINITY) else {
        return Err(unreachable_limit(space, resources, &|objective, ranges| problem(objective, ranges))?);
    };
    if !resources.is_empty() && !used(&solution.choice) {
        let mut best: Option<Solution> = None;
        for r in 0..resources.len() {
            let mut ranges = within.clone();
            ranges[r].low = 1.0 - delta;
            let known = best.as_ref().map_or(f64::NEG_INFINITY, |best| best.value);
            best = solve(&problem(Objective::LogProbability, ranges)?, known).or(best);
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

/// Which limit cannot be met: one that no architecture meets, or, where each can be met alone, the one that comes closest
/// while the others hold.
fn unreachable_limit(
    space: &SearchSpace,
    resources: &[Resource],
    problem: &dyn Fn(Objective, Vec<Range>) -> Result<Problem>,
) -> Result<Error> {
    let smallest = |r: usize, others: Range| -> Result<Option<Choice>> {
        let mut ranges = vec![others; resources.len()];
        ranges[r] = Range::ANY;
        Ok(solve(&problem(Objective::Cost(r), ranges)?, f64::NEG_INFINITY).map(|solution| solution.choice))
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
    let resource = &resources[r];
    Ok(Error::Unreachable {
        resource: resource.name.clone(),
        unit: resource.unit.clone(),
        limit: resource.limit,
        smallest: resource.cost(&choice.0),
        at_least: false,
        kept,
        architecture: space.choice_to_json(&choice)?.to_string(),
    })
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
