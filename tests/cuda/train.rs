//! Promise: models train and generate on a GPU as they do on the CPU. In f32 every op, every gradient of a model, losses and the
//! gates' gradients of search steps agree closely, and greedy tokens are the same; two runs give the same bits. In bf16 steps are
//! held to a CPU that rounds where a GPU stores bf16, and op by op to one that sees what the GPU stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use autocompress::autograd::check::{Generator, check_on};
use autocompress::autograd::{GradientSink, Gradients, ParamId, Params, Play, Stored, Tape, Var, store};
use autocompress::data::{Batch, DataConfig, TasksConfig};
use autocompress::device::cuda::Cuda;
use autocompress::device::{Place, Precision, compute_on};
use autocompress::engine::{GenerateOptions, generate};
use autocompress::model::checkpoint::MtpChoice;
use autocompress::model::{Input, Lm, Products, Purpose, initialise, load};
use autocompress::ops::adamw::{self, AdamWOptions, Moments};
use autocompress::ops::cross_entropy::cross_entropy;
use autocompress::ops::distill_loss::DistillOptions;
use autocompress::ops::moe_route::{Replay, replay};
use autocompress::ops::quantize::Dice;
use autocompress::ops::quantized_grouped_gemm::quantized_grouped_gemm;
use autocompress::ops::quantized_linear;
use autocompress::run::RunDir;
use autocompress::search::{Annealing, RouterOptions, Search, SearchOptions};
use autocompress::stages::recover::Recover;
use autocompress::supernet::{SearchSpace, Space};
use autocompress::tensor::{DType, Segments, Tensor};
use autocompress::train::{Job, Options, Progress, Schedule, StepState, train};

use super::alone;
use super::common::relative_difference;

/// gpusim as a place to compute; what it found, and what was left behind, is looked at in the end.
pub struct Sim {
    sim: gpusim::Installed,
    pub gpu: Arc<Cuda>,
}

impl Sim {
    pub fn new() -> Sim {
        let sim = gpusim::install().unwrap();
        let gpu = Arc::new(Cuda::open(0).unwrap());
        assert_eq!(gpu.name, "gpusim", "the tests must not run on a real device");
        // Every buffer ends where it ends.
        gpu.keep_at_most(0);
        sim.reset();
        Sim { sim, gpu }
    }

    pub fn place(&self, precision: Precision) -> Place {
        Place { gpu: self.gpu.clone(), precision }
    }

    pub fn finish(self) {
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

pub fn fixture(name: &str) -> Lm {
    load(&root().join("tests/fixtures/reference").join(name), MtpChoice::Drop).unwrap().lm
}

fn tiny_folder() -> PathBuf {
    root().join("presets/parents/tiny")
}

pub fn tiny() -> Lm {
    load(&tiny_folder(), MtpChoice::Drop).unwrap().lm
}

pub fn batch(step: u64, sequences: usize, length: usize) -> Batch {
    let source = DataConfig::Tasks(TasksConfig::default()).source(256).unwrap();
    source.batch(3, step, sequences, length).unwrap()
}

#[test]
fn every_op_on_a_gpu_equals_its_reference() {
    let _alone = alone();
    let sim = Sim::new();
    let (mut faults, mut count) = (Vec::new(), 0);
    for (op, cases) in autocompress::ops::cases() {
        let start = Instant::now();
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
    quantised_micro_batch(job, batch, step, None)
}

fn quantised_micro_batch(job: &mut dyn Job, batch: &Batch, step: u64, products: Option<Products>) -> (f64, Gradients) {
    let state =
        StepState { step, learning_rate: 1e-3, seed: 8, sequences: batch.sequences, first_sequence: 0, products };
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
    if aa == 0.0 && bb == 0.0 { (1.0, 1.0) } else { (dot(a, b) / (aa * bb), aa / bb) }
}

/// Rounds to bf16 what a GPU has in bf16: the weights of models but for a few vectors, and nothing of the router.
fn round_weights(params: &mut Params) {
    for i in 0..params.len() {
        let name = &params.get(ParamId(i)).name;
        let wide = ["A_log", "D", "dt_bias", "e_score_correction_bias"];
        if !name.starts_with("router.") && !wide.iter().any(|wide| name.ends_with(wide)) {
            let value = params.get(ParamId(i)).value.cast(DType::Bf16).cast(DType::F32);
            params.replace(ParamId(i), value).unwrap();
        }
    }
}

/// The same weights, rounded to bf16.
fn rounded(lm: &Lm) -> Lm {
    let mut params = lm.params.clone();
    round_weights(&mut params);
    Lm::new(lm.config.clone(), params).unwrap()
}

/// A step of a job.
struct Step {
    loss: f64,
    /// By parameter.
    grads: Vec<Option<Vec<f32>>>,
}

/// The same step on gpusim in bf16, and on the CPU, which sends tokens to the experts that the GPU chose.
struct InBf16 {
    job: Box<dyn Job>,
    gpu: Step,
    /// The CPU rounds where a GPU stores bf16. Some ops later, roundings are no longer the same.
    rounded: Step,
    /// The CPU's ops see what the GPU stored.
    played: Step,
}

/// KD, gradients' cosines and norms: where roundings go apart, and where the CPU's ops see the GPU's values.
const ROUNDED: [f64; 3] = [0.01, 0.99, 0.05];
const PLAYED: [f64; 3] = [1e-4, 0.9999, 0.005];
/// Of an op's own result in bf16, over its norm, to what a GPU stored: values, gradients.
const MOST_OFF: [f64; 2] = [1.0 / 512.0, 1.0 / 128.0];

fn in_bf16(sim: &Sim, new: &dyn Fn() -> Box<dyn Job>, batch: &Batch, step: u64) -> InBf16 {
    let step_of = |mut job: Box<dyn Job>| {
        let (loss, grads) = micro_batch(&mut *job, batch, step);
        (Step { loss, grads: host(job.params(), &grads) }, job)
    };
    let mut job = new();
    job.place(&sim.place(Precision::Bf16)).unwrap();
    store(Stored::Keep(Vec::new()));
    let ((gpu, job), chosen) = recorded(|| step_of(job));
    let Stored::Keep(kept) = store(Stored::Own) else { unreachable!("kept above") };
    assert_eq!(chosen.len(), 8, "of four MoE layers of the teacher and of the student");

    store(Stored::Nearest);
    let (rounded, _) = played(chosen.clone(), || step_of(new()));
    store(Stored::Play(Play::new(kept)));
    let (cpu, _) = played(chosen, || step_of(new()));
    let Stored::Play(play) = store(Stored::Own) else { unreachable!("played above") };
    assert!(play.fault.is_none() && play.left() == 0, "{:?}, {} left", play.fault, play.left());
    assert!(play.furthest.len() > 20, "{:?}", play.furthest);
    for (what, off) in &play.furthest {
        let most = MOST_OFF[usize::from(what.starts_with("gradient"))];
        assert!(*off <= most, "{what} in bf16: off by {off:e}");
    }
    InBf16 { job, gpu, rounded, played: cpu }
}

/// What `work` gives, and the experts it chose.
fn recorded<T>(work: impl FnOnce() -> T) -> (T, Vec<Vec<u32>>) {
    replay(Replay::Record(Vec::new()));
    let done = work();
    let Replay::Record(chosen) = replay(Replay::Off) else { unreachable!("recorded above") };
    (done, chosen)
}

/// What `work` gives with these experts.
fn played<T>(chosen: Vec<Vec<u32>>, work: impl FnOnce() -> T) -> T {
    replay(Replay::Play(chosen.into()));
    let done = work();
    assert!(matches!(replay(Replay::Off), Replay::Play(left) if left.is_empty()));
    done
}

/// The same weights, rounded to bf16, of a random student.
fn random_student(parent: &Lm) -> Lm {
    rounded(&Lm::new(parent.config.clone(), initialise(&parent.config, 5).unwrap()).unwrap())
}

/// Holds KD to a share, and of the parameters that `of` picks by name, gradients to a cosine and norms to a share.
fn hold_in_bf16(
    what: &str,
    done: &InBf16,
    cpu: &Step,
    of: impl Fn(&str) -> bool,
    [kd_most, cosine_least, norm_most]: [f64; 3],
) {
    let off = (done.gpu.loss - cpu.loss).abs() / cpu.loss;
    assert!(off <= kd_most, "{what}: KD {}, the CPU {}", done.gpu.loss, cpu.loss);
    hold_alike(what, done.job.params(), (&done.gpu.grads, &cpu.grads), of, [cosine_least, norm_most]);
}

/// A step's gradients, parameter by parameter.
type Grads = [Option<Vec<f32>>];

fn hold_alike(
    what: &str,
    params: &Params,
    (got, want): (&Grads, &Grads),
    of: impl Fn(&str) -> bool,
    [cosine_least, norm_most]: [f64; 2],
) {
    let (mut least, mut furthest, mut count) = ((1f64, ""), (0f64, ""), 0);
    for ((_, param), (a, b)) in params.iter().zip(got.iter().zip(want)).filter(|((_, param), _)| of(&param.name)) {
        assert_eq!(a.is_some(), b.is_some(), "{what}: {}", param.name);
        let (Some(a), Some(b)) = (a, b) else { continue };
        let (cosine, ratio) = alike(a, b);
        let off = (ratio - 1.0).abs();
        assert!(cosine.is_finite() && off.is_finite(), "{what}: {}", param.name);
        count += 1;
        least = if cosine < least.0 { (cosine, &param.name) } else { least };
        furthest = if off > furthest.0 { (off, &param.name) } else { furthest };
    }
    println!("{what}: {count} gradients, least cosine {least:?}, norms off by at most {furthest:?}");
    assert!(count > 0, "{what}: nothing to compare");
    assert!(
        least.0 >= cosine_least && furthest.0 <= norm_most,
        "{what}: least cosine {least:?}, norms off by {furthest:?}"
    );
}

#[test]
fn search_steps_and_a_recovery_step_in_bf16_are_the_cpus() {
    let _alone = alone();
    let sim = Sim::new();
    let parent: &Lm = Box::leak(Box::new(rounded(&tiny())));
    let space = Space::from_file(&root().join("presets/spaces/tiny.toml")).unwrap();
    let space: &SearchSpace = Box::leak(Box::new(SearchSpace::new(&space, &parent.config).unwrap()));
    let search = || Box::new(Search::new(parent, space, &[], search_options(), 1).unwrap()) as Box<dyn Job>;
    let is_gate = |name: &str| name.starts_with("router.output.");
    // Each step begins at the CPU's state after the one before.
    let mut state = search();
    let mut moments = Moments::new(state.params()).unwrap();
    for step in 0..3 {
        let batch = batch(step, 2, 64);
        let new = || {
            let mut job = search();
            same_start(&*state, &mut *job);
            job
        };
        let done = in_bf16(&sim, &new, &batch, step);
        hold_in_bf16(&format!("search, step {step}"), &done, &done.played, is_gate, PLAYED);
        if step == 0 {
            hold_in_bf16("search, rounded", &done, &done.rounded, is_gate, ROUNDED);
        }
        let (_, grads) = micro_batch(&mut *state, &batch, step);
        update(&mut *state, &grads, &mut moments);
        round_weights(state.params_mut());
    }
    let recover =
        || Box::new(Recover::new(random_student(parent), parent, DistillOptions::default(), false)) as Box<dyn Job>;
    let done = in_bf16(&sim, &recover, &batch(0, 2, 64), 0);
    hold_in_bf16("recovery", &done, &done.played, |_| true, PLAYED);
    hold_in_bf16("recovery, rounded", &done, &done.rounded, |_| true, ROUNDED);
    drop(done);
    sim.finish();
}

#[test]
fn quantised_search_and_recovery_steps_are_the_cpus() {
    let _alone = alone();
    let sim = Sim::new();
    let parent = tiny();
    let space = Space::from_file(&root().join("presets/spaces/tiny.toml")).unwrap();
    let space = SearchSpace::new(&space, &parent.config).unwrap();
    let batch = batch(0, 2, 64);
    for precision in [quantized_linear::Precision::Fp8, quantized_linear::Precision::Nvfp4] {
        let products = Some(Products::new(precision));
        let search = || Search::new(&parent, &space, &[], search_options(), 1).unwrap();
        let student = || Lm::new(parent.config.clone(), initialise(&parent.config, 5).unwrap()).unwrap();
        let recover = || Recover::new(student(), &parent, DistillOptions::default(), false);
        let start = Instant::now();
        compare_quantised(
            &format!("search in {precision:?}"),
            &sim,
            (search(), search()),
            &batch,
            products,
            [0.995, 0.02],
        );
        // Random weights: one number that goes to its other neighbour early moves all that follows, and 4 bits are far apart.
        let fp8 = precision == quantized_linear::Precision::Fp8;
        let bounds = if fp8 { [0.99, 0.08] } else { [0.95, 0.15] };
        compare_quantised(
            &format!("recovery in {precision:?}"),
            &sim,
            (recover(), recover()),
            &batch,
            products,
            bounds,
        );
        println!("{precision:?}: {:.1} s", start.elapsed().as_secs_f64());
    }
    sim.finish();
}

/// Sums of products differ in their last bits, which now and then sends a number to its other neighbour of a few bits. Tokens go to
/// the same experts. One product alone agrees to 1e-6, as the test below has it.
fn compare_quantised(
    what: &str,
    sim: &Sim,
    (mut cpu, mut gpu): (impl Job, impl Job),
    batch: &Batch,
    products: Option<Products>,
    bounds: [f64; 2],
) {
    gpu.place(&sim.place(Precision::F32)).unwrap();
    let (plain, _) = quantised_micro_batch(&mut cpu, batch, 0, None);
    let ((gpu_loss, gpu_grads), chosen) = recorded(|| quantised_micro_batch(&mut gpu, batch, 0, products));
    let (loss, grads) = played(chosen, || quantised_micro_batch(&mut cpu, batch, 0, products));
    println!("{what}: KD {gpu_loss:.6}, the CPU {loss:.6}, without quantising {plain:.6}");
    assert!((plain - loss).abs() > 1e-4 * loss, "{what}: nothing is quantised");
    assert!((gpu_loss - loss).abs() <= 1e-3 * loss, "{what}: {gpu_loss}, the CPU {loss}");
    let grads = (&host(cpu.params(), &gpu_grads)[..], &host(cpu.params(), &grads)[..]);
    hold_alike(what, cpu.params(), grads, |_| true, bounds);
}

/// y and both gradients of an op, on a GPU or the CPU.
fn value_and_gradients(
    gpu: Option<&Arc<Cuda>>,
    (x, w, dy): (&Tensor, &Tensor, &[Tensor]),
    op: &dyn Fn(&Tape<'_>, &Var, &Var) -> Vec<Var>,
) -> Vec<Vec<f32>> {
    let there = |t: &Tensor| gpu.map_or_else(|| t.clone(), |gpu| t.to_gpu(gpu).unwrap());
    let tape = Tape::new();
    let (x, w) = (tape.leaf(there(x)), tape.leaf(there(w)));
    let outputs = op(&tape, &x, &w);
    let mut values: Vec<Tensor> = outputs.iter().map(|y| y.value().clone()).collect();
    let grads = tape.backward_from(&outputs, dy.iter().map(there).collect(), &mut ()).unwrap();
    values.extend([grads.take(&x).unwrap(), grads.take(&w).unwrap()]);
    values.iter().map(|value| value.to_host().unwrap().f32().to_vec()).collect()
}

#[test]
fn gradients_of_quantised_products_are_the_cpus() {
    let _alone = alone();
    let sim = Sim::new();
    let mut generator = Generator::new(11);
    let mut normal = |dims: &[usize]| Tensor::from_slice(dims, &generator.normal("", dims, 1.0).values);
    let (rows, inner) = (150, 70);
    let x = normal(&[rows, inner]);
    let (w, dy) = (normal(&[150, inner]), [normal(&[rows, 20]), normal(&[rows, 130])]);
    let offsets: Arc<[usize]> = Arc::new([0, 20, 20, 150]);
    let (experts, dys) = (normal(&[3, 40, inner]), [normal(&[rows, 40])]);
    for precision in [quantized_linear::Precision::Fp8, quantized_linear::Precision::Nvfp4] {
        let dice = Dice::new(1, 2, 3);
        let split = |tape: &Tape<'_>, x: &Var, w: &Var| {
            quantized_linear::quantized_linear_split(tape, x, w, &[20, 130], precision, dice).unwrap()
        };
        let grouped = |tape: &Tape<'_>, x: &Var, w: &Var| {
            vec![quantized_grouped_gemm(tape, x, w, &offsets, precision, dice).unwrap()]
        };
        let both = |inputs: (&Tensor, &Tensor, &[Tensor]), op: &dyn Fn(&Tape<'_>, &Var, &Var) -> Vec<Var>| {
            let (got, want) = (value_and_gradients(Some(&sim.gpu), inputs, op), value_and_gradients(None, inputs, op));
            assert_eq!(got, value_and_gradients(Some(&sim.gpu), inputs, op), "two runs, the same bits");
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                let off = relative_difference(got, want);
                // The operands are the same bits: only sums differ.
                assert!(off < 1e-6, "{precision:?}: output {at} off by {off:e}");
            }
        };
        both((&x, &w, &dy), &split);
        both((&x, &experts, &dys), &grouped);
    }
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
        precision: None,
        wide_layers: None,
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
