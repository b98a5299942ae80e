//! The model card of a student: `README.md` beside its weights, as model hubs show it.

mod front_matter;

use std::fmt::Write as _;

pub use front_matter::{FrontMatter, base_model, inherited};

use super::number::{count, percent, precise, short};
use super::{Quality, TaskResult};

/// What a card tells; what is not known yet is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCard {
    pub front_matter: FrontMatter,
    pub title: String,
    /// What it is, in a sentence or two.
    pub summary: String,
    /// The contract in words, a sentence each.
    pub contract: Vec<String>,
    /// When the numbers of `limits` were measured, such as "before recovery", or why they were not.
    pub measured: String,
    pub limits: Vec<CardLimit>,
    /// Of parent and student.
    pub parameters: [u64; 2],
    pub active_parameters: [u64; 2],
    pub hidden_size: [usize; 2],
    /// One per layer of the parent.
    pub layers: Vec<CardRow>,
    pub quality: Option<Quality>,
    /// What it was trained with, in order.
    pub trainings: Vec<Training>,
    /// Sentences of how the architecture was settled.
    pub notes: Vec<String>,
    pub version: String,
    /// The recipe and the contract, word for word.
    pub recipe: String,
    pub contract_text: String,
    /// Digests of what was read, by name.
    pub inputs: Vec<(String, String)>,
    /// How to load it, in Markdown.
    pub loading: String,
}

/// A limit and what was measured, in the limit's unit.
#[derive(Clone, Debug, PartialEq)]
pub struct CardLimit {
    pub resource: String,
    pub unit: String,
    pub at_least: bool,
    pub limit: f64,
    pub parent: Option<f64>,
    pub predicted: f64,
    /// `None` where the deployment is not at hand.
    pub measured: Option<f64>,
}

/// A layer of the parent, and what is left of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CardRow {
    pub kind: String,
    pub parent: String,
    pub student: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// "search", "recovery".
    pub name: String,
    pub steps: u64,
    pub tokens: u64,
    pub seed: u64,
    /// KL from the parent, nats per token, mean over the last steps.
    pub loss: f64,
}

impl ModelCard {
    pub fn markdown(&self) -> String {
        let mut text = self.front_matter.text();
        let _ = write!(text, "\n# {}\n\n{}\n", line(&self.title), self.summary);
        self.contract(&mut text);
        self.architecture(&mut text);
        self.scores(&mut text);
        self.made(&mut text);
        let _ = write!(text, "\n## Loading\n\n{}", self.loading);
        text
    }

    fn contract(&self, text: &mut String) {
        let _ = write!(text, "\n## Deployment\n\n");
        list(text, self.contract.iter());
        if self.limits.is_empty() {
            return;
        }
        let _ = write!(text, "\n{}:\n\n", self.measured);
        row(text, ["", "limit", "student", "predicted", "parent", "met"].map(String::from));
        row(text, ["---", "---:", "---:", "---:", "---:", "---"].map(String::from));
        for limit in &self.limits {
            let met = limit.measured.map(|m| if limit.at_least { m >= limit.limit } else { m <= limit.limit });
            let value = |value: f64| format!("{} {}", precise(value), limit.unit);
            row(
                text,
                [
                    limit.resource.clone(),
                    format!("{} {}", if limit.at_least { "≥" } else { "≤" }, value(limit.limit)),
                    limit.measured.map_or("-".into(), value),
                    value(limit.predicted),
                    limit.parent.map_or("-".into(), value),
                    met.map_or("not measured", |met| if met { "yes" } else { "**no**" }).into(),
                ],
            );
        }
    }

    fn architecture(&self, text: &mut String) {
        let _ = write!(text, "\n## Architecture\n\n");
        row(text, ["", "parent", "student"].map(String::from));
        row(text, ["---", "---:", "---:"].map(String::from));
        let pair = |name: &str, [parent, student]: [String; 2]| [name.to_owned(), parent, student];
        row(text, pair("parameters", self.parameters.map(count)));
        row(text, pair("active per token", self.active_parameters.map(count)));
        row(text, pair("hidden size", self.hidden_size.map(|size| size.to_string())));
        let kept = self.layers.iter().filter(|layer| layer.student != "removed").count();
        row(text, pair("layers", [self.layers.len(), kept].map(|layers| layers.to_string())));
        text.push('\n');
        row(text, ["layer", "kind", "parent", "student"].map(String::from));
        row(text, ["---:", "---", "---", "---"].map(String::from));
        for (i, layer) in self.layers.iter().enumerate() {
            let student = if layer.student == layer.parent { "the same" } else { &layer.student };
            row(text, [i.to_string(), layer.kind.clone(), layer.parent.clone(), student.into()]);
        }
    }

    fn scores(&self, text: &mut String) {
        let Some(quality) = &self.quality else { return };
        let _ = write!(text, "\n## Scores\n\n");
        row(text, ["", "parent", "as cut out", "recovered"].map(String::from));
        row(text, ["---", "---:", "---:", "---:"].map(String::from));
        let kl = [quality.held_out_before_recovery, quality.held_out_after_recovery].map(short);
        let [before, after] = kl;
        row(text, ["KL from the parent, nats per token".into(), "0".into(), before, after]);
        for loss in &quality.losses {
            let [parent, extracted, student] = [loss.parent, loss.extracted, loss.student].map(short);
            row(text, [format!("{} loss, nats per token", loss.name), parent, extracted, student]);
        }
        let score = |name: String, task: &TaskResult| {
            let [parent, extracted, student] = [task.parent, task.extracted, task.student].map(|s| percent(s, 1));
            [name, parent, extracted, student]
        };
        for task in &quality.tasks {
            row(text, score(format!("{} ({} items)", task.name, task.items), task));
        }
        if let Some(mean) = &quality.mean {
            row(text, score("**mean**".into(), mean));
        }
        let _ = write!(text, "\nThe KL is over {} held-out tokens.\n", quality.held_out_tokens);
    }

    fn made(&self, text: &mut String) {
        let _ = write!(text, "\n## How it was made\n\nBy autocompress {}.\n\n", self.version);
        row(text, ["", "steps", "tokens", "seed", "last KL, nats per token"].map(String::from));
        row(text, ["---", "---:", "---:", "---:", "---:"].map(String::from));
        for t in &self.trainings {
            let numbers = [t.steps, t.tokens, t.seed].map(|n| n.to_string());
            let [steps, tokens, seed] = numbers;
            row(text, [t.name.clone(), steps, tokens, seed, short(t.loss)]);
        }
        if !self.notes.is_empty() {
            text.push('\n');
            list(text, self.notes.iter());
        }
        for (name, content) in [("Recipe", &self.recipe), ("Contract", &self.contract_text)] {
            let fence = fence(content);
            let _ = write!(text, "\n{name}:\n\n{fence}toml\n{}\n{fence}\n", content.trim_end());
        }
        if !self.inputs.is_empty() {
            let _ = write!(text, "\nSHA-256 of what was read:\n\n");
            list(text, self.inputs.iter().map(|(name, digest)| format!("{}: `{digest}`", line(name))));
        }
    }
}

/// How a model of this form is loaded; `quantised` ones are read by serving engines alone.
pub fn loading(is_puzzle: bool, quantised: bool) -> String {
    let vllm = "```sh\nvllm serve path/to/this/folder\n```\n";
    let own = "```sh\nautocompress generate path/to/this/folder --prompt 'text'\n```\n";
    match (is_puzzle, quantised) {
        (_, true) => format!("The weights are quantised in the layout of NVIDIA's Model-Optimizer:\n\n{vllm}"),
        (true, false) => {
            format!("Layers differ in size (`nemotron_h_puzzle`, sizes in `block_configs`):\n\n{vllm}\n{own}")
        }
        (false, false) => format!(
            "A `nemotron_h` model:\n\n```python\nfrom transformers import AutoModelForCausalLM\n\n\
             model = AutoModelForCausalLM.from_pretrained(\"path/to/this/folder\")\n```\n\n\
             {vllm}\n{own}"
        ),
    }
}

fn list(text: &mut String, items: impl Iterator<Item = impl std::fmt::Display>) {
    for item in items {
        let _ = writeln!(text, "- {item}");
    }
}

fn row<const N: usize>(text: &mut String, cells: [String; N]) {
    let cells = cells.map(|cell| line(&cell).replace('|', "\\|"));
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// On one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A name on one line, without marks that would be read as Markdown or HTML.
pub fn plain(name: &str) -> String {
    line(name).chars().filter(|c| !matches!(c, '#' | '*' | '`' | '<' | '>' | '[' | ']' | '|')).collect()
}

/// Longer than any fence inside.
fn fence(content: &str) -> String {
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}
