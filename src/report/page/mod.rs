//! `report.html`: one file that needs nothing else, no script, no network.
//!
//! The template holds the words, the style sheet the looks in light, dark and print; here the numbers become strings and
//! pictures for them. Text is escaped by the template, within pictures by the writer of SVG.

mod answer;
mod architecture;
mod costs;
mod curves;
mod gates;
mod panel;
mod screening;

use minijinja::{Environment, UndefinedBehavior, context, escape_formatter};
use serde::Serialize;

use super::Report;
use super::chart::{escape, share_bar};
use super::number::{bytes, duration, ratio};
use crate::{Error, Result};

/// In their order; others follow by name.
const STAGES: [&str; 8] = ["rank", "profile", "search", "screen", "extract", "recover", "evaluate", "measure"];
const TEMPLATE: &str = include_str!("../page.html");
const STYLE: &str = include_str!("../style.css");

/// The page of a report.
///
/// # Errors
/// None that a report's contents could cause.
pub fn html(report: &Report) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    // The name's ending makes the template escape what it inserts; like the pictures, without control characters.
    environment.set_formatter(|out, state, value| match value.as_str() {
        Some(text) if !value.is_safe() => out.write_str(&escape(text)).map_err(minijinja::Error::from),
        _ => escape_formatter(out, state, value),
    });
    let fault = |e: minijinja::Error| Error::io("report.html", "write")(std::io::Error::other(format!("{e:#}")));
    environment.add_template("page.html", TEMPLATE).map_err(fault)?;
    let page = environment.get_template("page.html").and_then(|template| {
        template.render(context! {
            style => STYLE,
            name => report.name,
            place => place(report),
            answer => answer::answer(report),
            costs => costs::costs(report),
            gates => report.search.as_ref().map(|search| gates::gates(report, search)),
            search => report.search.as_ref().map(curves::search),
            screening => report.screening.as_ref().map(screening::screening),
            repair => gates::repair(report),
            architecture => architecture::architecture(report),
            recovery => curves::recovery(report),
            reproduce => reproduce(report),
        })
    });
    page.map_err(fault)
}

/// Where it was measured.
#[derive(Serialize)]
struct Place {
    workload: String,
    deployment: String,
    machine: String,
}

fn place(report: &Report) -> Place {
    let (d, w, m) = (&report.deployment, &report.deployment.workload, &report.machine);
    let cached = if w.cached_tokens > 0 { format!("{} tokens cached, ", w.cached_tokens) } else { String::new() };
    let workload = format!(
        "batch {}, {cached}{} tokens in, {} out, prefill in chunks of {}",
        w.batch, w.input_tokens, w.output_tokens, w.prefill_chunk
    );
    let threads = if d.threads == 1 { "thread" } else { "threads" };
    let cores = if m.cores == 1 { "core" } else { "cores" };
    let memory = m.memory_bytes.map(|b| format!(", {}", bytes(b as f64))).unwrap_or_default();
    Place {
        workload,
        deployment: format!("{} engine on {}, {}, {} {threads}", d.engine, d.device, d.precision, d.threads),
        machine: format!("{}, {} {cores}{memory}, {}", m.processor, m.cores, m.system),
    }
}

#[derive(Serialize)]
struct Reproduce {
    version: String,
    command: String,
    recipe: String,
    inputs: Vec<[String; 2]>,
    stages: Vec<Stage>,
    total: String,
    folders: [String; 2],
}

#[derive(Serialize)]
struct Stage {
    name: String,
    time: String,
    picture: String,
}

fn reproduce(report: &Report) -> Reproduce {
    let r = &report.reproduce;
    let total: f64 = r.seconds.values().sum();
    let stage = |(name, seconds): (&String, &f64)| Stage {
        name: name.clone(),
        time: duration(*seconds),
        picture: share_bar(ratio(*seconds, total)),
    };
    let mut stages: Vec<(&String, &f64)> = r.seconds.iter().collect();
    stages.sort_by_key(|(name, _)| STAGES.iter().position(|s| s == name).unwrap_or(STAGES.len()));
    Reproduce {
        version: r.version.clone(),
        command: r.command.clone(),
        recipe: r.recipe.clone(),
        inputs: r.inputs.iter().map(|(name, digest)| [name.clone(), digest.clone()]).collect(),
        stages: stages.into_iter().map(stage).collect(),
        total: duration(total),
        folders: [report.parent.folder.clone(), report.student.folder.clone()],
    }
}
