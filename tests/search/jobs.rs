//! The search as a job: steps, convergence, resume.

use std::path::Path;

use autocompress::autograd::Gradients;
use autocompress::cost::{LayerTerm, Resource};
use autocompress::data::source::{Place, Row};
use autocompress::data::{Batch, IGNORE, Source};
use autocompress::device::Precision;
use autocompress::model::checkpoint::MtpChoice;
use autocompress::model::{ExpertMasking, Lm};
use autocompress::numerics::Philox;
use autocompress::ops::adamw::AdamWOptions;
use autocompress::run::RunDir;
use autocompress::search::{Annealing, Budget, RouterOptions, Search, SearchOptions, Slack, Trained, repair};
use autocompress::supernet::{SearchSpace, Space};
use autocompress::train::{Job, Options, Progress, Schedule, StepState, Summary, train};

use crate::common::{relative_difference, same_bits};

const SPACE: &str = "hidden_size = [64, 48, 32]\n[mamba]\nheads = [8, 4]\nremove = true\n\
    [moe]\nexperts = [8, 6, 4]\nintermediate = [48, 24, 0]\nshared_intermediate = [80, 40, 0]";

pub fn parent() -> Lm {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference/base");
    autocompress::model::load(&dir, MtpChoice::Drop).unwrap().lm
}

fn space(parent: &Lm) -> SearchSpace {
    space_of(parent, SPACE)
}

pub fn space_of(parent: &Lm, text: &str) -> SearchSpace {
    SearchSpace::new(&Space::from_toml(Path::new("space.toml"), text).unwrap(), &parent.config).unwrap()
}

/// Parameters, roughly: every layer's sizes times d. At most `share` of the parent's.
fn parameters(space: &SearchSpace, share: f64) -> Resource {
    let candidates: Vec<usize> = space.gates.iter().map(|gate| gate.candidates.len()).collect();
    let global_gates: Vec<usize> = (0..candidates.len()).filter(|g| space.gates[*g].layer.is_none()).collect();
    let size = |gate: usize, c: usize| space.gates[gate].candidates[c] as f64;
    let contexts: Vec<(f64, f64)> =
        (0..candidates[0]).flat_map(|d| (0..candidates[1]).map(move |h| (size(0, d), size(1, h)))).collect();
    let mut layers = Vec::new();
    for layer in 0..space.parent.layers.len() {
        let gates: Vec<usize> = (0..candidates.len()).filter(|g| space.gates[*g].layer == Some(layer)).collect();
        let values = contexts.iter().map(|(d, heads)| match gates.as_slice() {
            [] => vec![64.0 * d],
            [_] => vec![0.0, 48.0 * heads * d],
            &[e, f, s] => {
                let all = (0..candidates[e]).flat_map(|i| (0..candidates[f]).map(move |j| (i, j)));
                let all = all.flat_map(|(i, j)| (0..candidates[s]).map(move |k| (i, j, k)));
                all.map(|(i, j, k)| 2.0 * d * (size(e, i) * size(f, j) + size(s, k))).collect()
            }
            other => panic!("{other:?}"),
        });
        layers.push(LayerTerm { values: values.collect(), gates });
    }
    let constant = contexts.iter().map(|(d, _)| 32.0 * d).collect();
    let (name, unit) = ("memory".into(), "weights".into());
    let mut resource = Resource {
        name,
        unit,
        limit: 1.0,
        candidates,
        global_gates,
        constant,
        layers,
        widest: Vec::new(),
        counted: None,
    };
    resource.limit = share * resource.cost(&space.parent_choice().0);
    resource
}

/// Random tokens in documents; every row ends without a target.
pub struct Noise;

impl Source for Noise {
    fn fill(&self, place: Place, row: Row<'_>) -> autocompress::Result<()> {
        let noise = Philox::new(place.seed, place.global_row()?);
        let token = |i: usize| (noise.uniform(i as u64) * 256.0) as u32;
        for (i, (t, target)) in row.tokens.iter_mut().zip(row.targets.iter_mut()).enumerate() {
            *t = token(i);
            // Rows have different numbers of targets.
            *target = if i % (2 + place.row) == 0 { IGNORE } else { token(i + 1) };
        }
        Ok(())
    }
}

pub fn options() -> SearchOptions {
    SearchOptions {
        draws: 2,
        annealing: Annealing { steps: 40, ..Annealing::default() },
        budget: Budget { alpha: 1.0, ..Budget::default() },
        ..SearchOptions::default()
    }
}

fn loop_options(steps: u64, sequences: usize) -> Options {
    Options {
        table: "train",
        steps,
        sequences,
        length: 12,
        micro_batches: 1,
        schedule: Schedule { peak: 1e-3, floor: 1e-3, warmup: 0, steps },
        max_norm: 1.0,
        optimizer: AdamWOptions::default(),
        seed: 4,
        checkpoint_every: 1000,
        precision: None,
        wide_layers: None,
    }
}

fn run(job: &mut Search<'_>, options: &Options, folder: &Path) -> Summary {
    let run = RunDir::create_or_open(folder, "a recipe", &[]).unwrap();
    train(job, Box::new(Noise), options, &run, "search", &mut Progress::new("search", options.steps, true)).unwrap()
}

/// The gradients and the loss of step 3, whose batch is computed in parts.
fn gradients(job: &mut Search<'_>, batch: &Batch, parts: usize) -> (Gradients, f64) {
    let mut state = StepState {
        step: 3,
        learning_rate: 1e-3,
        seed: 8,
        sequences: batch.sequences,
        first_sequence: 0,
        products: None,
    };
    let mut grads = Gradients::new(job.params());
    let mut loss = 0.0;
    for part in batch.split(parts) {
        let share = part.valid_tokens() as f64 / batch.valid_tokens() as f64;
        loss += share * job.micro_batch(&part, share as f32, &state, &mut grads).unwrap();
        state.first_sequence += part.sequences;
    }
    job.after_step(&state).unwrap();
    (grads, loss)
}

#[test]
fn micro_batches_give_the_step_of_one_batch() {
    let parent = parent();
    let space = space(&parent);
    let resources = [parameters(&space, 0.6)];
    let batch = Noise.batch(5, 0, 4, 12).unwrap();
    for (mode, masking, recompute) in [
        (Trained::Joint, ExpertMasking::Output, false),
        (Trained::Joint, ExpertMasking::Score, true),
        (Trained::Router, ExpertMasking::Output, true),
    ] {
        // A random start: with equal candidates only the output layer would have gradients.
        let router = RouterOptions { output_std: 0.3, ..RouterOptions::default() };
        let options = SearchOptions { train: mode, expert_masking: masking, recompute, router, ..options() };
        let step = |parts| {
            let mut job = Search::new(&parent, &space, &resources, options, 1).unwrap();
            let (grads, loss) = gradients(&mut job, &batch, parts);
            (grads, loss, job.state().unwrap().clone())
        };
        let (whole, loss, state) = step(1);
        for parts in [2, 4] {
            let (split, split_loss, split_state) = step(parts);
            assert!((loss - split_loss).abs() < 1e-5 * loss, "{loss} {split_loss}");
            assert_eq!((&state.rho, state.penalty), (&split_state.rho, split_state.penalty));
            assert!((state.distillation - split_state.distillation).abs() < 1e-5 * state.distillation);
            assert!((loss - state.distillation - state.penalty).abs() < 1e-9);
            for (a, b) in state.norms.iter().zip(&split_state.norms) {
                assert!(a.distillation > 0.0 && a.budget > 0.0 && a.budget == b.budget, "{a:?} {b:?}");
                assert!((a.distillation - b.distillation).abs() < 1e-3 * a.distillation, "{a:?} {b:?}");
            }
            assert_eq!(whole.iter().count(), split.iter().count());
            for (id, grad) in whole.iter() {
                let off = relative_difference(split.get(id).unwrap().f32(), grad.f32());
                assert!(off < 1e-3, "{mode:?} {masking:?} in {parts} parts: gradient {id:?} off by {off:e}");
            }
        }
    }
}

#[test]
fn a_search_meets_its_limit() {
    let parent = parent();
    let space = space(&parent);
    let resources = [parameters(&space, 0.6)];
    for (mode, slack) in [(Trained::Router, Slack::Each), (Trained::Joint, Slack::Binding)] {
        let folder = tempfile::tempdir().unwrap();
        let options = SearchOptions {
            train: mode,
            budget: Budget { alpha: 10.0, delta: 0.05, slack },
            router: RouterOptions { rate: 2.0, ..RouterOptions::default() },
            draws: 4,
            annealing: Annealing { steps: 150, ..Annealing::default() },
            ..options()
        };
        let mut job = Search::new(&parent, &space, &resources, options, 2).unwrap();
        let before = resources[0].rho(&job.choice().unwrap().0);
        let summary = run(&mut job, &loop_options(150, 4), folder.path());
        let state = job.state().unwrap();
        let hard = state.rho[0].2;
        let p = job.log_probabilities(summary.steps - 1).unwrap();
        let repaired = repair(&space, &p, &resources, 0.05).unwrap();
        println!(
            "{mode:?}: {} steps, ρ {before:.3} → mean {:.3}, hard {hard:.3}, repaired {:?} by {:?}, least {:.2}",
            summary.steps,
            state.rho[0].1,
            repaired.rho_after,
            repaired.gates_changed,
            state.gates.iter().map(|gate| gate.leading()).fold(1.0, f64::min)
        );
        assert!((0.8..=1.05).contains(&state.rho[0].1), "ρ {}", state.rho[0].1);
        assert!((0.8..=1.0).contains(&hard), "hard ρ {hard}");
        assert_eq!(state.choice, job.choice().unwrap());
        assert!(repaired.rho_after[0] <= 1.0);
        let trained = job.supernet().params.iter().zip(parent.params.iter());
        let changed = trained.filter(|((_, a), (_, b))| !same_bits(&a.value, &b.value)).count();
        assert_eq!(changed > 0, mode == Trained::Joint);
        let text = std::fs::read_to_string(folder.path().join("search/metrics.jsonl")).unwrap();
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["rho"]["memory"]["hard"].as_f64(), Some(hard));
        assert_eq!(last["gates"]["hidden_size"]["probabilities"].as_array().unwrap().len(), 3);
        assert!(last["logit_gradient_norms"]["intermediate"]["distillation"].is_number());
        assert_eq!(last["converged"].as_bool(), Some(state.converged));
    }
}

#[test]
fn the_router_alone_shares_the_parents_weights() {
    let parent = parent();
    let space = space(&parent);
    let job = Search::new(&parent, &space, &[], SearchOptions { train: Trained::Router, ..options() }, 0).unwrap();
    assert!(job.params().iter().all(|(_, p)| p.name.starts_with("router.")));
    for ((_, a), (_, b)) in job.supernet().params.iter().zip(parent.params.iter()) {
        assert_eq!(a.value.f32().as_ptr(), b.value.f32().as_ptr());
    }
}

/// A router whose candidates are decided from the start.
fn decided(rate: f32) -> SearchOptions {
    let router = RouterOptions { output_std: 300.0, rate, ..RouterOptions::default() };
    let annealing = Annealing { tau: [100.0, 100.0], ..options().annealing };
    SearchOptions { router, annealing, train: Trained::Router, ..options() }
}

#[test]
fn a_router_that_does_not_learn_never_converges() {
    let parent = parent();
    let space = space(&parent);
    let resources = [parameters(&space, 0.6)];
    let folder = tempfile::tempdir().unwrap();
    let mut job = Search::new(&parent, &space, &resources, decided(0.0), 6).unwrap();
    let summary = run(&mut job, &loop_options(3, 2), folder.path());
    let state = job.state().unwrap();
    assert!(state.gates.iter().all(|gate| gate.leading() >= 0.95 && !gate.moved), "{:?}", state.gates);
    assert!(!state.converged && !job.finished() && summary.steps == 3);
    // Equal candidates that never move are not decided either.
    let router = RouterOptions { rate: 0.0, ..RouterOptions::default() };
    let mut job = Search::new(&parent, &space, &resources, SearchOptions { router, ..options() }, 6).unwrap();
    let folder = tempfile::tempdir().unwrap();
    run(&mut job, &loop_options(1, 2), folder.path());
    assert!(!job.finished());
}

#[test]
fn a_converged_search_ends_and_stays_ended() {
    let parent = parent();
    let space = space(&parent);
    let mut resources = [parameters(&space, 0.6)];
    // Settled, but not at its limit: it goes on.
    let mut job = Search::new(&parent, &space, &resources, decided(1.0), 6).unwrap();
    let folder = tempfile::tempdir().unwrap();
    run(&mut job, &loop_options(3, 2), folder.path());
    let state = job.state().unwrap();
    assert!(state.gates.iter().all(|gate| gate.leading() >= 0.95 && gate.moved), "{:?}", state.gates);
    assert!(!(0.98..=1.0).contains(&resources[0].rho(&state.choice.0)) && !job.finished());
    resources[0].limit *= 1.01 * resources[0].rho(&state.choice.0);
    let folder = tempfile::tempdir().unwrap();
    let new = || Search::new(&parent, &space, &resources, decided(1.0), 6).unwrap();
    let mut job = new();
    let first = run(&mut job, &loop_options(9, 2), folder.path());
    assert!(job.finished() && first.steps < 9, "{} steps, {:?}", first.steps, job.state().unwrap().gates);
    let params = job.params().clone();
    let mut job = new();
    let again = run(&mut job, &loop_options(9, 2), folder.path());
    assert_eq!((again.steps, again.tokens), (first.steps, first.tokens));
    assert!(job.params().iter().zip(params.iter()).all(|((_, a), (_, b))| same_bits(&a.value, &b.value)));
}

#[test]
fn a_resumed_search_has_the_same_bits() {
    let parent = parent();
    let space = space(&parent);
    let resources = [parameters(&space, 0.6)];
    for mode in [Trained::Joint, Trained::Router] {
        let router = RouterOptions { warmup_steps: 4, ..RouterOptions::default() };
        let new =
            || Search::new(&parent, &space, &resources, SearchOptions { train: mode, router, ..options() }, 3).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (mut whole, mut first, mut second) = (new(), new(), new());
        run(&mut whole, &loop_options(5, 2), &folder.path().join("whole"));
        run(&mut first, &Options { steps: 2, ..loop_options(5, 2) }, &folder.path().join("parts"));
        run(&mut second, &loop_options(5, 2), &folder.path().join("parts"));
        let mut pairs = whole.params().iter().zip(second.params().iter());
        assert!(pairs.all(|((_, a), (_, b))| same_bits(&a.value, &b.value)));
        assert_eq!(whole.state(), second.state());
        let read = |name: &str| std::fs::read(folder.path().join(name).join("search/metrics.jsonl")).unwrap();
        assert_eq!(read("whole"), read("parts"));
    }
}

/// Half a search in one precision and half in another would be of neither.
#[test]
fn a_search_begun_in_another_precision_is_refused_and_kept() {
    let parent = parent();
    let space = space(&parent);
    let new = || Search::new(&parent, &space, &[], options(), 3).unwrap();
    let folder = tempfile::tempdir().unwrap();
    run(&mut new(), &Options { steps: 2, ..loop_options(4, 2) }, folder.path());
    let files = ["metrics.jsonl", "checkpoints/step-00000002/state.json"];
    let read = || files.map(|name| std::fs::read(folder.path().join("search").join(name)).unwrap());
    let before = read();
    let opened = || RunDir::create_or_open(folder.path(), "a recipe", &[]).unwrap();
    let go_on = |precision| {
        let options = Options { precision, ..loop_options(4, 2) };
        train(&mut new(), Box::new(Noise), &options, &opened(), "search", &mut Progress::new("search", 4, true))
    };
    let error = go_on(Some(Precision::Fp8)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    for part in
        ["step-00000002/state.json", "begun on cpu in f32", "cpu in fp8", "--device and --precision", "checkpoints"]
    {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(read(), before);
    // The CPU computes in f32 where bf16 is asked for.
    assert_eq!(go_on(Some(Precision::Bf16)).unwrap().steps, 4);
    // Of a finished search nothing is left to compute.
    assert_eq!(go_on(Some(Precision::Fp8)).unwrap().steps, 4);
}

#[test]
fn what_does_not_fit_is_refused() {
    let parent = parent();
    let space = space(&parent);
    let mut resource = parameters(&space, 0.6);
    let batch = Noise.batch(5, 0, 3, 12).unwrap();
    let mut job = Search::new(&parent, &space, &[], options(), 1).unwrap();
    let state = StepState { step: 0, learning_rate: 1e-3, seed: 8, sequences: 3, first_sequence: 0, products: None };
    let mut grads = Gradients::new(job.params());
    let error = job.micro_batch(&batch, 1.0, &state, &mut grads).unwrap_err().to_string();
    assert!(error.contains("multiple of 2 draws"), "{error}");
    resource.candidates.push(2);
    assert!(Search::new(&parent, &space, &[resource], options(), 1).is_err());
    let refused = |change: &dyn Fn(&mut SearchOptions)| {
        let mut options = options();
        change(&mut options);
        assert!(Search::new(&parent, &space, &[], options, 1).is_err());
    };
    refused(&|o| o.draws = 0);
    refused(&|o| o.annealing.tau[1] = 0.0);
    refused(&|o| o.annealing.kappa[0] = f32::NAN);
    refused(&|o| o.budget.alpha = -1.0);
    refused(&|o| o.budget.delta = 1.0);
    refused(&|o| o.router.width = 0);
    refused(&|o| o.router.output_std = f32::INFINITY);
    refused(&|o| o.converged_at = 1.0);
    refused(&|o| o.distill.temperature = 0.0);
}
