//! Profiling: the cost table of the search space on the deployment, and how far its predictions are from whole models.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::measure::{in_unit, unit_of};
use super::{Compression, ProfileRecipe};
use crate::cost::roofline;
use crate::cost::{
    self, Contract, CostModel, Dummy, Elsewhere, Errors, Limits, Measurement, Origin, ProfileOptions, Resource, Table,
    Validation, compare,
};
use crate::device::{self, MeasuredOn, memory};
use crate::model::Lm;
use crate::search::repair;
use crate::supernet::{Choice, SearchSpace};
use crate::{Error, Result, files};

const TABLE: &str = "cost/table.csv";
const PROFILE: &str = "cost/profile.json";

/// `cost/profile.json`: whole models as they were measured after the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WholeModels {
    /// Also of the table. Before it was told, all was measured on the CPU.
    #[serde(default)]
    measured_on: MeasuredOn,
    parent: Measurement,
    held_out: Vec<WholeModel>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct WholeModel {
    architecture: Value,
    measured: Measurement,
}

/// What a profile rests on.
pub enum Basis {
    /// The table was measured here, and is held against whole models that were measured after it.
    Here {
        measured_on: MeasuredOn,
        /// The parent, then the held-out architectures.
        choices: Vec<Choice>,
        validation: Box<Validation>,
    },
    /// The table is of a deployment that is not at hand; [`Table::times`] tells how many of its times are estimates.
    Elsewhere,
}

impl Basis {
    pub fn validation(&self) -> Option<&Validation> {
        match self {
            Basis::Here { validation, .. } => Some(validation),
            Basis::Elsewhere => None,
        }
    }
}

/// What profiling found.
pub struct Profile {
    /// With every limit as a number: a share is of the parent's prediction, so that both sides are of the table's time.
    pub contract: Contract,
    pub model: CostModel,
    pub table: Table,
    pub basis: Basis,
    /// As the contract was written.
    shares: Limits,
}

impl Profile {
    /// By a table of a deployment that is not at hand.
    pub fn of_table(space: &SearchSpace, contract: &Contract, table: Table) -> Result<Profile> {
        let shares = contract.limits;
        let (contract, model) = resolve(space, contract, &table)?;
        Ok(Profile { contract, model, table, basis: Basis::Elsewhere, shares })
    }

    /// The same measurements under a contract that differs in its limits alone.
    pub fn under(self, c: &Compression, limits: &Contract) -> Result<Profile> {
        let (contract, model) = resolve(&c.space, limits, &self.table)?;
        Ok(Profile { contract, model, shares: limits.limits, ..self })
    }

    /// By resource: the 95th percentile of [`Profile::errors`].
    pub fn margins(&self) -> BTreeMap<String, f64> {
        self.errors().into_iter().map(|(name, errors)| (name, errors.q95)).collect()
    }

    /// By resource: relative errors on whole models; none where no models were measured. Where a limit is a share of the
    /// parent's time, student and parent are measured together, and what the machine has become slower or faster by does not
    /// count.
    pub fn errors(&self) -> BTreeMap<String, Errors> {
        let Some(validation) = self.basis.validation() else { return BTreeMap::new() };
        let of = |resource: &Resource| match resource.name.as_str() {
            "memory" => validation.memory,
            name if self.is_share(name) => validation.request_less_drift,
            _ => validation.request,
        };
        self.model.resources.iter().map(|resource| (resource.name.clone(), of(resource))).collect()
    }

    /// Whether a limit is a share of the parent's.
    fn is_share(&self, resource: &str) -> bool {
        share_of(&self.shares, resource).is_some()
    }

    /// What predictions of times are to be multiplied with where they stand beside what was measured with whole models: 1
    /// unless all limits of times are shares.
    pub fn drift(&self) -> f64 {
        let times = self.model.resources.iter().filter(|resource| resource.name != "memory");
        let shares = times.clone().all(|resource| self.is_share(&resource.name));
        let drift = self.basis.validation().filter(|_| shares && times.count() > 0).map(|validation| validation.drift);
        drift.unwrap_or(1.0)
    }

    /// What architectures are chosen by: the resources with limits that leave the margin, limit / (1 + q), or the limits
    /// themselves where no architecture leaves it.
    pub fn targets(&self) -> Vec<Resource> {
        let margins = self.margins();
        let tighten = |resource: &Resource| {
            let margin = margins.get(&resource.name).copied().unwrap_or(0.0);
            Resource { limit: resource.limit / (1.0 + margin), ..resource.clone() }
        };
        let targets: Vec<Resource> = self.model.resources.iter().map(tighten).collect();
        if smallest(self.model.space(), &targets).is_err() { self.model.resources.clone() } else { targets }
    }

    /// Refuses limits that no architecture meets.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the contract's key, in the key's unit.
    pub fn check_reachable(&self) -> Result<()> {
        smallest(self.model.space(), &self.model.resources).map_err(|error| self.as_written(error))
    }

    /// An unreachable limit of the cost model, seconds or bytes, as the contract says it.
    pub fn as_written(&self, error: Error) -> Error {
        let Error::Unreachable { resource, limit, smallest, kept, architecture, .. } = error else { return error };
        let key = |resource: &str| limit_key(resource, self.is_share(resource));
        let mut unit = unit_of(&resource).to_owned();
        let [mut limit, mut smallest] = [limit, smallest].map(|cost| in_unit(&self.contract, &resource, cost));
        if let Some(share) = share_of(&self.shares, &resource) {
            let parent = limit / share;
            unit = format!("of the parent's {} {unit}", rounded(parent));
            (limit, smallest) = (share, smallest / parent);
        }
        Error::Unreachable {
            resource: format!("{}: {}", self.contract.file.display(), key(&resource)),
            unit,
            limit: rounded(limit),
            smallest: rounded(smallest),
            at_least: resource == "throughput",
            kept: kept.iter().map(|resource| key(resource)).collect(),
            architecture,
        }
    }
}

/// Measures the table, then the parent and held-out architectures as whole models. Of a deployment that is not at hand, takes
/// what was measured there and estimates the rest.
pub fn run(c: &Compression) -> Result<()> {
    if !c.contract.is_served_here() {
        return take(c);
    }
    let recipe = &c.recipe.profile;
    let options = ProfileOptions {
        repeats: recipe.repeats,
        layers_per_run: recipe.layers_per_run,
        starts: recipe.starts,
        seed: recipe.seed,
    };
    let folder = c.run.folder("cost")?;
    let mut bar: Option<crate::train::Progress> = None;
    let mut progress = |done: usize, all: usize| {
        bar.get_or_insert_with(|| c.progress("profile", all as u64)).tick(done as u64);
    };
    let table = cost::profile(&c.space, &c.contract, &options, &folder.join("runs.jsonl"), &mut progress)?;
    table.save(&c.path(TABLE))?;

    let choices = held_out(&c.space, recipe);
    let dummies = choices.iter().skip(1).map(|choice| Dummy::new(&c.space.config_of(choice)?));
    let dummies: Vec<Dummy> = dummies.collect::<Result<_>>()?;
    let models: Vec<&Lm> = std::iter::once(&c.parent).chain(dummies.iter().map(|dummy| &dummy.lm)).collect();
    let mut measured = cost::measure(&models, &c.contract, recipe.held_out_repeats)?;
    let rest = measured.split_off(1);
    let whole = |(choice, measured): (&Choice, Measurement)| {
        Ok(WholeModel { architecture: c.space.choice_to_json(choice)?, measured })
    };
    let held_out = choices[1..].iter().zip(rest).map(whole).collect::<Result<_>>()?;
    let whole = WholeModels { measured_on: MeasuredOn::current(), parent: measured[0], held_out };
    files::write_json(&c.path(PROFILE), &whole)?;
    read(c)?.check_reachable()
}

fn take(c: &Compression) -> Result<()> {
    let measured = measured_elsewhere(c.recipe.profile.table.as_deref(), &c.contract)?;
    let (table, _) = roofline::estimate(&c.space, &c.contract, &measured)?;
    c.run.folder("cost")?;
    table.save(&c.path(TABLE))?;
    let profile = Profile::of_table(&c.space, &c.contract, table)?;
    let (times, estimates) = profile.table.times();
    let deployment = deployment(&c.contract)?;
    let device = c.contract.device.name();
    files::write_json(&c.path(PROFILE), &Elsewhere { deployment, device, times, estimates })?;
    profile.check_reachable()
}

/// The rows of a table of the contract's deployment; none where there is no table.
///
/// # Errors
/// Those of [`Table::from_file`] and of [`Origin::check`].
pub fn measured_elsewhere(table: Option<&Path>, contract: &Contract) -> Result<Table> {
    let Some(path) = table else { return Ok(Table::default()) };
    let table = Table::from_file(path)?;
    Origin::check(path, contract)?;
    Ok(table)
}

/// A contract's deployment in words.
pub fn deployment(contract: &Contract) -> Result<String> {
    Ok(contract.explain(None, None)?.words.into_iter().next().unwrap_or_default())
}

/// The share of the parent's that a resource is limited to, where it is.
fn share_of(limits: &Limits, resource: &str) -> Option<f64> {
    match resource {
        "latency" => limits.latency_of_parent,
        "memory" => limits.memory_of_parent,
        _ => limits.throughput_of_parent,
    }
}

/// The contract's key of a limit.
fn limit_key(resource: &str, is_share: bool) -> String {
    let key = match (resource, is_share) {
        ("latency", false) => "latency_ms",
        ("memory", false) => "memory_mib",
        (name, false) => name,
        (name, true) => return format!("limits.{name}_of_parent"),
    };
    format!("limits.{key}")
}

/// Six significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The parent and random architectures by the recipe's seed, those of the table's own starts not among them.
fn held_out(space: &SearchSpace, recipe: &ProfileRecipe) -> Vec<Choice> {
    let first = recipe.seed.wrapping_add(1 << 32);
    let random = (0..recipe.held_out as u64).map(|i| space.random(first.wrapping_add(i)));
    // One without any layer is no model.
    let models = random.filter(|choice| space.config_of(choice).is_ok());
    std::iter::once(space.parent_choice()).chain(models).collect()
}

/// Bytes of the weights of all whole models that are measured in turn, the parent apart.
pub fn held_out_bytes(space: &SearchSpace, recipe: &ProfileRecipe) -> Option<u64> {
    weight_bytes(space, &held_out(space, recipe)[1..])
}

/// In f32.
fn weight_bytes(space: &SearchSpace, choices: &[Choice]) -> Option<u64> {
    let parameters = choices.iter().map(|choice| space.config_of(choice).map_or(0, |c| c.parameters().total));
    parameters.into_iter().try_fold(0u64, |sum, parameters| sum.checked_add(parameters.checked_mul(4)?))
}

/// Fails with the smallest cost where no architecture meets the limits.
fn smallest(space: &SearchSpace, resources: &[Resource]) -> Result<()> {
    let even = |count: usize| vec![-(count as f64).ln(); count];
    let probabilities: Vec<Vec<f64>> = space.gates.iter().map(|gate| even(gate.candidates.len())).collect();
    // δ = 1: how much of the limits is used does not matter here.
    repair(space, &probabilities, resources, 1.0).map(drop)
}

/// The contract with its shares as numbers, and the cost model that holds them.
fn resolve(space: &SearchSpace, contract: &Contract, table: &Table) -> Result<(Contract, CostModel)> {
    let parent = CostModel::new(space, contract, table)?.predict(&space.parent_choice())?;
    if parent.request_seconds <= 0.0 {
        let found = format!("a request of {} seconds", parent.request_seconds);
        return Err(Error::Usage(format!("the cost table's parent: found {found}, expected a time above 0")));
    }
    let resolved = contract.resolve(parent.request_seconds, parent.memory_bytes);
    let model = CostModel::new(space, &resolved, table)?;
    Ok((resolved, model))
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Profile> {
    let table = Table::from_file(&c.path(TABLE))?;
    if !c.contract.is_served_here() {
        return Profile::of_table(&c.space, &c.contract, table);
    }
    let (contract, model) = resolve(&c.space, &c.contract, &table)?;
    let shares = c.contract.limits;
    let whole: WholeModels = files::read_json(&c.path(PROFILE), "measurements of whole models")?;
    let mut choices = vec![c.space.parent_choice()];
    let mut measured = vec![whole.parent];
    for model in whole.held_out {
        choices.push(c.space.choice_from_json(&c.path(PROFILE), &model.architecture)?);
        measured.push(model.measured);
    }
    let predicted = choices.iter().map(|choice| model.predict(choice)).collect::<Result<Vec<_>>>()?;
    let validation = compare(predicted.into_iter().zip(measured).collect());
    let validation = Box::new(validation);
    let basis = Basis::Here { measured_on: whole.measured_on, choices, validation };
    Ok(Profile { contract, model, table, basis, shares })
}

/// [`read`], to measure against.
///
/// # Errors
/// [`Error::Input`] where the table was measured here, but on another device than models would be now.
pub fn read_here(c: &Compression) -> Result<Profile> {
    let profile = read(c)?;
    if let Basis::Here { measured_on, .. } = &profile.basis {
        hold_to_here(&c.path(PROFILE), measured_on)?;
    }
    Ok(profile)
}

/// Refuses the table of the run directory `run` where it was measured here, but on another device than models would be now.
pub fn check_device(run: &Path) -> Result<()> {
    let file = run.join(PROFILE);
    match Origin::of_profile(&file)? {
        Origin::Here(measured_on) => hold_to_here(&file, &measured_on),
        _ => Ok(()),
    }
}

fn hold_to_here(file: &Path, measured_on: &MeasuredOn) -> Result<()> {
    let now = MeasuredOn::current();
    if *measured_on == now {
        return Ok(());
    }
    let found = format!("a cost table of {measured_on}");
    let expected = format!("one of {now}, where models are measured now, or the --device and --precision of the table");
    Err(Error::input(file, "measured_on", found, expected))
}

/// Compares predictions with `count` complete architectures drawn by `seed`, measured now; the parent, and the student
/// where there is one, are among them.
pub fn validate(c: &Compression, count: usize, seed: u64, repeats: usize) -> Result<(Vec<Choice>, Validation)> {
    c.contract.measured_here()?;
    let profile = read_here(c)?;
    let mut choices = vec![c.space.parent_choice()];
    if c.is_complete(super::Stage::Extract)? {
        choices.push(super::extract::read(c)?.choice);
    }
    let mut draw = 0;
    while choices.len() < count {
        let choice = c.space.random(seed.wrapping_add(draw).wrapping_add(1 << 48));
        if c.space.config_of(&choice).is_ok() {
            choices.push(choice);
        }
        draw += 1;
    }
    if device::current().is_none() {
        memory::require("--architectures", weight_bytes(&c.space, &choices))?;
    }
    let validation = cost::validate(&profile.model, &c.contract, &choices, repeats)?;
    Ok((choices, validation))
}
