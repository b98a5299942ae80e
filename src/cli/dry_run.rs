use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::contract::config;
use super::output;
use crate::cost::roofline;
use crate::cost::{Contract, Prediction};
use crate::report::count;
use crate::search::{DryRun, dry_run, repair};
use crate::stages::compress::measure::{in_unit, predicted_in_unit, unit_of};
use crate::stages::compress::profile::{Profile, deployment, measured_elsewhere};
use crate::stages::compress::{Method, Recipe};
use crate::supernet::{Choice, SearchSpace, Space};
use crate::train::Progress;
use crate::{Error, Result};

/// Search a recipe's space against its limits alone, from configurations: whether the limits can be met, and what an
/// architecture within them costs. No weights, no data; times that were not measured are estimates.
#[derive(clap::Args)]
pub struct Args {
    /// A recipe (TOML). Its parent may be a bare config.json.
    recipe: PathBuf,
    /// A cost table of the deployment, instead of the recipe's profile.table. Rows that it lacks are estimated.
    #[arg(long, value_name = "CSV")]
    table: Option<PathBuf>,
    /// No progress on the terminal.
    #[arg(long)]
    quiet: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told {
    deployment: String,
    /// Of the table, and how many of them are estimates.
    times: usize,
    estimates: usize,
    architectures: f64,
    steps: u64,
    limits: Vec<Limit>,
    parameters: [u64; 2],
    active_parameters: [u64; 2],
    gates_changed: Vec<String>,
    architecture: Value,
}

/// A limit, in its unit.
#[derive(Serialize)]
struct Limit {
    resource: String,
    unit: &'static str,
    at_least: bool,
    limit: f64,
    parent: f64,
    architecture: f64,
    /// Cost over limit: the mean over the first step's draws, over the last's, of the leading candidates, and after the
    /// repair.
    rho: [f64; 4],
}

pub fn run(args: Args) -> Result<()> {
    let recipe = Recipe::from_file(&args.recipe)?;
    let contract = Contract::from_named_file(&recipe.contract)?;
    let mut parent = config(&recipe.parent)?;
    parent.mtp = None;
    let space = SearchSpace::new(&Space::from_file(recipe.space_of(Method::Search))?, &parent)?;
    let measured = args.table.or(recipe.profile.table.clone());
    if contract.is_served_here() && measured.is_none() {
        let expected =
            "expected --table RUN/cost/table.csv of a run: this program's own engine is measured, not estimated";
        return Err(Error::Usage(format!("dry-run: found no cost table, {expected}")));
    }
    let measured = measured_elsewhere(measured.as_deref(), &contract)?;
    let (table, _) = roofline::estimate(&space, &contract, &measured)?;
    let profile = Profile::of_table(&space, &contract, table)?;
    profile.check_reachable()?;
    let training = recipe.search.training.options("search.training");
    let options = recipe.search.options();
    let resources = &profile.model.resources;
    let mut progress = Progress::new("dry run", training.steps, args.quiet);
    let done = dry_run(&space, resources, &options, &training, &mut |step| progress.tick(step))
        .map_err(|error| error.within_table(&args.recipe, "search"))?;
    let told = told(&space, &profile, &done, recipe.search.delta)?;
    if args.json { output::json(&told) } else { output::line(&text(&told)) }
}

fn told(space: &SearchSpace, profile: &Profile, done: &DryRun, delta: f64) -> Result<Told> {
    let resources = &profile.model.resources;
    let repaired = repair(space, &done.log_probabilities, resources, delta)?;
    let of =
        |choice: &Choice| -> Result<_> { Ok((profile.model.predict(choice)?, space.config_of(choice)?.parameters())) };
    let (of_parent, parent): (Prediction, _) = of(&space.parent_choice())?;
    let (predicted, student) = of(&repaired.choice)?;
    let limits = resources.iter().enumerate().map(|(r, resource)| {
        let name = resource.name.as_str();
        let of = |prediction: &Prediction| predicted_in_unit(&profile.contract, name, prediction);
        Limit {
            resource: name.into(),
            unit: unit_of(name),
            at_least: name == "throughput",
            limit: in_unit(&profile.contract, name, resource.limit),
            parent: of(&of_parent),
            architecture: of(&predicted),
            rho: [done.rho[0][r], done.rho[1][r], resource.rho(&done.leading.0), repaired.rho_after[r]],
        }
    });
    let (times, estimates) = profile.table.times();
    Ok(Told {
        deployment: deployment(&profile.contract)?,
        times,
        estimates,
        // Beyond the range of floats no space is.
        architectures: space.count().to_string().parse().unwrap_or(f64::INFINITY),
        steps: done.steps,
        limits: limits.collect(),
        parameters: [parent.total, student.total],
        active_parameters: [parent.active, student.active],
        gates_changed: repaired.gates_changed,
        architecture: space.choice_to_json(&repaired.choice)?,
    })
}

fn text(told: &Told) -> String {
    let mut lines = vec![
        told.deployment.clone(),
        format!(
            "{:.2e} architectures; {} steps of the router against the limits alone, no weights; {} of {} times are estimates.",
            told.architectures, told.steps, told.estimates, told.times
        ),
        format!(
            "{:<10} {:>14} {:>14} {:>14}   cost / limit: first step, last, leading, repaired",
            "", "limit", "parent", "architecture"
        ),
    ];
    for limit in &told.limits {
        let value = |value: f64| format!("{value:.1} {}", limit.unit);
        let bound = format!("{} {}", if limit.at_least { "≥" } else { "≤" }, value(limit.limit));
        let [first, last, leading, repaired] = limit.rho;
        lines.push(format!(
            "{:<10} {bound:>14} {:>14} {:>14}   {first:.3}, {last:.3}, {leading:.3}, {repaired:.3}",
            limit.resource,
            value(limit.parent),
            value(limit.architecture)
        ));
    }
    let of = |[parent, student]: [u64; 2]| format!("{} of {}", count(student), count(parent));
    lines.push(format!(
        "parameters {}, active {}; {} gates changed by the repair",
        of(told.parameters),
        of(told.active_parameters),
        told.gates_changed.len()
    ));
    lines.push("Chosen by its cost alone; its quality was not considered.".into());
    lines.join("\n")
}
