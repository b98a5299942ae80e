//! Extraction: the most probable architecture within the limits, or the one that screened best, cut out of the sorted parent
//! and measured before it is trained any further.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::measure::{in_unit, judge, unit_of};
use super::profile::Profile;
use super::{Compression, Method, card, profile, screen, search};
use crate::cost::{Resource, measure};
use crate::model::Lm;
use crate::report::{LimitResult, RoundResult};
use crate::search::{Repair, repair};
use crate::supernet::{Choice, extract};
use crate::{Error, Result, files};

const EXTRACT: &str = "extract/extract.json";

/// `extract/extract.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    architecture: Value,
    rho_before: BTreeMap<String, f64>,
    rho_after: BTreeMap<String, f64>,
    gates_changed: Vec<String>,
    gap: f64,
    rounds: Vec<RoundResult>,
}

/// The architecture, and how it was found.
pub struct Extracted {
    pub choice: Choice,
    /// Cost / target of the leading candidates, by resource.
    pub rho_before: BTreeMap<String, f64>,
    pub rho_after: BTreeMap<String, f64>,
    /// Names of the gates whose candidate is not the leading one.
    pub gates_changed: Vec<String>,
    /// One per measurement.
    pub rounds: Vec<RoundResult>,
}

/// What architectures are chosen from.
enum Chooser {
    /// Every gate's log-probabilities, through the repair.
    Repair(Vec<Vec<f64>>),
    /// The best first.
    Ranked(Vec<Choice>),
}

impl Chooser {
    fn of(c: &Compression) -> Result<Chooser> {
        Ok(match c.method {
            Method::Search => Chooser::Repair(search::read(c)?.log_probabilities),
            Method::Minitron => Chooser::Ranked(screen::ranked(c)?),
        })
    }

    /// The best architecture within the targets.
    fn choose(&self, c: &Compression, targets: &[Resource]) -> Result<Repair> {
        match self {
            Chooser::Repair(probabilities) => repair(&c.space, probabilities, targets, c.recipe.search.delta),
            Chooser::Ranked(choices) => {
                let rho = |choice: &Choice| -> Vec<f64> { targets.iter().map(|t| t.rho(&choice.0)).collect() };
                let best = choices.iter().find(|choice| rho(choice).iter().all(|rho| *rho <= 1.0));
                best.map(|choice| Repair::unchanged(choice.clone(), rho(choice))).ok_or_else(|| {
                    Error::contract("extract", "screened architectures", "none within the targets", "at least one")
                })
            }
        }
    }
}

/// Chooses, cuts out and measures; where the measured student is over a limit, tightens the target by the ratio and chooses
/// again, as often as the recipe says. Writes `student/` and `extract/extract.json`.
pub fn run(c: &Compression) -> Result<()> {
    let profile = profile::read_here(c)?;
    let chooser = Chooser::of(c)?;
    let sorted = c.sorted()?;
    let mut targets = profile.targets();
    if matches!(chooser, Chooser::Ranked(_)) && chooser.choose(c, &targets).is_err() {
        // No uniform architecture leaves the margin: the screening was held to the limits themselves.
        targets = profile.model.resources.clone();
    }
    let mut repaired = chooser.choose(c, &targets)?;
    let (mut student, mut round) = attempt(c, &profile, &sorted, &targets, &repaired)?;
    let mut rounds = Vec::new();
    while !round.met && rounds.len() < c.recipe.measure.rounds {
        let tighter: Vec<Resource> = targets.iter().map(|t| tighten(t, &round, c.recipe.search.delta)).collect();
        rounds.push(round);
        let Ok(again) = chooser.choose(c, &tighter) else {
            tracing::warn!("the measured student is over a limit, and no smaller architecture is left");
            round = rounds.pop().unwrap_or_else(|| unreachable!("pushed above"));
            break;
        };
        (targets, repaired) = (tighter, again);
        (student, round) = attempt(c, &profile, &sorted, &targets, &repaired)?;
    }
    rounds.push(round);
    c.save("student", &student)?;
    let by_name = |rho: &[f64]| targets.iter().map(|t| t.name.clone()).zip(rho.iter().copied()).collect();
    c.run.folder("extract")?;
    let stored = Stored {
        architecture: c.space.choice_to_json(&repaired.choice)?,
        rho_before: by_name(&repaired.rho_before),
        rho_after: by_name(&repaired.rho_after),
        gates_changed: repaired.gates_changed.clone(),
        gap: repaired.gap,
        rounds,
    };
    files::write_json(&c.path(EXTRACT), &stored)?;
    card::write(c, "student", None)
}

/// Cuts a repaired architecture out and measures it beside the parent, where it can be measured.
fn attempt(
    c: &Compression,
    profile: &Profile,
    sorted: &Lm,
    targets: &[Resource],
    repaired: &Repair,
) -> Result<(Lm, RoundResult)> {
    let student = extract(sorted, &c.space, &repaired.choice)?;
    if !c.contract.is_served_here() {
        let round = predicted_round(c, profile, targets, repaired)?;
        return Ok((student, round));
    }
    let measured = measure(&[&c.parent, &student], &c.contract, c.recipe.measure.repeats)?;
    let predicted = [&c.space.parent_choice(), &repaired.choice].map(|choice| profile.model.predict(choice));
    let [parent, predicted] = predicted;
    let judged = judge(&c.contract, [&parent?, &predicted?], [&measured[0], &measured[1]]);
    let map = |of: &dyn Fn(&LimitResult) -> f64| judged.iter().map(|j| (j.resource.clone(), of(j))).collect();
    let target = |j: &LimitResult| {
        let target = targets.iter().find(|t| t.name == j.resource).map_or(f64::NAN, |t| t.limit);
        in_unit(&c.contract, &j.resource, target)
    };
    let round = RoundResult {
        target: map(&target),
        predicted: map(&|j| j.student_predicted),
        measured: map(&|j| j.student_measured),
        limit: map(&|j| j.limit),
        met: judged.iter().all(|j| j.met),
        gates_changed: repaired.gates_changed.len(),
    };
    Ok((student, round))
}

/// Of a deployment that is not at hand: what the cost model predicts, and nothing measured.
fn predicted_round(c: &Compression, profile: &Profile, targets: &[Resource], repaired: &Repair) -> Result<RoundResult> {
    let map = |resources: &[Resource], of: &dyn Fn(&Resource) -> f64| {
        resources.iter().map(|r| (r.name.clone(), in_unit(&c.contract, &r.name, of(r)))).collect()
    };
    let limits = &profile.model.resources;
    Ok(RoundResult {
        target: map(targets, &|r| r.limit),
        predicted: map(limits, &|r| r.rho(&repaired.choice.0) * r.limit),
        measured: BTreeMap::new(),
        limit: map(limits, &|r| r.limit),
        met: limits.iter().all(|r| r.rho(&repaired.choice.0) <= 1.0),
        gates_changed: repaired.gates_changed.len(),
    })
}

/// The target, smaller by what the measured student was over the limit and by `delta`: just on the limit, the next
/// measurement would be over it every other time.
fn tighten(target: &Resource, round: &RoundResult, delta: f64) -> Resource {
    let over = match (round.measured.get(&target.name), round.limit.get(&target.name)) {
        (Some(measured), Some(limit)) if target.name == "throughput" => limit / measured,
        (Some(measured), Some(limit)) => measured / limit,
        _ => 1.0,
    };
    let factor = if over > 1.0 { over / (1.0 - delta) } else { 1.0 };
    Resource { limit: target.limit / factor, ..target.clone() }
}

/// A limit, and what the cost model predicts of the student, in the limit's unit.
#[derive(Clone, Debug, Serialize)]
pub struct Predicted {
    pub resource: String,
    pub unit: &'static str,
    pub at_least: bool,
    pub limit: f64,
    pub predicted: f64,
}

impl fmt::Display for Predicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Predicted { resource, unit, at_least, limit, predicted } = self;
        let most = if *at_least { "at least" } else { "at most" };
        write!(f, "{resource}: predicted {predicted:.4} {unit} of {most} {limit:.4} {unit}, not measured")
    }
}

/// What is predicted of the architecture that was cut out last.
pub fn predicted(c: &Compression) -> Result<Vec<Predicted>> {
    let rounds = read(c)?.rounds;
    let limits = rounds.last().map(|round| {
        round.limit.iter().map(|(resource, limit)| Predicted {
            resource: resource.clone(),
            unit: unit_of(resource),
            at_least: resource == "throughput",
            limit: *limit,
            predicted: round.predicted.get(resource).copied().unwrap_or(f64::NAN),
        })
    });
    Ok(limits.into_iter().flatten().collect())
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Extracted> {
    let path = c.path(EXTRACT);
    let stored: Stored = files::read_json(&path, "an extracted architecture")?;
    Ok(Extracted {
        choice: c.space.choice_from_json(&path, &stored.architecture)?,
        rho_before: stored.rho_before,
        rho_after: stored.rho_after,
        gates_changed: stored.gates_changed,
        rounds: stored.rounds,
    })
}
