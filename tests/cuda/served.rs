//! Promise: what a run ranks, serves and measures, it does on the GPU that was asked for. Importance is the CPU's, bytes are the
//! device's, and a cost table of one device is not taken for another's.

use std::path::Path;

use autocompress::cost::{Contract, Dummy, measure, weight_bytes};
use autocompress::device::{MeasuredOn, Precision, compute_on};
use autocompress::engine::profile::{Workload, profile, serve};
use autocompress::model::config::Layer;
use autocompress::model::{Lm, Purpose};
use autocompress::supernet::{Calibrator, Importance, Scores};

use super::common::relative_difference;
use super::train::{Sim, batch, fixture, tiny};
use super::{alone, autocompress, text, with_gpusim};

fn importance(lm: &Lm) -> Importance {
    let mut calibrator = Calibrator::new(lm);
    for step in 0..2 {
        let batch = batch(step, 2, 24);
        calibrator.add(&batch.tokens, &batch.rows().unwrap()).unwrap();
    }
    calibrator.finish().unwrap()
}

/// All scores, those of units that are sorted among each other in a list of their own.
fn scores(importance: Importance) -> Vec<Vec<f32>> {
    let mut lists = vec![importance.hidden, importance.layers.iter().map(|layer| layer.change).collect()];
    for layer in importance.layers {
        match layer.scores {
            Scores::Attention => {}
            Scores::Mamba { heads } => lists.push(heads),
            Scores::Mlp { width } => lists.push(width),
            Scores::Moe { experts, routed, shared } => lists.extend([vec![experts, shared], routed].concat()),
        }
    }
    lists
}

/// Units by falling score.
fn order(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
}

#[test]
fn importance_is_the_cpus_and_sorts_alike() {
    let _alone = alone();
    let sim = Sim::new();
    for (name, lm) in [("tiny", tiny()), ("latent", fixture("latent"))] {
        let cpu = importance(&lm);
        let on = |precision| importance(&lm.placed(&sim.place(precision), Purpose::Inference).unwrap());
        let gpu = on(Precision::F32);
        assert_eq!((gpu.sequences, gpu.tokens), (cpu.sequences, cpu.tokens));
        let cpu = scores(cpu);
        let mut worst = 0f32;
        for (got, want) in scores(gpu).into_iter().zip(&cpu) {
            // The smallest are squares of what rounding leaves.
            let floor = want.iter().fold(0f32, |most, score| most.max(score.abs())) / 1e3;
            let off = |got: f32, want: f32| (got - want).abs() / want.abs().max(floor).max(f32::MIN_POSITIVE);
            worst = got.iter().zip(want).fold(worst, |worst, (got, want)| worst.max(off(*got, *want)));
            // Where the order differs, the scores are the same but for rounding.
            for (mine, theirs) in order(&got).into_iter().zip(order(want)) {
                assert!(off(want[mine], want[theirs]) <= 2e-4, "{name}: unit {mine} in the place of {theirs}");
            }
        }
        println!("{name}: scores off by at most {worst:.1e}");
        assert!(worst <= 1e-4, "{name}: {worst:e}");
        // In bf16 tokens go to other experts where scores nearly tie; what all tokens pass is near.
        let off = relative_difference(&on(Precision::Bf16).hidden, &cpu[0]);
        println!("{name}: the hidden axis in bf16 off by {off:.1e}");
        assert!(off > 0.0 && off < 0.02, "{name}: {off}");
    }
    sim.finish();
}

/// Bytes of a layer's caches for a batch in bf16, the scan's states in f32.
fn cache_bytes(layer: &Layer, workload: &Workload) -> usize {
    let each = match layer {
        Layer::Attention(a) => 2 * 2 * workload.capacity() * a.kv_heads * a.head_dim,
        Layer::Mamba(m) => 2 * (m.conv_kernel - 1) * m.conv_channels() + 4 * m.inner() * m.state,
        Layer::Moe(_) | Layer::Mlp(_) => 0,
    };
    workload.batch * each
}

#[test]
fn a_request_is_served_and_counted_on_the_device() {
    let _alone = alone();
    let sim = Sim::new();
    let config = fixture("base").config;
    let contract = "device = 'cpu'\nengine = 'builtin'\nprecision = 'f32'\nthreads = 1\n\
                    [workload]\nbatch = 2\ninput_tokens = 12\noutput_tokens = 2\nprefill_chunk = 16\n\
                    [limits]\nmemory_of_parent = 0.5\n";
    let contract = Contract::from_toml(Path::new("contract.toml"), contract).unwrap();
    let workload = contract.workload;
    compute_on(Some(sim.place(Precision::Bf16)), || {
        let on = MeasuredOn::current();
        assert!(on.simulated && !on.is_cpu() && on.precision == Precision::Bf16, "{on}");
        let dummy = Dummy::new(&config).unwrap();
        let bytes: usize = dummy.lm.params.iter().map(|(_, p)| p.value.numel() * p.value.dtype().bytes()).sum();
        assert_eq!(dummy.layer_bytes.iter().sum::<usize>() + dummy.rest_bytes, bytes);
        assert_eq!(sim.gpu.memory().live, bytes);

        let parts = profile(&dummy.lm, &workload).unwrap();
        let caches: Vec<usize> = config.layers.iter().map(|layer| cache_bytes(layer, &workload)).collect();
        assert_eq!(parts.cache_bytes, caches);
        let mut widest = 0;
        for pass in [&[parts.prefill][..], &parts.decode].concat() {
            assert_eq!(pass.layers.len(), config.layers.len());
            for part in pass.layers.iter().chain([&pass.rest]) {
                assert!(part.seconds > 0.0 && part.workspace > 0, "{part:?}");
                widest = widest.max(part.workspace);
            }
        }
        let caches: usize = caches.iter().sum();
        let served = serve(&dummy.lm, &workload).unwrap();
        println!("caches {caches}, widest {widest}, peak {}", served.peak_bytes);
        assert!(served.prefill_seconds > 0.0 && served.decode_seconds > 0.0, "{served:?}");
        assert!((caches + widest / 2..caches + 2 * widest).contains(&served.peak_bytes), "{served:?}");

        // A model on the host is taken there.
        let measured = measure(&[&fixture("base")], &contract, 1).unwrap().remove(0);
        assert!(measured.peak_bytes > weight_bytes(&dummy.lm) + caches && measured.resident_bytes.is_none());
        assert!((measured.peak_bytes as f64) < 1.2 * (bytes + caches + widest) as f64, "{measured:?}");
    });
    sim.finish();
}

const RECIPE: &str = "
parent = 'PARENT'
space = 'space.toml'
contract = 'contract.toml'
data = { kind = 'tasks' }
rank = { sequences = 2, length = 32 }
profile = { repeats = 1, starts = 1, held_out = 1, held_out_repeats = 1 }
evaluate = { examples = 1, sequences = 2, length = 24 }
measure = { repeats = 1 }
[search]
draws = 1
[search.training]
steps = 1
sequences = 2
length = 48
learning_rate = 1e-3
[recover.training]
steps = 1
sequences = 2
length = 48
learning_rate = 1e-3
";
const SPACE: &str = "[moe]\nexperts = [8, 4]\nintermediate = [48, 32]\n";
const CONTRACT: &str = "
device = 'cpu'
engine = 'builtin'
precision = 'f32'
threads = 1
workload = { batch = 1, input_tokens = 8, output_tokens = 1, prefill_chunk = 8 }
limits = { latency_ms = 600000, memory_of_parent = 0.95 }
";

/// Two draws of 64 tokens a step, by estimates of a GPU that is not at hand.
const SEARCH: &str = "
parent = 'PRESETS/parents/tiny'
space = 'PRESETS/spaces/tiny.toml'
contract = 'vllm.toml'
data = { kind = 'tasks' }
rank = { sequences = 2, length = 32 }
[search]
draws = 2
router = { output_std = 0.3 }
[search.training]
steps = 3
sequences = 2
length = 64
learning_rate = 1e-3
[recover.training]
steps = 1
sequences = 2
length = 64
learning_rate = 1e-3
";
const VLLM: &str = "
device = 'rtx-5070'
engine = { name = 'vllm', version = '0.27.1', moe_backend = 'cutlass' }
precision = {}
workload = { batch = 1, input_tokens = 64, output_tokens = 16, prefill_chunk = 2048 }
limits = { latency_of_parent = 0.7 }
";

/// Of a step's line in the search's metrics: the distillation loss, and per axis the gradients' norms.
fn of_step(line: &serde_json::Value) -> (f64, Vec<f64>) {
    let norms = line["logit_gradient_norms"].as_object().unwrap().values();
    (line["distillation"].as_f64().unwrap(), norms.map(|axis| axis["distillation"].as_f64().unwrap()).collect())
}

#[test]
fn three_steps_of_the_search_command_are_the_cpus() {
    let (driver, none, folder) = (with_gpusim(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let presets = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("recipe.toml"), SEARCH.replace("PRESETS", presets)).unwrap();
    std::fs::write(at("vllm.toml"), VLLM).unwrap();
    let search = |out: &str, device: &[&str], libraries: &Path| {
        let (recipe, out) = (at("recipe.toml"), at(out));
        let run = |device: &[&str], libraries: &Path, command: &[&str]| {
            let output = autocompress(&[device, command, &[&recipe, "--out", &out, "--quiet"]].concat(), libraries);
            assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
        };
        // What is not compared is done where it is fast.
        for command in [&["rank"][..], &["profile"]] {
            run(&["--precision", "f32"], none.path(), command);
        }
        let start = std::time::Instant::now();
        run(device, libraries, &["search"]);
        println!("search {device:?}: {:.1} s", start.elapsed().as_secs_f64());
        let metrics = std::fs::read_to_string(Path::new(&out).join("search/metrics.jsonl")).unwrap();
        metrics.lines().map(|line| of_step(&serde_json::from_str(line).unwrap())).collect::<Vec<_>>()
    };
    let cpu = search("cpu", &["--precision", "f32"], none.path());
    let gpu = search("gpu", &["--device", "cuda", "--precision", "f32"], driver.path());
    assert_eq!((cpu.len(), gpu.len()), (3, 3));
    for (step, ((want, want_norms), (got, got_norms))) in cpu.iter().zip(&gpu).enumerate() {
        assert!((got - want).abs() <= 1e-4 * want, "step {step}: KD {got}, the CPU {want}");
        // From the second step on, both have gone their own way.
        let most = if step == 0 { 1e-4 } else { 1e-2 };
        for (got, want) in got_norms.iter().zip(want_norms) {
            assert!((got - want).abs() <= most * want, "step {step}: {got_norms:?}, the CPU {want_norms:?}");
        }
    }
}

/// Says first that times are none.
fn is_simulated(stderr: &[u8]) -> bool {
    text(stderr).starts_with("gpusim: an interpreter, no times") && text(stderr).lines().count() == 1
}

#[test]
fn one_recipe_runs_wholly_on_the_driver_that_the_loader_finds() {
    let (driver, none, folder) = (with_gpusim(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/reference/base");
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let (recipe, contract) = (file("recipe.toml", &RECIPE.replace("PARENT", model)), file("contract.toml", CONTRACT));
    file("space.toml", SPACE);
    let out = folder.path().join("run");
    let out_text = out.to_str().unwrap();
    let on_gpu = |args: &[&str]| {
        let output = autocompress(&[&["--device", "cuda"], args].concat(), driver.path());
        assert!(output.status.success() && is_simulated(&output.stderr), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let report = on_gpu(&["run", &recipe, "--out", out_text, "--quiet", "--json"]);
    let deployment = &report["deployment"];
    assert_eq!((&report["met"], &deployment["precision"]), (&true.into(), &"bf16".into()));
    assert!(deployment["device"].as_str().unwrap().starts_with("gpusim, CUDA 12."), "{deployment}");
    assert!(report["parent"]["resident_mib"].is_null());
    let on = |name: &str| {
        let text = std::fs::read_to_string(out.join(name)).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["measured_on"].clone()
    };
    let told = on("cost/profile.json");
    assert_eq!((&told["device"], &told["precision"]), (&"gpusim".into(), &"bf16".into()));
    assert_eq!((&told["simulated"], &on("measure/measure.json")), (&true.into(), &told));
    let card = std::fs::read_to_string(out.join("recovered/README.md")).unwrap();
    assert!(card.contains("this program's own engine on gpusim, CUDA 12."), "{card}");

    let validated =
        on_gpu(&["validate", &recipe, "--out", out_text, "--architectures", "2", "--repeats", "1", "--json"]);
    assert_eq!((&validated["measured_on"], validated["points"].as_array().unwrap().len()), (&told, 2));
    let measured = on_gpu(&["measure", model, "--contract", &contract, "--repeats", "1", "--json"]);
    assert_eq!(measured[0]["measured_on"], told);

    // The table is the interpreter's: nothing of the CPU is held against it, in another precision neither.
    let (cpu, wide) = (&[][..], &["--device", "cuda", "--precision", "f32"][..]);
    for (device, libraries, args) in [
        (cpu, none.path(), &["run"][..]),
        (cpu, none.path(), &["profile"]),
        (cpu, none.path(), &["measure"]),
        (cpu, none.path(), &["validate", "--repeats", "1"]),
        (wide, driver.path(), &["extract"]),
    ] {
        let output = autocompress(&[device, args, &[&recipe, "--out", out_text]].concat(), libraries);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        let names = ["profile.json", "a cost table of gpusim, CUDA 12.", "in bf16"];
        let wanted = if device.is_empty() { &names[..] } else { &["--precision f32"] };
        assert!(wanted.iter().all(|part| stderr.contains(part)), "{args:?}: {stderr}");
    }
    // Half a table neither.
    std::fs::remove_file(out.join("stages/profile.json")).unwrap();
    let output = autocompress(&["profile", &recipe, "--out", out_text], none.path());
    let stderr = text(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("this search space, contract and device"), "{stderr}");

    let other = folder.path().join("other");
    let rank = ["--device", "auto", "rank", &recipe, "--out", other.to_str().unwrap(), "--quiet"];
    let output = autocompress(&rank, none.path());
    let said = text(&output.stderr);
    // A machine with a driver of its own has nothing to say.
    assert!(output.status.success() && other.join("rank/importance.json").is_file(), "{said}");
    assert!(said.is_empty() || said == "--device auto: found no GPU, computing on the CPU\n", "{said}");
}
