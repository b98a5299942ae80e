//! The report stage: gathers what all stages left.

use std::collections::BTreeMap;

use serde_json::Value;

use super::card::{self, Known};
use super::measure::Measured;
use super::profile::Profile;
use super::{Compression, Method, evaluate, extract, measure, profile, recover, screen, search};
use crate::cost::{CostModel, Errors, MIB, Measurement, Prediction, part_name};
use crate::model::Config;
use crate::model::config::Layer;
use crate::report::{
    CostModelResult, CostPoint, CostRow, Deployment, GateCurve, LayerResult, LossResult, Machine, ModelResult, Quality,
    RecoveryResult, RepairResult, Report, Reproduce, ScreenedResult, ScreeningResult, SearchResult, TaskResult,
};
use crate::run::read_lines;
use crate::supernet::{Axis, Choice};
use crate::{Result, files};

/// Writes `report.json` and `report.html`, and both students' cards with what is known now.
pub fn run(c: &Compression) -> Result<()> {
    let report = gather(c)?;
    let known = Known { limits: &report.limits, quality: &report.quality };
    for student in ["student", "recovered"] {
        card::write(c, student, Some(known))?;
    }
    crate::report::write(&report, c.run.path())
}

fn gather(c: &Compression) -> Result<Report> {
    let profile = profile::read(c)?;
    let extracted = extract::read(c)?;
    let measured = measure::read(c)?;
    let parent_choice = c.space.parent_choice();
    let parent = model_result(c, &profile, &parent_choice, &c.recipe.parent.display().to_string(), &measured.parent)?;
    let student = model_result(c, &profile, &extracted.choice, "recovered", &measured.student)?;
    let (mut search, mut screening) = (None, None);
    match c.method {
        Method::Search => search = Some(search_result(c, &extracted.choice)?),
        Method::Minitron => screening = Some(screening_result(c, &extracted.choice)?),
    }
    let recovery = recovery_result(c)?;
    let repair = RepairResult {
        rho_before: extracted.rho_before,
        rho_after: extracted.rho_after,
        gates: c.space.gates.len(),
        gates_changed: extracted.gates_changed,
        rounds: extracted.rounds,
    };
    let cost_model = cost_model_result(c, &profile, &extracted.choice, &measured)?;
    let name = c.recipe_path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let contract = &c.contract;
    Ok(Report {
        name,
        machine: machine(),
        deployment: Deployment {
            device: measured.measured_on.device_text(),
            engine: label(&contract.engine),
            precision: measured.measured_on.precision.name().into(),
            threads: contract.threads,
            workload: contract.workload,
        },
        met: measured.met,
        limits: measured.limits,
        parent,
        student,
        quality: quality(c)?,
        search,
        screening,
        repair,
        recovery,
        cost_model,
        reproduce: reproduce(c)?,
    })
}

/// A unit variant as it is written in a contract.
fn label(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

fn model_result(
    c: &Compression,
    profile: &Profile,
    choice: &Choice,
    folder: &str,
    measured: &Measurement,
) -> Result<ModelResult> {
    let config = c.space.config_of(choice)?;
    let prediction = profile.model.predict(choice)?;
    let parameters = config.parameters();
    Ok(ModelResult {
        folder: folder.into(),
        parameters: parameters.total,
        active_parameters: parameters.active,
        hidden_size: config.hidden_size,
        layers: layers(c, choice, &config, &prediction)?,
        prefill_ms: 1e3 * measured.prefill_seconds,
        decode_step_ms: 1e3 * measured.decode_step_seconds,
        request_ms: 1e3 * measured.request.median,
        tokens_per_second: measured.throughput(&c.contract),
        peak_mib: measured.peak_bytes as f64 / MIB,
        resident_mib: measured.resident_bytes.map(|bytes| bytes as f64 / MIB),
    })
}

/// One entry per layer of the parent.
fn layers(c: &Compression, choice: &Choice, config: &Config, prediction: &Prediction) -> Result<Vec<LayerResult>> {
    let kept: BTreeMap<usize, Layer> = c.space.layers_of(choice)?.into_iter().collect();
    let steps = c.contract.workload.output_tokens as f64;
    let layer = |source: usize| {
        let cost = &prediction.layers[source];
        let request_ms = 1e3 * (cost.prefill_seconds + steps * cost.decode_step_seconds);
        let Some(layer) = kept.get(&source) else {
            return LayerResult { kind: "removed".into(), sizes: BTreeMap::new(), parameters: 0, request_ms };
        };
        let alone = Config { layers: vec![*layer], ..config.clone() };
        let none = Config { layers: Vec::new(), ..config.clone() };
        let sizes: &[(&str, usize)] = match layer {
            Layer::Mamba(m) => &[("H", m.heads)],
            Layer::Moe(m) => &[("E", m.experts), ("F", m.intermediate), ("S", m.shared_intermediate)],
            Layer::Attention(a) => &[("H", a.heads)],
            Layer::Mlp(m) => &[("S", m.intermediate)],
        };
        LayerResult {
            kind: layer.kind().name().into(),
            sizes: sizes.iter().map(|(letter, size)| ((*letter).into(), *size)).collect(),
            parameters: alone.parameters().total - none.parameters().total,
            request_ms,
        }
    };
    Ok((0..c.space.parent.layers.len()).map(layer).collect())
}

fn quality(c: &Compression) -> Result<Quality> {
    let evaluated = evaluate::read(c)?;
    let (mut tasks, mut losses, mut mean) = (Vec::new(), Vec::new(), None);
    if let (Some(parent), Some(extracted), Some(student)) = (evaluated.parent, evaluated.extracted, evaluated.student) {
        for ((p, e), s) in parent.parts.iter().zip(&extracted.parts).zip(&student.parts) {
            let (name, items) = (p.name.clone(), p.items);
            if let (Some(parent), Some(extracted), Some(student)) = (p.accuracy, e.accuracy, s.accuracy) {
                tasks.push(TaskResult { name, items, parent, extracted, student });
            } else {
                losses.push(LossResult { name, items, parent: p.loss, extracted: e.loss, student: s.loss });
            }
        }
        let items = tasks.iter().map(|task| task.items).sum();
        mean = match (parent.mean_accuracy, extracted.mean_accuracy, student.mean_accuracy) {
            (Some(parent), Some(extracted), Some(student)) => {
                Some(TaskResult { name: "mean".into(), items, parent, extracted, student })
            }
            _ => None,
        };
    }
    Ok(Quality {
        tasks,
        losses,
        mean,
        held_out_before_recovery: evaluated.extracted_loss,
        held_out_after_recovery: evaluated.student_loss,
        held_out_tokens: evaluated.tokens,
    })
}

/// The lines of a stage's `metrics.jsonl`.
fn metrics(c: &Compression, stage: &str) -> Result<Vec<Value>> {
    read_lines(&c.path(stage).join("metrics.jsonl"))
}

fn column(lines: &[Value], pointer: &str) -> Vec<f64> {
    lines.iter().map(|line| line.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)).collect()
}

/// One column for each key of the object at `pointer`; `leaf` is a path within.
fn columns(lines: &[Value], pointer: &str, leaf: &str) -> BTreeMap<String, Vec<f64>> {
    let keys = lines.first().and_then(|line| line.pointer(pointer)?.as_object());
    let keys = keys.map(|object| object.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let values = |key: &String| {
        let at = |line: &Value| line.pointer(pointer)?.get(key)?.get(leaf)?.as_f64();
        lines.iter().map(|line| at(line).unwrap_or(f64::NAN)).collect()
    };
    keys.iter().map(|key| (key.clone(), values(key))).collect()
}

fn steps(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line.get("step").and_then(Value::as_u64).unwrap_or(0)).collect()
}

fn search_result(c: &Compression, choice: &Choice) -> Result<SearchResult> {
    let searched = search::read(c)?;
    let lines = metrics(c, "search")?;
    let gate = |(gate, chosen): (&crate::supernet::Gate, &usize)| {
        let at = |line: &Value| {
            let list = line.get("gates")?.get(&gate.name)?.get("probabilities")?.as_array()?;
            Some(list.iter().map(|p| p.as_f64().unwrap_or(f64::NAN)).collect())
        };
        GateCurve {
            name: gate.name.clone(),
            axis: gate.axis.name().into(),
            layer: gate.layer,
            candidates: gate.candidates.clone(),
            probabilities: lines.iter().map(|line| at(line).unwrap_or_default()).collect(),
            chosen: gate.candidates[*chosen],
        }
    };
    Ok(SearchResult {
        architectures: c.space.count().to_string(),
        gates: c.space.gates.iter().zip(&choice.0).map(gate).collect(),
        converged: searched.converged,
        tokens: searched.tokens,
        draws: c.recipe.search.draws,
        delta: c.recipe.search.delta,
        slack: label(&c.recipe.search.slack),
        converged_at: c.recipe.search.converged_at,
        steps: steps(&lines),
        distillation: column(&lines, "/distillation"),
        penalty: column(&lines, "/penalty"),
        kappa: column(&lines, "/kappa"),
        tau: column(&lines, "/tau"),
        rho: columns(&lines, "/rho", "mean"),
        distillation_norms: columns(&lines, "/logit_gradient_norms", "distillation"),
        budget_norms: columns(&lines, "/logit_gradient_norms", "budget"),
    })
}

fn screening_result(c: &Compression, choice: &Choice) -> Result<ScreeningResult> {
    let screened = screen::read(c)?;
    let options = &c.recipe.minitron;
    let candidate = |candidate: screen::Candidate| {
        let own = c.space.choice_from_json(&c.path("screen/screen.json"), &candidate.architecture)?;
        let gates = c.space.gates.iter().zip(&own.0).filter(|(gate, _)| gate.axis != Axis::KeepMamba);
        let sizes = gates.map(|(gate, at)| (gate.axis.name().to_owned(), gate.candidates[*at])).collect();
        Ok(ScreenedResult {
            sizes,
            rho: candidate.rho,
            first_loss: candidate.first_loss,
            score: candidate.score,
            losses: candidate.losses,
            chosen: own == *choice,
        })
    };
    Ok(ScreeningResult {
        within: screened.within,
        maximal: screened.maximal,
        reach: label(&screened.reach),
        floor: options.floor,
        steps: options.steps,
        scored_steps: options.scored_steps,
        tokens: screened.tokens,
        candidates: screened.candidates.into_iter().map(candidate).collect::<Result<_>>()?,
    })
}

fn recovery_result(c: &Compression) -> Result<RecoveryResult> {
    let recovered = recover::read(c)?;
    let lines = metrics(c, "recover")?;
    Ok(RecoveryResult {
        tokens: recovered.tokens,
        steps: steps(&lines),
        loss: column(&lines, "/loss"),
        final_loss: recovered.loss,
    })
}

fn cost_model_result(
    c: &Compression,
    profile: &Profile,
    student: &Choice,
    measured: &Measured,
) -> Result<CostModelResult> {
    // A share of the parent's time is held in one measurement: predictions stand at the machine's speed in it.
    let drift = profile.drift();
    let held_out = profile.basis.validation().map_or(&[][..], |validation| &validation.points);
    let points = held_out.iter().map(|(p, m)| (drift, p.clone(), *m));
    let mut points: Vec<(f64, Prediction, Measurement)> = points.collect();
    let parent_now = measured.parent.request.median / profile.model.predict(&c.space.parent_choice())?.request_seconds;
    let drift_now = if drift == 1.0 { 1.0 } else { parent_now };
    points.push((drift_now, profile.model.predict(student)?, measured.student));
    let last = points.len() - 1;
    let point = |(i, (drift, predicted, measured)): (usize, &(f64, Prediction, Measurement))| CostPoint {
        name: match i {
            0 => "parent".into(),
            _ if i == last => "student".into(),
            _ => i.to_string(),
        },
        predicted_ms: 1e3 * drift * predicted.request_seconds,
        measured_ms: 1e3 * measured.request.median,
        predicted_mib: predicted.memory_bytes / MIB,
        measured_mib: measured.peak_bytes as f64 / MIB,
    };
    let points: Vec<CostPoint> = points.iter().enumerate().map(point).collect();
    let pairs = |of: fn(&CostPoint) -> (f64, f64)| Errors::of(&points.iter().map(of).collect::<Vec<_>>());
    let latency = pairs(|p| (p.predicted_ms, p.measured_ms));
    let memory = pairs(|p| (p.predicted_mib, p.measured_mib));
    let errors: BTreeMap<String, Errors> = (profile.model.resources.iter())
        .map(|resource| (resource.name.clone(), if resource.name == "memory" { memory } else { latency }))
        .collect();
    Ok(CostModelResult {
        rows: profile.table.rows.len(),
        margin: profile.margins(),
        median_error: errors.iter().map(|(name, errors)| (name.clone(), errors.median)).collect(),
        worst_error: errors.iter().map(|(name, errors)| (name.clone(), errors.worst)).collect(),
        points,
        drift,
        table: cost_rows(c, &profile.model, student)?,
    })
}

/// Every layer of parent and student, and what is no layer, with its predicted cost; equal ones once.
fn cost_rows(c: &Compression, model: &CostModel, student: &Choice) -> Result<Vec<CostRow>> {
    let mut rows: BTreeMap<(usize, String), CostRow> = BTreeMap::new();
    for choice in [&c.space.parent_choice(), student] {
        let (prediction, config) = (model.predict(choice)?, c.space.config_of(choice)?);
        let parts = c.space.layers_of(choice)?.into_iter().map(|(i, layer)| (part_name(&layer), prediction.layers[i]));
        for (part, cost) in parts.chain([("rest".to_owned(), prediction.rest)]) {
            let hidden_size = config.hidden_size;
            rows.entry((hidden_size, part.clone())).or_insert(CostRow {
                hidden_size,
                part,
                prefill_ms: 1e3 * cost.prefill_seconds,
                decode_us: 1e6 * cost.decode_step_seconds,
                weights_bytes: cost.weights_bytes,
                cache_bytes: cost.cache_bytes,
                workspace_bytes: cost.workspace_bytes,
            });
        }
    }
    Ok(rows.into_values().rev().collect())
}

fn reproduce(c: &Compression) -> Result<Reproduce> {
    let mut seconds = BTreeMap::new();
    for stage in c.method.stages() {
        if let Some(taken) = c.run.seconds(stage.name())? {
            seconds.insert(stage.name().to_owned(), taken);
        }
    }
    Ok(Reproduce {
        version: env!("CARGO_PKG_VERSION").into(),
        command: format!(
            "autocompress {} {} --out {}",
            c.method.command(),
            c.recipe_path.display(),
            c.run.path().display()
        ),
        recipe: files::read_text(&c.recipe_path)?,
        inputs: c.inputs.clone(),
        seconds,
    })
}

fn machine() -> Machine {
    let of = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = of("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    Machine {
        processor: of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory.map(|kib| kib << 10),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}
