//! The search stage: trains router and supernet until the architecture is settled.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Compression, SearchRecipe, profile};
use crate::cost::Resource;
use crate::model::Lm;
use crate::run::Metrics;
use crate::search::{Search, SearchOptions};
use crate::train::train;
use crate::{Result, files};

const SEARCH: &str = "search/search.json";

/// `search/search.json`: what extraction reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Searched {
    pub steps: u64,
    pub tokens: u64,
    /// Whether every gate was settled before the step limit.
    pub converged: bool,
    /// Mean over the last steps, at most 25, in nats per token.
    pub distillation: f64,
    /// The leading candidate of every gate.
    pub leading: Value,
    /// Per gate ln softmax(κ·z), in the candidates' order.
    pub log_probabilities: Vec<Vec<f64>>,
}

/// Trains in `search/` and writes `search/search.json`.
pub fn run(c: &Compression) -> Result<()> {
    let targets = profile::read(c)?.targets();
    let recipe = &c.recipe.search;
    let searched = search(c, recipe, recipe.options(), &c.sorted()?, &targets, "search")?;
    files::write_json(&c.path(SEARCH), &searched)
}

/// One search of the run's space within `targets`, in `folder` of the run directory. `options` are the recipe's, or more to
/// look at; `sorted` is the sorted parent.
pub fn search(
    c: &Compression,
    recipe: &SearchRecipe,
    options: SearchOptions,
    sorted: &Lm,
    targets: &[Resource],
    folder: &str,
) -> Result<Searched> {
    let mut search = Search::new(sorted, &c.space, targets, options, recipe.training.seed)?;
    let mut progress = c.progress("search", recipe.training.steps);
    let summary =
        train(&mut search, c.source(), &recipe.training.options("search.training"), &c.run, folder, &mut progress)
            .map_err(|error| error.within(&c.recipe_path))?;
    let metrics = Metrics::open(&c.path(folder).join("metrics.jsonl"), |_| true)?;
    let last = metrics.last("distillation", 25)?;
    Ok(Searched {
        steps: summary.steps,
        tokens: summary.tokens,
        converged: summary.finished,
        distillation: last.iter().sum::<f64>() / last.len().max(1) as f64,
        leading: c.space.choice_to_json(&search.choice()?)?,
        log_probabilities: search.log_probabilities(summary.steps.saturating_sub(1))?,
    })
}

/// Reads what [`run`] left.
pub fn read(c: &Compression) -> Result<Searched> {
    files::read_json(&c.path(SEARCH), "a search's end")
}
