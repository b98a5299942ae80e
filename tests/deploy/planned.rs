use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use autocompress::cost::trace::{Manifest, PlanOptions, ingest, traced_models, write_plan};
use autocompress::cost::vllm::Memory;
use autocompress::cost::{Contract, CostModel, Key, MIB, MODEL, Measure, REST, Table, part_name, roofline};
use autocompress::model::Config;
use autocompress::model::config::LayerKind;
use autocompress::supernet::{SearchSpace, Space};

use super::common::{deployment, parent};
use super::generator::{Export, Server, Truth, Without};

const CONTRACT: &str = "device = 'rtx-5070'
[engine]
name = 'vllm'
version = '0.27.1'
moe_backend = 'cutlass'
[precision]
experts = 'nvfp4'
mamba = 'fp8'
kv_cache = 'fp8'
[workload]
batch = 2
input_tokens = 24
output_tokens = 5
prefill_chunk = 32
[limits]
latency_ms = 10
memory_mib = 100
";

const SPACE: &str = "hidden_size = [128, 64]
[mamba]
heads = [16, 8]
[moe]
intermediate = [64, 32, 0]
shared_intermediate = [128, 64]
";

fn tiny(dir: &Path) -> (Contract, SearchSpace) {
    let file = dir.join("contract.toml");
    std::fs::write(&file, CONTRACT).unwrap();
    let space = Space::from_toml(Path::new("space.toml"), SPACE).unwrap();
    (Contract::from_file(&file).unwrap(), SearchSpace::new(&space, &parent("tiny/config")).unwrap())
}

#[test]
fn models_are_the_fewest_that_hold_every_configuration() {
    for (name, models) in [
        // 60 MoE configurations per d, 8 in a model beside a Mamba and an attention layer.
        ("rtx-5080", 6 * 8),
        // 80 MoE and 4 dense ones.
        ("rtx-5070", 6 * 11),
    ] {
        let (_, space) = deployment(name);
        let traced = traced_models(&space, 10).unwrap();
        assert_eq!(traced.len(), models, "{name}");
        let mut seen: BTreeSet<(usize, String)> = BTreeSet::new();
        for model in &traced {
            assert!(model.layers.len() <= 10);
            let config = model.config(&space.parent);
            config.validate(Path::new("model")).unwrap();
            // One file format has one Mamba size for a model.
            config.to_json().unwrap();
            assert!(config.count(LayerKind::Attention) == 1 && config.count(LayerKind::Mamba) == 1);
            seen.extend(model.layers.iter().map(|layer| (model.hidden_size, part_name(layer))));
        }
        let needed: BTreeSet<(usize, String)> = (roofline::parts(&space).unwrap().iter())
            .filter_map(|(d, layer)| layer.as_ref().map(|layer| (*d, part_name(layer))))
            .collect();
        assert_eq!(seen, needed);
        assert_eq!(traced.iter().map(|model| model.fresh).sum::<usize>(), needed.len());
        assert!(traced_models(&space, 2).is_err());
    }
}

#[test]
fn a_plan_is_written_once_and_loads() {
    let dir = tempfile::tempdir().unwrap();
    let (contract, space) = tiny(dir.path());
    let out = dir.path().join("plan");
    let options = PlanOptions { layers_per_model: 5, starts: 2, weights: true };
    let summary = write_plan(&space, &contract, &options, &out).unwrap();
    assert_eq!(summary.kept, 0);
    let manifest = Manifest::from_file(&out.join("manifest.json")).unwrap();
    assert_eq!((manifest.models.len(), manifest.engine.as_str()), (summary.models, "vllm 0.27.1"));
    let mut bytes = 0;
    for model in &manifest.models {
        let folder = out.join("models").join(&model.name);
        let config = Config::from_file(&folder.join("config.json")).unwrap();
        assert_eq!(config.layers.iter().map(part_name).collect::<Vec<_>>(), model.layers);
        bytes += check_weights(&folder, &config);
    }
    assert_eq!(bytes, summary.weight_bytes);
    let script = std::fs::read_to_string(out.join("run.sh")).unwrap();
    for flag in
        ["--cuda-graph-trace=node", "--max-num-batched-tokens 32", "--num-gpu-blocks-override", "--kv-cache-dtype fp8"]
    {
        assert!(script.contains(flag), "{flag}");
    }
    let checked = std::process::Command::new("bash").arg("-n").arg(out.join("run.sh")).status().unwrap();
    assert!(checked.success());
    // Again: nothing is written anew; a damaged model is.
    let weights = |model: usize| out.join("models").join(&manifest.models[model].name).join("model.safetensors");
    let first = std::fs::read(weights(0)).unwrap();
    std::fs::write(weights(1), "cut off").unwrap();
    let again = write_plan(&space, &contract, &options, &out).unwrap();
    assert_eq!((again.kept, again.weight_bytes), (summary.models - 1, summary.weight_bytes));
    assert_eq!(std::fs::read(weights(0)).unwrap(), first);
    assert!(std::fs::metadata(weights(1)).unwrap().len() > 1000);
    // Another plan does not go into the same folder.
    let other = PlanOptions { layers_per_model: 4, ..options };
    let error = write_plan(&space, &contract, &other, &out).unwrap_err();
    assert!(error.to_string().contains("manifest.json: digest"), "{error}");
}

/// Every value is finite, the shapes are the model's; returns the file's length.
fn check_weights(folder: &Path, config: &Config) -> u64 {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for spec in config.tensors() {
        let tensor = file.tensor(&spec.disk_name(0)).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
        let quantised = file.tensor(&format!("{}_scale_2", spec.disk_name(0))).is_ok();
        let mut shape = spec.disk_shape().to_vec();
        if quantised {
            *shape.last_mut().unwrap() /= 2;
            let scales = file.tensor(&format!("{}_scale", spec.disk_name(0))).unwrap();
            assert_eq!(scales.shape(), [spec.disk_shape()[0], spec.disk_shape()[1] / 16]);
        }
        assert_eq!(quantised, spec.name.contains(".experts."), "{}", spec.name);
        assert_eq!(tensor.shape(), shape, "{}", spec.name);
        match tensor.dtype() {
            safetensors::Dtype::BF16 => {
                let finite = |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16).is_finite();
                assert!(tensor.data().chunks_exact(2).all(finite), "{}", spec.name);
            }
            safetensors::Dtype::F8_E4M3 => {
                assert!(spec.name.ends_with("_proj.weight") && tensor.data().iter().all(|b| b & 0x7F != 0x7F));
            }
            dtype => assert_eq!(dtype, safetensors::Dtype::U8),
        }
    }
    bytes.len() as u64
}

/// What traces of every model must give: by row, all samples in nanoseconds.
struct Traced {
    samples: BTreeMap<Key, Vec<i64>>,
    residuals: Vec<f64>,
}

/// Fills a plan's folder with traces of a known schedule, two starts of each model.
fn trace_all(out: &Path, contract: &Contract) -> Traced {
    let manifest = Manifest::from_file(&out.join("manifest.json")).unwrap();
    let mut traced = Traced { samples: BTreeMap::new(), residuals: Vec::new() };
    for (number, model) in manifest.models.iter().enumerate() {
        let folder = out.join("traces").join(&model.name);
        std::fs::create_dir_all(&folder).unwrap();
        for start in 0..2 {
            let mut export = Export::create(&folder.join(format!("start-{start}.sqlite")), Without::default());
            for _ in 0..number * 7 + start {
                export.random(9);
            }
            let mut server = Server::new(0, model.layers.len());
            let graphs = start == 0;
            server.capture(&mut export, 2, 1);
            // A dummy run, then the warm-up request, which computes a cached prefix too.
            server.eager(&mut export, 32);
            server.eager(&mut export, 2);
            let mut requests = Vec::new();
            for request in 0..3 {
                requests.push(server.passes.len());
                // Two sequences of 24 tokens in chunks of 32, then five steps, the last of them twice.
                [32, 16].into_iter().for_each(|rows| server.eager(&mut export, rows));
                for _ in 0..5 + request % 2 {
                    if graphs { server.replay(&mut export) } else { server.eager(&mut export, 2) }
                }
            }
            [32, 16].into_iter().for_each(|rows| server.eager(&mut export, rows));
            server.cut_off(&mut export, 2);
            export.finish();
            let truth = server.truth();
            requests.iter().for_each(|first| traced.add(model.hidden_size, &model.layers, &truth[*first..]));
            let used = 50.0 + number as f64 + 10.0 * start as f64;
            let memory = format!("{{\"before_mib\": 7, \"used_mib\": {}}}", used + 7.0);
            std::fs::write(folder.join(format!("start-{start}.memory.json")), memory).unwrap();
            let config = Config::from_file(&out.join("models").join(&model.name).join("config.json")).unwrap();
            traced.residuals.push(used * MIB - Memory::of(&config, contract).unwrap().total_bytes as f64);
        }
    }
    traced
}

impl Traced {
    fn add(&mut self, hidden_size: usize, layers: &[String], request: &[Truth]) {
        let contexts = [(24, 2), (26, 4), (28, 6)];
        let mut put = |measure, context, part: &str, value: i64| {
            let key = Key { measure, context, hidden_size, part: part.into() };
            self.samples.entry(key).or_default().push(value);
        };
        for (layer, part) in layers.iter().enumerate() {
            let of = |step: &Truth| step.layers.get(&layer).copied().unwrap_or(0);
            put(Measure::Prefill, 0, part, of(&request[0]) + of(&request[1]));
            contexts.iter().for_each(|(context, at)| put(Measure::Decode, *context, part, of(&request[*at])));
        }
        put(Measure::Prefill, 0, REST, request[0].rest + request[1].rest);
        contexts.iter().for_each(|(context, at)| put(Measure::Decode, *context, REST, request[*at].rest));
    }
}

fn planned(dir: &Path) -> (Contract, SearchSpace, PathBuf) {
    let (contract, space) = tiny(dir);
    let out = dir.join("plan");
    let options = PlanOptions { layers_per_model: 5, starts: 2, weights: false };
    write_plan(&space, &contract, &options, &out).unwrap();
    assert!(!out.join("models/d128-00/model.safetensors").exists());
    (contract, space, out)
}

#[test]
fn traces_fill_the_table_to_the_nanosecond() {
    let dir = tempfile::tempdir().unwrap();
    let (contract, space, out) = planned(dir.path());
    assert!(ingest(&out).unwrap_err().to_string().contains("run.sh"));
    let traced = trace_all(&out, &contract);
    let ingested = ingest(&out).unwrap();
    assert!(ingested.missing.is_empty());
    assert!(
        ingested.traces.iter().all(|trace| trace.requests == 3 && trace.dropped_steps > 0),
        "{:?}",
        ingested.traces
    );
    let reserve = traced.residuals.iter().copied().fold(f64::MIN, f64::max);
    assert_eq!(ingested.reserve_bytes, Some(reserve));
    let mut table = ingested.table;
    assert_eq!(table.get(Measure::Reserve, 0, 0, MODEL).unwrap(), reserve);
    for (key, samples) in &traced.samples {
        let mut seconds: Vec<f64> = samples.iter().map(|ns| *ns as f64 / 1e9).collect();
        seconds.sort_by(f64::total_cmp);
        let middle = (seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0;
        let row = table.rows.get(key).unwrap_or_else(|| panic!("no row {key}"));
        assert_eq!((row.median, row.repeats), (middle, samples.len()), "{key}");
    }
    assert_eq!(table.rows.len(), traced.samples.len() + 1);
    // With the memory model's rows it is the table of the space: a cost model reads it, and nothing is estimated.
    let (whole, _) = roofline::estimate(&space, &contract, &table).unwrap();
    assert!(whole.rows.values().all(|cost| cost.repeats > 0));
    let predicted = CostModel::new(&space, &contract, &whole).unwrap().predict(&space.parent_choice()).unwrap();
    assert_eq!(predicted.reserve_bytes, reserve);
    // Read back from the saved file.
    let path = out.join("table.csv");
    table.save(&path).unwrap();
    assert_eq!(Table::from_file(&path).unwrap(), std::mem::take(&mut table));
}

#[test]
fn traces_of_something_else_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, out) = planned(dir.path());
    let folder = out.join("traces/d128-00");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("start-0.sqlite");
    let trace = |layers: usize, rows: &[usize]| {
        drop(std::fs::remove_file(&path));
        let mut export = Export::create(&path, Without::default());
        let mut server = Server::new(0, layers);
        rows.iter().for_each(|rows| server.eager(&mut export, *rows));
        export.finish();
        ingest(&out)
    };
    let whole = [32, 16, 2, 2, 2, 2, 2];
    let ingested = trace(5, &whole).unwrap();
    assert_eq!((ingested.traces[0].requests, ingested.reserve_bytes), (1, None));
    assert!(ingested.missing.contains(&"d64-00".to_owned()));
    // More layers than the model has; another workload.
    let error = trace(9, &whole).unwrap_err().to_string();
    assert!(error.contains("start-0.sqlite") && error.contains("d128-00"), "{error}");
    for rows in [&whole[..6], &[16, 16, 2, 2, 2, 2, 2], &[64, 32, 2, 2, 2, 2, 2]] {
        let error = trace(5, rows).unwrap_err().to_string();
        assert!(error.contains("no whole request") && error.contains("48 tokens"), "{error}");
    }
}
