//! Promise: models train and generate on a GPU as they do on the CPU. In f32 every op, every gradient of a model, losses and the
//! gates' gradients of search steps agree closely, and greedy tokens are the same; two runs give the same bits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use autocompress::autograd::check::check_on;
use autocompress::autograd::{GradientSink, Gradients, ParamId, Params, Tape, round_to_bf16};
use autocompress::data::{Batch, DataConfig, TasksConfig};
use autocompress::device::cuda::Cuda;
use autocompress::device::{Place, Precision, compute_on};
use autocompress::engine::{GenerateOptions, generate};
use autocompress::model::checkpoint::MtpChoice;
use autocompress::model::{Input, Lm, Purpose, initialise, load};
use autocompress::ops::adamw::{self, AdamWOptions, Moments};
use autocompress::ops::cross_entropy::cross_entropy;
use autocompress::ops::distill_loss::DistillOptions;
use autocompress::run::RunDir;
use autocompress::search::{Annealing, RouterOptions, Search, SearchOptions};
use autocompress::stages::recover::Recover;
use autocompress::supernet::{SearchSpace, Space};
use autocompress::tensor::{DType, Segments, Tensor};
use autocompress::train::{Job, Options, Progress, Schedule, StepState, train};

use super::alone;
use super::common::relative_difference;

/// gpusim as a place to compute; what it found, and what was left behind, is looked at in the end.
struct Sim {
    sim: gpusim::Installed,
    gpu: Arc<Cuda>,
}

impl Sim {
    fn new() -> Sim {
        let sim = gpusim::install().unwrap();
        let gpu = Arc::new(Cuda::open(0).unwrap());
        assert_eq!(gpu.name, "gpusim", "the tests must not run on a real device");
        // Every buffer ends where it ends.
        gpu.keep_at_most(0);
        sim.reset();
        Sim { sim, gpu }
    }

    fn place(&self, precision: Precision) -> Place {
        Place { gpu: self.gpu.clone(), precision }
    }

    fn finish(self) {
        let Sim { sim, gpu } = self;
        assert_eq!(sim.findings_text(), "");
        assert_eq!(Arc::strong_count(&gpu), 1, "a tensor outlives its test");
        drop(gpu);
        sim.check_leaks();
        assert_eq!(sim.findings_text(), "");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn fixture(name: &str) -> Lm {
    load(&root().join("tests/fixtures/reference").join(name), MtpChoice::Drop).unwrap().lm
}

fn tiny_folder() -> PathBuf {
    root().join("presets/parents/tiny")
}

fn tiny() -> Lm {
    load(&tiny_folder(), MtpChoice::Drop).unwrap().lm
}

fn batch(step: u64, sequences: usize, length: usize) -> Batch {
    let source = DataConfig::Tasks(TasksConfig::default()).source(256).unwrap();
    source.batch(3, step, sequences, length).unwrap()
}

#[test]
fn every_op_on_a_gpu_equals_its_reference() {
    /// Ops that no trainer calls yet: their kernels are checked by `kernels check` alone.
    const ON_THE_CPU: [&str; 2] = ["quantize", "quantized_linear"];
    let _alone = alone();
    let sim = Sim::new();
    let (mut faults, mut count) = (Vec::new(), 0);
    for (op, cases) in autocompress::ops::cases() {
        let start = Instant::now();
        if ON_THE_CPU.contains(&op) {
            continue;
        }
        count += cases.len();
        faults.extend(cases.iter().filter_map(|case| check_on(case, &sim.gpu).err()).map(|e| format!("{op}: {e}")));
        println!("{op}: {:.2} s", start.elapsed().as_secs_f64());
    }
    assert!(faults.is_empty(), "{} faults:\n{}\n{}", faults.len(), faults.join("\n"), sim.sim.findings_text());
    println!("{count} cases");
    sim.finish();
}

/// Loss and all gradients of next-token prediction.
fn loss_and_gradients(lm: &Lm, batch: &Batch, recompute: bool) -> (f32, Vec<Option<Vec<f32>>>) {
    let segments = batch.rows().unwrap();
    let tape = Tape::new();
    let input = Input { recompute, ..Input::new(&batch.tokens, &segments) };
    let output = lm.forward(&tape, &input).unwrap();
    let loss = cross_entropy(&tape, &output.hidden, &lm.head(&tape), &batch.targets).unwrap();
    let mut grads = Gradients::new(&lm.params);
    tape.backward(&loss, 0.5, &mut grads).unwrap();
    (loss.value().read_item().unwrap(), host(&lm.params, &grads))
}

fn host(params: &Params, grads: &Gradients) -> Vec<Option<Vec<f32>>> {
    let read = |id: ParamId| grads.get(id).map(|grad| grad.to_host().unwrap().f32().to_vec());
    params.iter().map(|(id, _)| read(id)).collect()
}

/// Holds gradients by parameter against others, in norm.
fn hold(what: &str, params: &Params, got: &[Option<Vec<f32>>], want: &[Option<Vec<f32>>], most: f64) {
    let mut worst = (0.0, String::new());
    for (((_, param), got), want) in params.iter().zip(got).zip(want) {
        assert_eq!(got.is_some(), want.is_some(), "{what}: {}", param.name);
        let (Some(got), Some(want)) = (got, want) else { continue };
        let off = relative_difference(got, want);
        assert!(off <= most, "{what}: gradient of {} off by {off:e}", param.name);
        worst = if off > worst.0 { (off, param.name.clone()) } else { worst };
    }
    println!("{what}: worst gradient {} off by {:.1e}", worst.1, worst.0);
}

#[test]
fn a_models_loss_and_gradients_are_the_cpus() {
    let _alone = alone();
    let sim = Sim::new();
    for (name, recompute) in [("base", false), ("latent", true)] {
        let lm = fixture(name);
        let batch = batch(1, 2, 24);
        let (loss, grads) = loss_and_gradients(&lm, &batch, false);
        let placed = lm.placed(&sim.place(Precision::F32), Purpose::Training).unwrap();
        let run = || loss_and_gradients(&placed, &batch, recompute);
        let (on_gpu, gpu_grads) = run();
        assert!((on_gpu - loss).abs() < 1e-5 * loss, "{name}: {on_gpu}, the CPU {loss}");
        hold(name, &lm.params, &gpu_grads, &grads, 1e-4);
        assert_eq!(run(), (on_gpu, gpu_grads), "two runs, the same bits");
    }
    sim.finish();
}

fn search_options() -> SearchOptions {
    SearchOptions {
        draws: 2,
        annealing: Annealing { steps: 40, ..Annealing::default() },
        // A random start: with equal candidates only the output layer would have gradients.
        router: RouterOptions { output_std: 0.3, ..RouterOptions::default() },
        ..SearchOptions::default()
    }
}

/// A step's loss and gradients, and the job's gradients still as it has them.
fn micro_batch(job: &mut dyn Job, batch: &Batch, step: u64) -> (f64, Gradients) {
    let state = StepState { step, learning_rate: 1e-3, seed: 8, sequences: batch.sequences, first_sequence: 0 };
    let mut grads = Gradients::new(job.params());
    let loss = job.micro_batch(batch, 1.0, &state, &mut grads).unwrap();
    job.after_step(&state).unwrap();
    (loss, grads)
}

fn update(job: &mut dyn Job, grads: &Gradients, moments: &mut Moments) {
    let norm = adamw::global_norm(grads.iter()).unwrap();
    adamw::step(job.params_mut(), grads, moments, 1e-3, (norm, 1.0), &AdamWOptions::default()).unwrap();
}

/// Copies the parameters of one job to another that is on the host.
fn same_start(from: &dyn Job, to: &mut dyn Job) {
    let values: Vec<Tensor> = from.params().iter().map(|(_, p)| p.value.clone()).collect();
    for (i, value) in values.into_iter().enumerate() {
        to.params_mut().replace(ParamId(i), value).unwrap();
    }
}

#[test]
fn search_steps_of_the_tiny_parent_are_the_cpus() {
    let _alone = alone();
    let sim = Sim::new();
    let parent = tiny();
    let space = Space::from_file(&root().join("presets/spaces/tiny.toml")).unwrap();
    let space = SearchSpace::new(&space, &parent.config).unwrap();
    let new = || Search::new(&parent, &space, &[], search_options(), 1).unwrap();
    let mut cpu = new();
    let mut moments = Moments::new(cpu.params()).unwrap();
    let start = Instant::now();
    for step in 0..3 {
        let batch = batch(step, 2, 64);
        let mut gpu = new();
        same_start(&cpu, &mut gpu);
        gpu.place(&sim.place(Precision::F32)).unwrap();
        let (loss, grads) = micro_batch(&mut cpu, &batch, step);
        let (gpu_loss, gpu_grads) = micro_batch(&mut gpu, &batch, step);
        println!("step {step}: KD {gpu_loss:.6}, the CPU {loss:.6}; {:.1} s", start.elapsed().as_secs_f64());
        assert!((gpu_loss - loss).abs() <= 1e-4 * loss, "step {step}: {gpu_loss}, the CPU {loss}");
        let (mine, theirs) = (gpu.state().unwrap(), cpu.state().unwrap());
        for (a, b) in mine.norms.iter().zip(&theirs.norms) {
            let off = (a.distillation - b.distillation).abs() / b.distillation;
            assert!(b.distillation > 0.0 && off <= 1e-4, "step {step}: {a:?}, the CPU {b:?}");
        }
        let (want, got) = (host(cpu.params(), &grads), host(gpu.params(), &gpu_grads));
        let router: Vec<usize> =
            cpu.params().iter().filter(|(_, p)| p.name.starts_with("router.")).map(|(id, _)| id.0).collect();
        assert!(router.len() > 2);
        for at in router {
            let (Some(got), Some(want)) = (&got[at], &want[at]) else { panic!("a gate without a gradient") };
            let off = relative_difference(got, want);
            assert!(off <= 1e-4, "step {step}: {} off by {off:e}", cpu.params().get(ParamId(at)).name);
        }
        hold(&format!("step {step}"), cpu.params(), &got, &want, 1e-3);
        update(&mut cpu, &grads, &mut moments);
    }
    sim.finish();
}

/// ⟨a, b⟩ / ‖a‖‖b‖, and ‖a‖ / ‖b‖.
fn alike(a: &[f32], b: &[f32]) -> (f64, f64) {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let (aa, bb) = (dot(a, a).sqrt(), dot(b, b).sqrt());
    (dot(a, b) / (aa * bb), aa / bb)
}

/// The same weights, rounded to bf16.
fn rounded(lm: &Lm) -> Lm {
    let mut params = lm.params.clone();
    for i in 0..params.len() {
        let wide = ["A_log", "D", "dt_bias", "e_score_correction_bias"];
        if !wide.iter().any(|name| params.get(ParamId(i)).name.ends_with(name)) {
            let value = params.get(ParamId(i)).value.cast(DType::Bf16).cast(DType::F32);
            params.replace(ParamId(i), value).unwrap();
        }
    }
    Lm::new(lm.config.clone(), params).unwrap()
}

#[test]
fn a_search_and_a_recovery_step_in_bf16_are_close_to_the_cpus_rounded_alike() {
    let _alone = alone();
    let sim = Sim::new();
    let parent = rounded(&tiny());
    let space = Space::from_file(&root().join("presets/spaces/tiny.toml")).unwrap();
    let space = SearchSpace::new(&space, &parent.config).unwrap();
    let new = || Search::new(&parent, &space, &[], search_options(), 1).unwrap();
    let batch = batch(0, 2, 64);
    let on_cpu = |job: &mut dyn Job| {
        round_to_bf16(true);
        let done = micro_batch(job, &batch, 0);
        round_to_bf16(false);
        done
    };
    let (mut cpu, mut gpu) = (new(), new());
    gpu.place(&sim.place(Precision::Bf16)).unwrap();
    let ((loss, grads), (gpu_loss, gpu_grads)) = (on_cpu(&mut cpu), micro_batch(&mut gpu, &batch, 0));
    println!("KD {gpu_loss:.5}, the CPU {loss:.5}");
    assert!((gpu_loss - loss).abs() <= 0.01 * loss, "{gpu_loss}, the CPU {loss}");
    let mut least: f64 = 1.0;
    for (id, param) in cpu.params().iter().filter(|(_, p)| p.name.starts_with("router.output.")) {
        let (a, b) = (gpu_grads.get(id).unwrap(), grads.get(id).unwrap());
        let (cosine, ratio) = alike(a.f32(), b.f32());
        assert!(cosine >= 0.99 && (ratio - 1.0).abs() <= 0.05, "{}: cosine {cosine}, norm times {ratio}", param.name);
        least = least.min(cosine);
    }
    println!("gates' gradients: least cosine {least:.5}");
    drop((gpu, gpu_grads));

    let student = || rounded(&Lm::new(parent.config.clone(), initialise(&parent.config, 5).unwrap()).unwrap());
    let job = || Recover::new(student(), &parent, DistillOptions::default(), false);
    let (mut cpu, mut gpu) = (job(), job());
    gpu.place(&sim.place(Precision::Bf16)).unwrap();
    let ((loss, grads), (gpu_loss, gpu_grads)) = (on_cpu(&mut cpu), micro_batch(&mut gpu, &batch, 0));
    assert!((gpu_loss - loss).abs() <= 0.01 * loss, "{gpu_loss}, the CPU {loss}");
    for (id, param) in cpu.params().iter() {
        let (Some(a), Some(b)) = (gpu_grads.get(id), grads.get(id)) else { continue };
        let (cosine, ratio) = alike(a.to_host().unwrap().f32(), b.f32());
        assert!(cosine >= 0.99 && (ratio - 1.0).abs() <= 0.05, "{}: cosine {cosine}, norm times {ratio}", param.name);
    }
    drop((gpu, gpu_grads));
    sim.finish();
}

#[test]
fn a_recovery_step_is_the_cpus() {
    let _alone = alone();
    let sim = Sim::new();
    let parent = tiny();
    let student = || Lm::new(parent.config.clone(), initialise(&parent.config, 5).unwrap()).unwrap();
    let job = || Recover::new(student(), &parent, DistillOptions::default(), false);
    let (mut cpu, mut gpu) = (job(), job());
    gpu.place(&sim.place(Precision::F32)).unwrap();
    let batch = batch(0, 2, 64);
    let (loss, grads) = micro_batch(&mut cpu, &batch, 0);
    let (gpu_loss, gpu_grads) = micro_batch(&mut gpu, &batch, 0);
    assert!((gpu_loss - loss).abs() <= 1e-4 * loss, "{gpu_loss}, the CPU {loss}");
    hold("recovery", &cpu.student.params, &host(gpu.params(), &gpu_grads), &host(cpu.params(), &grads), 1e-4);
    let norms = (adamw::global_norm(gpu_grads.iter()).unwrap(), adamw::global_norm(grads.iter()).unwrap());
    assert!((norms.0 - norms.1).abs() < 1e-4 * norms.1, "{norms:?}");
    // The same gradients on both, so that the update alone is compared.
    let (mut cpu_moments, mut gpu_moments) = (Moments::new(cpu.params()).unwrap(), Moments::new(gpu.params()).unwrap());
    update(&mut gpu, &gpu_grads, &mut gpu_moments);
    let mut same = Gradients::new(cpu.params());
    for (id, grad) in gpu_grads.iter() {
        let grad = grad.to_host().unwrap();
        let mut write = |sum: &mut Tensor, _| {
            *sum = grad.clone();
            Ok(())
        };
        same.accumulate(id, &mut write).unwrap();
    }
    update(&mut cpu, &same, &mut cpu_moments);
    for ((_, a), (_, b)) in gpu.params().iter().zip(cpu.params().iter()) {
        let off = relative_difference(a.value.to_host().unwrap().f32(), b.value.f32());
        assert!(off < 1e-6, "{} off by {off:e} after the update", a.name);
    }
    drop((gpu, gpu_grads, gpu_moments));
    sim.finish();
}

/// Two steps of recovery through the training loop: the folder's metrics and the student's weights.
fn recovered(place: Option<Place>, steps: u64, folder: &Path) -> (Vec<f64>, Vec<Vec<f32>>) {
    let parent = fixture("base");
    let student = Lm::new(parent.config.clone(), initialise(&parent.config, 5).unwrap()).unwrap();
    let mut job = Recover::new(student, &parent, DistillOptions::default(), true);
    let options = Options {
        steps,
        sequences: 2,
        length: 48,
        micro_batches: 2,
        schedule: Schedule { peak: 1e-3, floor: 1e-3, warmup: 0, steps },
        max_norm: 1.0,
        optimizer: AdamWOptions::default(),
        seed: 4,
        checkpoint_every: 1000,
        table: "recover.training",
    };
    let source = DataConfig::Tasks(TasksConfig::default()).source(256).unwrap();
    let run = RunDir::create_or_open(folder, "a recipe", &[]).unwrap();
    let mut progress = Progress::new("recover", steps, true);
    compute_on(place, || train(&mut job, source, &options, &run, "recover", &mut progress)).unwrap();
    let text = std::fs::read_to_string(folder.join("recover/metrics.jsonl")).unwrap();
    let loss = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64().unwrap();
    (text.lines().map(loss).collect(), job.params().iter().map(|(_, p)| p.value.f32().to_vec()).collect())
}

#[test]
fn the_training_loop_runs_resumes_and_repeats_on_a_gpu() {
    let _alone = alone();
    let sim = Sim::new();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (cpu, _) = recovered(None, 2, &at("cpu"));
    for precision in [Precision::F32, Precision::Bf16] {
        let place = || Some(sim.place(precision));
        let name = format!("{precision:?}");
        let (losses, weights) = recovered(place(), 2, &at(&name));
        let most = if precision == Precision::F32 { 1e-4 } else { 2e-2 };
        for (a, b) in losses.iter().zip(&cpu) {
            assert!((a - b).abs() < most * b, "{precision:?}: {losses:?}, the CPU {cpu:?}");
        }
        // The same bits again: in bf16 by way of a checkpoint.
        let again = at(&format!("{name} again"));
        if precision == Precision::Bf16 {
            recovered(place(), 1, &again);
        }
        assert_eq!(recovered(place(), 2, &again), (losses, weights));
    }
    sim.finish();
}

#[test]
fn greedy_tokens_are_the_cpus() {
    let _alone = alone();
    let sim = Sim::new();
    let lm = tiny();
    let prompts: Vec<Vec<u32>> =
        ["copy: abc", "1+2=", "z"].iter().map(|p| p.bytes().map(u32::from).collect()).collect();
    // A stop ends one sequence before the others, and prompts are cut.
    let options = GenerateOptions { max_tokens: 6, prefill_chunk: 5, ..GenerateOptions::default() };
    let cpu = generate(&lm, &prompts, &options).unwrap();
    let stop = vec![cpu[0].tokens[2]];
    let options = GenerateOptions { stop, ..options };
    let cpu = generate(&lm, &prompts, &options).unwrap();
    let on = |precision| {
        let placed = lm.placed(&sim.place(precision), Purpose::Inference).unwrap();
        generate(&placed, &prompts, &options).unwrap()
    };
    assert_eq!(on(Precision::F32), cpu);
    assert_eq!(on(Precision::Bf16), on(Precision::Bf16));
    sim.finish();
}

#[test]
fn segments_do_not_mix_on_a_gpu() {
    let _alone = alone();
    let sim = Sim::new();
    let lm = fixture("base").placed(&sim.place(Precision::F32), Purpose::Inference).unwrap();
    let hidden = |tokens: &[u32], offsets: &[usize]| {
        let segments = Segments::from_offsets(offsets).unwrap();
        let output = lm.forward(&Tape::inference(), &Input::new(tokens, &segments)).unwrap();
        output.hidden.value().to_host().unwrap().f32().to_vec()
    };
    let (a, b) = (hidden(&[5, 6, 7, 8, 9], &[0, 2, 5]), hidden(&[1, 2, 7, 8, 9], &[0, 2, 5]));
    let d = lm.config.hidden_size;
    assert!(a[..2 * d] != b[..2 * d] && relative_difference(&a[2 * d..], &b[2 * d..]) < 1e-6);
    drop(lm);
    sim.finish();
}
