//! Promise: a checkpoint gives the logits, the loss, every gradient and the greedy continuation that transformers gives.

mod common;

use autocompress::autograd::{Gradients, Tape};
use autocompress::engine::{GenerateOptions, generate};
use autocompress::model::checkpoint::MtpChoice;
use autocompress::model::{Input, Lm};
use autocompress::ops::cross_entropy::cross_entropy;
use common::{Expected, flatten, largest_difference, next_tokens, reference_cases, relative_difference};

const LOGITS: f32 = 1e-4;
const LOSS: f32 = 1e-5;
const GRADIENT: f64 = 1e-3;

#[test]
fn logits_loss_and_gradients() {
    let cases = reference_cases();
    assert!(cases.len() >= 3);
    for case in cases {
        let (expected, name) = (Expected::read(&case), case.display());
        let lm = autocompress::model::load(&case, MtpChoice::Drop).unwrap().lm;
        let sequences = expected.ids("ids").unwrap();
        for recompute in [false, true] {
            let (loss, logits, grads) = run(&lm, &sequences, recompute);
            let (_, want) = expected.f32("logits").unwrap();
            let off = largest_difference(&logits, &want);
            assert!(off <= LOGITS, "{name}: logits off by {off}");
            if let Some((_, want)) = expected.f32("loss") {
                let off = (loss - want[0]).abs();
                assert!(off <= LOSS, "{name}: loss off by {off}");
            }
            let (worst, compared) = compare_gradients(&lm, &grads, &expected);
            if case.starts_with(env!("CARGO_MANIFEST_DIR")) {
                let trainable = lm.params.iter().filter(|(_, p)| p.trainable).count();
                assert_eq!(compared, trainable, "{name}: parameters without a gradient to compare with");
            }
            println!(
                "{name}, recompute {recompute}: logits off by {off:e}, worst of {compared} gradients by {worst:e}"
            );
        }
    }
}

fn run(lm: &Lm, sequences: &[Vec<u32>], recompute: bool) -> (f32, Vec<f32>, Gradients) {
    let (tokens, segments) = flatten(sequences);
    let tape = Tape::new();
    let input = Input { recompute, ..Input::new(&tokens, &segments) };
    let hidden = lm.forward(&tape, &input).unwrap().hidden;
    let logits = lm.logits(hidden.value()).unwrap().f32().to_vec();
    let loss = cross_entropy(&tape, &hidden, &lm.head(&tape), &next_tokens(sequences)).unwrap();
    let value = loss.value().item();
    let mut grads = Gradients::new(&lm.params);
    tape.backward(&loss, 1.0, &mut grads).unwrap();
    (value, logits, grads)
}

/// The largest relative difference over the gradients in the file, and how many these are.
fn compare_gradients(lm: &Lm, grads: &Gradients, expected: &Expected) -> (f64, usize) {
    let file = expected.file();
    let mut compared = 0;
    let mut worst: f64 = 0.0;
    for name in file.names().into_iter().filter_map(|n| n.strip_prefix("grad.")) {
        // transformers says `model.`, and names stacked experts without `.weight`.
        let mut ours = name.strip_prefix("model.").map_or_else(|| name.to_owned(), |rest| format!("backbone.{rest}"));
        if ours.ends_with("experts.up_proj") || ours.ends_with("experts.down_proj") {
            ours += ".weight";
        }
        let id = lm.params.find(&ours).unwrap_or_else(|| panic!("no parameter {ours}"));
        let (_, want) = expected.f32(&format!("grad.{name}")).unwrap();
        let zeros = vec![0.0; want.len()]; // a parameter that nothing reached
        let off = relative_difference(grads.get(id).map_or(&zeros, |grad| grad.f32()), &want);
        assert!(off <= GRADIENT, "gradient of {ours} off by {off:e}");
        worst = worst.max(off);
        compared += 1;
    }
    (worst, compared)
}

#[test]
fn greedy_continuation() {
    let mut compared = 0;
    for case in reference_cases() {
        let expected = Expected::read(&case);
        let Some(greedy) = expected.ids("greedy") else { continue };
        let prompts = expected.ids("ids").unwrap();
        let lm = autocompress::model::load(&case, MtpChoice::Drop).unwrap().lm;
        for prefill_chunk in [5, 512] {
            let max_tokens = greedy[0].len() - prompts[0].len();
            let options = GenerateOptions { max_tokens, prefill_chunk, ..GenerateOptions::default() };
            let generations = generate(&lm, &prompts, &options).unwrap();
            for ((prompt, generation), want) in prompts.iter().zip(&generations).zip(&greedy) {
                assert_eq!(generation.tokens, want[prompt.len()..], "{}", case.display());
            }
        }
        compared += 1;
    }
    assert!(compared >= 3);
}
