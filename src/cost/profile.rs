//! Measures a plan: appends results run by run, and makes the table of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::contract::Contract;
use super::dummy::Dummy;
use super::model::CostModel;
use super::plan::{Plan, Run};
use super::table::{COSTS, Cost, Key, MODEL, Measure, REST, Table, part_name};
use crate::engine::profile::{ModelProfile, PartCost, PassCost, Workload, profile as measure_parts, serve};
use crate::model::Config;
use crate::run::{Metrics, digest_bytes};
use crate::supernet::{Choice, SearchSpace};
use crate::{Error, Result, device, files};

#[derive(Clone, Debug, PartialEq)]
pub struct ProfileOptions {
    /// How often every run is measured, and what several layers share more often ([`Run::times`]); the table holds the
    /// medians of the runs' means.
    pub repeats: usize,
    /// Layer configurations of one short model.
    pub layers_per_run: usize,
    /// Whole models that are started to find the memory reserve ε: the parent, then random architectures.
    pub starts: usize,
    pub seed: u64,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        ProfileOptions { repeats: 5, layers_per_run: 10, starts: 4, seed: 0 }
    }
}

/// One line of the results.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Record {
    Run {
        plan: String,
        repeat: usize,
        run: usize,
        samples: Vec<Sample>,
    },
    /// A whole model.
    Start {
        plan: String,
        /// Digest of its architecture.
        model: String,
        /// Weights, caches and workspace at the peak of a request.
        bytes: usize,
    },
}

#[derive(Serialize, Deserialize)]
struct Sample {
    #[serde(flatten)]
    key: Key,
    value: f64,
}

/// Results so far.
#[derive(Default)]
struct Results {
    /// By (repeat, run).
    runs: BTreeMap<(usize, usize), Vec<Sample>>,
    /// By the architecture's digest.
    starts: BTreeMap<String, usize>,
}

/// Measures what `results` (JSON lines) does not hold yet, appends it there run by run, and returns the table.
///
/// `progress(done, all)` is called after every run. Stopped and called again, it goes on where it was; more repeats go on too.
///
/// # Errors
/// [`Error::Input`] where `results` belongs to another plan (another space, workload, number of threads or device), or is
/// damaged.
pub fn profile(
    space: &SearchSpace,
    contract: &Contract,
    options: &ProfileOptions,
    results: &Path,
    progress: &mut (dyn FnMut(usize, usize) + Send),
) -> Result<Table> {
    if options.repeats == 0 || options.layers_per_run == 0 {
        return Err(Error::Usage("profile: repeats and layers per run must be at least 1".into()));
    }
    contract.measured_here()?;
    let plan = Plan::new(space, contract, options.layers_per_run, options.seed)?;
    let mut log = Metrics::open(results, |_| true)?;
    let found = read(results, &plan)?;
    let order = plan.order(options.repeats, options.seed);
    let starts = starts(space, options);
    let all = order.len() + starts.len();
    device::with_threads(contract.threads, || {
        for (done, (repeat, run)) in order.iter().enumerate() {
            if !found.runs.contains_key(&(*repeat, *run)) {
                let samples = measure_run(&plan, &plan.runs[*run])?;
                log.write(&Record::Run { plan: plan.digest.clone(), repeat: *repeat, run: *run, samples })?;
            }
            progress(done + 1, all);
        }
        // From the file alone, so that a resumed profile has the same numbers to the last bit.
        let mut table = table(&read(results, &plan)?, &plan, options.repeats);
        let parts = CostModel::without_reserve(space, contract, &table)?;
        let mut excess = Vec::new();
        for (i, (choice, config)) in starts.iter().enumerate() {
            let model = digest_bytes(format!("{} {:?}", config.hidden_size, config.layers).as_bytes());
            let bytes = match found.starts.get(&model) {
                Some(bytes) => *bytes,
                None => {
                    let bytes = start(config, &contract.workload)?;
                    log.write(&Record::Start { plan: plan.digest.clone(), model, bytes })?;
                    bytes
                }
            };
            excess.push(bytes as f64 - parts.predict(choice)?.memory_bytes);
            progress(order.len() + i + 1, all);
        }
        let key = Key { measure: Measure::Reserve, context: 0, hidden_size: 0, part: MODEL.into() };
        // A bound, not a middle: the largest excess.
        let largest = excess.iter().copied().reduce(f64::max).unwrap_or(0.0);
        table.rows.insert(key, Cost { median: largest, ..Cost::of(excess) });
        log.sync()?;
        Ok(table)
    })?
}

fn read(path: &Path, plan: &Plan) -> Result<Results> {
    let mut results = Results::default();
    let planned: Vec<BTreeSet<Key>> = plan.runs.iter().map(|run| plan.keys_of(run).into_iter().collect()).collect();
    for (i, line) in files::read_text(path)?.lines().enumerate() {
        let fault = |found: &str, expected: &str| Error::input(path, format!("line {}", i + 1), found, expected);
        let record: Record = serde_json::from_str(line).map_err(|e| fault(&e.to_string(), "a profile's result"))?;
        let (Record::Run { plan: of, .. } | Record::Start { plan: of, .. }) = &record;
        if *of != plan.digest {
            let expected = "results of this search space, contract and device; profile into another folder";
            return Err(fault(&format!("a result of another plan, {of}"), expected));
        }
        match record {
            Record::Run { repeat, run, samples, .. } => {
                let keys: BTreeSet<Key> = samples.iter().map(|sample| sample.key.clone()).collect();
                if planned.get(run).is_none_or(|planned| *planned != keys) {
                    return Err(fault("other rows", "the rows of a run of the plan"));
                }
                if let Some(wrong) = samples.iter().find(|sample| !sample.key.measure.allows(sample.value)) {
                    return Err(fault(&format!("a value of {:e}", wrong.value), COSTS));
                }
                results.runs.insert((repeat, run), samples);
            }
            Record::Start { bytes: 0, .. } => return Err(fault("a model of 0 bytes", "the bytes that it took")),
            Record::Start { model, bytes, .. } => drop(results.starts.insert(model, bytes)),
        }
    }
    Ok(results)
}

/// The samples of one run.
fn measure_run(plan: &Plan, run: &Run) -> Result<Vec<Sample>> {
    let config = plan.config(run);
    let dummy = Dummy::new(&config)?;
    let measured = measure_parts(&dummy.lm, &plan.workload)?;
    let mut samples = Vec::new();
    for (i, layer) in run.layers.iter().enumerate() {
        let bytes = (dummy.layer_bytes[i], measured.cache_bytes[i]);
        samples.extend(part(run, plan, &measured, &part_name(layer), bytes, &|pass| pass.layers[i]));
    }
    samples.extend(part(run, plan, &measured, REST, (dummy.rest_bytes, 0), &|pass| pass.rest));
    Ok(samples)
}

/// The samples of a part; `bytes` of its weights and caches.
fn part(
    run: &Run,
    plan: &Plan,
    measured: &ModelProfile,
    name: &str,
    bytes: (usize, usize),
    of: &dyn Fn(&PassCost) -> PartCost,
) -> Vec<Sample> {
    let sample = |measure, context, value| Sample {
        key: Key { measure, context, hidden_size: run.hidden_size, part: name.into() },
        value,
    };
    let prefill = of(&measured.prefill);
    let mut samples = vec![
        sample(Measure::Prefill, 0, prefill.seconds),
        sample(Measure::PrefillWorkspace, 0, prefill.workspace as f64),
        sample(Measure::Weights, 0, bytes.0 as f64),
        sample(Measure::Cache, 0, bytes.1 as f64),
    ];
    for (pass, (context, _)) in measured.decode.iter().zip(plan.workload.contexts()) {
        samples.push(sample(Measure::Decode, context, of(pass).seconds));
    }
    if let Some(workspace) = measured.decode.iter().map(|pass| of(pass).workspace).max() {
        samples.push(sample(Measure::DecodeWorkspace, 0, workspace as f64));
    }
    samples
}

/// The rows of the first `repeats` repeats, without the reserve.
fn table(results: &Results, plan: &Plan, repeats: usize) -> Table {
    let mut values: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    let asked = results.runs.iter().filter(|((time, run), _)| *time < plan.measurements(*run, repeats));
    for sample in asked.flat_map(|(_, samples)| samples) {
        values.entry(sample.key.clone()).or_default().push(sample.value);
    }
    Table { rows: values.into_iter().map(|(key, values)| (key, Cost::of(values))).collect() }
}

/// The models to start: the parent, then random ones. An architecture without layers is left out.
fn starts(space: &SearchSpace, options: &ProfileOptions) -> Vec<(Choice, Config)> {
    let choices = (0..options.starts as u64).map(|i| match i {
        0 => space.parent_choice(),
        _ => space.random(options.seed.wrapping_add(i)),
    });
    choices.filter_map(|choice| space.config_of(&choice).ok().map(|config| (choice, config))).collect()
}

/// Bytes at the peak of a request, weights included.
fn start(config: &Config, workload: &Workload) -> Result<usize> {
    let dummy = Dummy::new(config)?;
    let weights = dummy.layer_bytes.iter().sum::<usize>() + dummy.rest_bytes;
    Ok(weights + serve(&dummy.lm, workload)?.peak_bytes)
}
