//! From the traces of a plan's folder to a cost table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::attribute::{Step, TraceSummary, read_trace};
use super::manifest::{Manifest, ManifestModel};
use crate::cost::contract::Contract;
use crate::cost::device_spec::DeviceSpec;
use crate::cost::model::MIB;
use crate::cost::table::{Cost, Key, MODEL, Measure, REST, Table};
use crate::cost::vllm::Memory;
use crate::engine::profile::Workload;
use crate::model::Config;
use crate::{Error, Result, files};

/// What a folder's traces say.
#[derive(Clone, Debug, Serialize)]
pub struct Ingested {
    /// Times of every traced layer and of the rest, and ε; no other bytes: those are the memory model's.
    #[serde(skip)]
    pub table: Table,
    pub traces: Vec<IngestedTrace>,
    /// Models that no start of has a trace.
    pub missing: Vec<String>,
    /// ε: the largest residual over all starts, in bytes; `None` where no start tells its memory.
    pub reserve_bytes: Option<f64>,
}

/// One start of a model.
#[derive(Clone, Debug, Serialize)]
pub struct IngestedTrace {
    pub model: String,
    pub start: usize,
    #[serde(flatten)]
    pub summary: TraceSummary,
    /// Requests that are whole, and passes that belong to none: warm-up, dummy runs, what the trace cuts off.
    pub requests: usize,
    pub dropped_steps: usize,
    /// Measured memory less W + C + P + R, in bytes.
    pub residual_bytes: Option<f64>,
}

/// `start-N.memory.json`, by the script.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsedMemory {
    before_mib: f64,
    used_mib: f64,
}

/// Reads all traces of the folder `dir`, which `profile plan` wrote and its script filled.
///
/// # Errors
/// [`Error::Input`] naming the file: no plan's folder, a trace without kernels, ranges or a whole request, one of a model of
/// other layers. [`Error::Usage`] where no model has a trace.
pub fn ingest(dir: &Path) -> Result<Ingested> {
    for name in ["manifest.json", "contract.toml"] {
        if !dir.join(name).exists() {
            let expected = "the folder of a plan: `profile plan --contract FILE --out DIR` writes one, its run.sh, started on \
                            the device, fills it with traces, then `profile ingest DIR` reads them";
            return Err(Error::input(dir, "folder", format!("no {name}"), expected));
        }
    }
    let manifest = Manifest::from_file(&dir.join("manifest.json"))?;
    let contract = Contract::from_named_file(&dir.join("contract.toml"))?;
    let device = DeviceSpec::of(&contract.device)?;
    let mut samples: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    let (mut traces, mut missing, mut residuals) = (Vec::new(), Vec::new(), Vec::new());
    for model in &manifest.models {
        let mut any = false;
        for start in 0..manifest.starts {
            let file = |end: &str| dir.join("traces").join(&model.name).join(format!("start-{start}.{end}"));
            if !file("sqlite").exists() {
                continue;
            }
            any = true;
            let mut requests = Requests::new(&contract.workload, model, file("sqlite"));
            let summary = read_trace(&requests.file.clone(), &mut |process, step| requests.step(process, step))?;
            requests.end()?;
            if !summary.device.is_empty() && summary.device != device.name {
                tracing::warn!(
                    "{}: traced on {}, the contract is for {}",
                    requests.file.display(),
                    summary.device,
                    device.name
                );
            }
            let residual_bytes = residual(&contract, &dir.join("models").join(&model.name), &file("memory.json"))?;
            residuals.extend(residual_bytes);
            for (key, values) in requests.samples {
                samples.entry(key).or_default().extend(values);
            }
            traces.push(IngestedTrace {
                model: model.name.clone(),
                start,
                summary,
                requests: requests.whole,
                dropped_steps: requests.dropped,
                residual_bytes,
            });
        }
        if !any {
            missing.push(model.name.clone());
        }
    }
    if traces.is_empty() {
        let expected = "traces/MODEL/start-N.sqlite: start run.sh on the device";
        return Err(Error::Usage(format!("{}: found no trace, expected {expected}", dir.display())));
    }
    let mut table = Table { rows: samples.into_iter().map(|(key, values)| (key, Cost::of(values))).collect() };
    let reserve_bytes = residuals.iter().copied().reduce(f64::max);
    if let Some(largest) = reserve_bytes {
        let key = Key { measure: Measure::Reserve, context: 0, hidden_size: 0, part: MODEL.into() };
        // A bound, not a middle.
        table.rows.insert(key, Cost { median: largest, ..Cost::of(residuals) });
    }
    Ok(Ingested { table, traces, missing, reserve_bytes })
}

/// What a start took beyond what its model's terms say.
fn residual(contract: &Contract, model: &Path, memory: &Path) -> Result<Option<f64>> {
    if !memory.exists() {
        return Ok(None);
    }
    let used: UsedMemory = files::read_json(memory, "an object with before_mib and used_mib")?;
    let config = Config::from_file(&model.join("config.json"))?;
    Ok(Some(Memory::of(&config, contract)?.reserve_for((used.used_mib - used.before_mib) * MIB)))
}

/// Finds whole requests among a trace's steps, and takes their times.
struct Requests<'m> {
    workload: Workload,
    model: &'m ManifestModel,
    file: PathBuf,
    /// Decode steps to keep, by their number, and their context.
    wanted: Vec<(usize, usize)>,
    process: i64,
    current: Request,
    samples: BTreeMap<Key, Vec<f64>>,
    whole: usize,
    dropped: usize,
}

/// Prefill passes, then decode steps.
#[derive(Default)]
struct Request {
    rows: usize,
    prefill: Vec<Step>,
    decodes: usize,
    /// Of [`Requests::wanted`].
    kept: Vec<Step>,
    broken: bool,
}

impl Requests<'_> {
    fn new<'m>(workload: &Workload, model: &'m ManifestModel, file: PathBuf) -> Requests<'m> {
        let first = workload.cached_tokens + workload.input_tokens;
        let wanted = workload.contexts().iter().map(|(context, _)| (context - first, *context)).collect();
        Requests {
            workload: *workload,
            model,
            file,
            wanted,
            process: i64::MIN,
            current: Request::default(),
            samples: BTreeMap::new(),
            whole: 0,
            dropped: 0,
        }
    }

    /// A pass of more tokens than sequences is prefill; a replayed graph, or one token a sequence, decodes.
    fn step(&mut self, process: i64, step: &Step) -> Result<()> {
        if process != self.process {
            self.finish()?;
            self.process = process;
        }
        let prefill = step.rows.filter(|rows| *rows > self.workload.batch);
        if let Some(rows) = prefill {
            if self.current.decodes > 0 {
                self.finish()?;
            }
            self.current.rows += rows;
            self.current.prefill.push(step.clone());
        } else {
            if self.wanted.iter().any(|(number, _)| *number == self.current.decodes) {
                self.current.kept.push(step.clone());
            }
            self.current.decodes += 1;
        }
        self.current.broken |= step.unfinished && self.current.decodes <= self.workload.output_tokens;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.finish()?;
        if self.whole > 0 {
            return Ok(());
        }
        let (w, found) = (&self.workload, format!("no whole request among {} passes", self.dropped));
        let expected = format!(
            "prefill of {} tokens, then {} decode steps: trace longer, with the contract's workload",
            w.batch * w.input_tokens,
            w.output_tokens
        );
        Err(Error::input(&self.file, "requests", found, expected))
    }

    /// Takes the request so far, if it is whole and of the workload.
    fn finish(&mut self) -> Result<()> {
        let request = std::mem::take(&mut self.current);
        let steps = request.prefill.len() + request.decodes;
        let w = &self.workload;
        // A cached prefix ends at a page: up to half of it may be computed again. More is a warm-up, which computes all.
        let input = w.batch * w.input_tokens;
        let most = input + w.batch * (w.cached_tokens / 2).max(1);
        let whole = !request.broken
            && (input..=most).contains(&request.rows)
            && request.decodes >= w.output_tokens
            && request.kept.len() == self.wanted.len();
        if !whole {
            self.dropped += steps;
            return Ok(());
        }
        self.whole += 1;
        self.take(Measure::Prefill, 0, &request.prefill)?;
        for (step, (_, context)) in request.kept.iter().zip(self.wanted.clone()) {
            self.take(Measure::Decode, context, std::slice::from_ref(step))?;
        }
        Ok(())
    }

    /// Adds a sample of every layer and of the rest: the sum over `steps`.
    fn take(&mut self, measure: Measure, context: usize, steps: &[Step]) -> Result<()> {
        let layers = &self.model.layers;
        if let Some(layer) = steps.iter().flat_map(|step| step.layers.keys()).find(|layer| **layer >= layers.len()) {
            let expected = format!("layers 0 to {} of the model {}", layers.len().saturating_sub(1), self.model.name);
            return Err(Error::input(&self.file, "NVTX_EVENTS", format!("layers.{layer}"), expected));
        }
        let hidden_size = self.model.hidden_size;
        let mut add = |part: &str, nanoseconds: i64| {
            let key = Key { measure, context, hidden_size, part: part.to_owned() };
            self.samples.entry(key).or_default().push(nanoseconds as f64 / 1e9);
        };
        for (layer, part) in layers.iter().enumerate() {
            add(part, steps.iter().filter_map(|step| step.layers.get(&layer)).sum());
        }
        add(REST, steps.iter().map(|step| step.rest).sum());
        Ok(())
    }
}
