//! The students' model cards: written where a student is made, and again when more about it is known.

use std::collections::BTreeMap;

use super::measure::unit_of;
use super::profile::Basis;
use super::{Compression, Method, extract, profile, recover, screen, search};
use crate::model::config::Layer;
use crate::report::{
    CardLimit, CardRow, FrontMatter, LimitResult, ModelCard, Quality, RoundResult, Training, base_model, inherited,
    loading, plain,
};
use crate::{Result, files};

/// The file beside a student's weights.
pub const CARD: &str = "README.md";

/// What was measured beyond the extraction, where that is done.
#[derive(Clone, Copy)]
pub struct Known<'k> {
    pub limits: &'k [LimitResult],
    pub quality: &'k Quality,
}

/// Writes the card of the student in `folder`: `student` as it was cut out, or `recovered`.
pub fn write(c: &Compression, folder: &str, known: Option<Known<'_>>) -> Result<()> {
    let text = card(c, folder == "recovered", known)?.markdown();
    files::write_atomic(&c.path(folder).join(CARD), |file| file.write_all(text.as_bytes()))
}

fn card(c: &Compression, recovered: bool, known: Option<Known<'_>>) -> Result<ModelCard> {
    let extracted = extract::read(c)?;
    let config = c.space.config_of(&extracted.choice)?;
    let kept: BTreeMap<usize, Layer> = c.space.layers_of(&extracted.choice)?.into_iter().collect();
    let parent = &c.space.parent;
    let name = base_model(&c.recipe.parent, &parent.json);
    let shown = plain(&name);
    let is_puzzle = config.to_json()?["model_type"] == "nemotron_h_puzzle";
    let (limits, measured) = match known.filter(|_| recovered) {
        Some(known) => (known.limits.iter().map(of_limit).collect(), "Measured after recovery, beside the parent"),
        None => (extracted.rounds.last().map_or(Vec::new(), of_round), "Measured as cut out, before recovery"),
    };
    let readme = c.recipe.parent.join(CARD);
    let readme = if readme.is_file() { files::read_text(&readme)? } else { String::new() };
    let [before, after] = [parent, &config].map(|config| config.parameters());
    let profile = profile::read(c)?;
    let mut contract = c.contract.explain(None, None)?.words;
    let mut measured = measured.to_owned();
    match &profile.basis {
        Basis::Here { measured_on: on, .. } if !on.is_cpu() => {
            measured += &format!(", on {on}");
            // What the contract's device is put aside for.
            if let Some(served) = contract.first_mut() {
                *served = format!("Served by this program's own engine on {on}.");
            }
        }
        Basis::Here { .. } => {}
        Basis::Elsewhere => {
            let (times, estimates) = profile.table.times();
            measured = format!("Predicted by a cost table of which {estimates} of {times} times are estimates");
        }
    }
    let state = if recovered {
        "cut out of the parent and recovered by distillation"
    } else {
        "as it was cut out of the parent: it is meant to be recovered before it is used"
    };
    Ok(ModelCard {
        front_matter: FrontMatter {
            base_model: name.clone(),
            relation: None,
            library: if is_puzzle { "vllm" } else { "transformers" },
            tags: tags(is_puzzle),
            inherited: inherited(&readme).0,
        },
        title: format!("{shown}, compressed"),
        summary: format!("A student of {shown} that fits a deployment, {state}."),
        contract,
        measured,
        limits,
        parameters: [before.total, after.total],
        active_parameters: [before.active, after.active],
        hidden_size: [parent.hidden_size, config.hidden_size],
        layers: parent.layers.iter().enumerate().map(|(i, layer)| card_row(layer, kept.get(&i))).collect(),
        quality: known.map(|known| known.quality.clone()),
        trainings: trainings(c, recovered)?,
        notes: notes(c, &extracted)?,
        version: env!("CARGO_PKG_VERSION").into(),
        recipe: files::read_text(&c.recipe_path)?,
        contract_text: files::read_text(&c.recipe.contract)?,
        inputs: c.inputs.iter().map(|(name, digest)| (short_name(name), digest.clone())).collect(),
        loading: loading(is_puzzle, false),
    })
}

fn tags(is_puzzle: bool) -> Vec<String> {
    let model_type = if is_puzzle { "nemotron_h_puzzle" } else { "nemotron_h" };
    ["autocompress", model_type, "mamba-2", "mixture-of-experts", "pruning", "distillation"].map(String::from).into()
}

fn card_row(parent: &Layer, student: Option<&Layer>) -> CardRow {
    let student = match student {
        None => "removed".into(),
        Some(layer) if layer.kind() == parent.kind() => layer.sizes_text(),
        Some(layer) => format!("{}, {}", layer.kind().name(), layer.sizes_text()),
    };
    CardRow { kind: parent.kind().name().into(), parent: parent.sizes_text(), student }
}

fn of_limit(limit: &LimitResult) -> CardLimit {
    CardLimit {
        resource: limit.resource.clone(),
        unit: limit.unit.clone(),
        at_least: limit.at_least,
        limit: limit.limit,
        parent: Some(limit.parent_measured),
        predicted: limit.student_predicted,
        measured: Some(limit.student_measured),
    }
}

fn of_round(round: &RoundResult) -> Vec<CardLimit> {
    let limit = |(resource, limit): (&String, &f64)| {
        let of = |values: &BTreeMap<String, f64>| values.get(resource).copied().unwrap_or(f64::NAN);
        CardLimit {
            resource: resource.clone(),
            unit: unit_of(resource).into(),
            at_least: resource == "throughput",
            limit: *limit,
            parent: None,
            predicted: of(&round.predicted),
            measured: round.measured.get(resource).copied(),
        }
    };
    round.limit.iter().map(limit).collect()
}

fn trainings(c: &Compression, recovered: bool) -> Result<Vec<Training>> {
    let mut trainings = vec![match c.method {
        Method::Search => {
            let searched = search::read(c)?;
            Training {
                name: if searched.converged { "search" } else { "search, not converged" }.into(),
                steps: searched.steps,
                tokens: searched.tokens,
                seed: c.recipe.search.training.seed,
                loss: searched.distillation,
            }
        }
        Method::Minitron => {
            let screened = screen::read(c)?;
            Training {
                name: format!("screening of {} candidates", screened.trained().count()),
                steps: c.recipe.minitron.steps,
                tokens: screened.tokens,
                seed: c.recipe.recover.training.seed,
                loss: screened.trained().find_map(|best| best.score).unwrap_or(f64::NAN),
            }
        }
    }];
    if recovered {
        let recovery = recover::read(c)?;
        trainings.push(Training {
            name: "recovery".into(),
            steps: recovery.steps,
            tokens: recovery.tokens,
            seed: c.recipe.recover.training.seed,
            loss: recovery.loss,
        });
    }
    Ok(trainings)
}

fn notes(c: &Compression, extracted: &extract::Extracted) -> Result<Vec<String>> {
    let chosen = match c.method {
        Method::Search => {
            let changed = &extracted.gates_changed;
            let names = if changed.is_empty() { String::new() } else { format!(": {}", changed.join(", ")) };
            let of = format!("{} of {}", changed.len(), c.space.gates.len());
            vec![
                format!("Searched in a space of {} architectures.", c.space.count()),
                format!("{of} choices differ from the search's leading ones, to meet the limits{names}."),
            ]
        }
        Method::Minitron => {
            let screened = screen::read(c)?;
            vec![format!(
                "Chosen by a short distillation among the uniform architectures that use the limits up: {} of {} within them.",
                screened.maximal, screened.within
            )]
        }
    };
    let made = "The weights are the parent's, sorted by importance and cut; recovery distils the parent's logits.";
    Ok([chosen, vec![made.into()]].concat())
}

/// Without the folders that it lay in on the machine it was made on.
fn short_name(name: &str) -> String {
    if name.starts_with("parent/") { name.to_owned() } else { name.rsplit('/').next().unwrap_or(name).to_owned() }
}
