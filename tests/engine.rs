//! Promise: cached decode equals the uncached forward, however the prompt is cut and whatever else is in the batch.

mod common;

use autocompress::autograd::Tape;
use autocompress::engine::{Engine, GenerateOptions, generate};
use autocompress::model::checkpoint::MtpChoice;
use autocompress::model::{Input, Lm};
use common::{Expected, flatten, largest_difference, reference_cases};

const CLOSE: f32 = 1e-4;

fn models() -> Vec<(String, Lm, Vec<Vec<u32>>)> {
    let load = |case: &std::path::PathBuf| {
        let ids = Expected::read(case).ids("ids").unwrap();
        (case.display().to_string(), autocompress::model::load(case, MtpChoice::Drop).unwrap().lm, ids)
    };
    reference_cases().iter().map(load).collect()
}

/// The logits after every token of one sequence, without a cache.
fn uncached(lm: &Lm, sequence: &[u32]) -> Vec<f32> {
    let (tokens, segments) = flatten(&[sequence.to_vec()]);
    let hidden = lm.forward(&Tape::inference(), &Input::new(&tokens, &segments)).unwrap().hidden;
    lm.logits(hidden.value()).unwrap().f32().to_vec()
}

#[test]
fn decode_token_by_token_equals_one_forward() {
    for (name, lm, ids) in models() {
        let (sequence, vocab) = (&ids[0], lm.config.vocab_size);
        let want = uncached(&lm, sequence);
        let mut engine = Engine::new(&lm, 1, sequence.len(), 8).unwrap();
        let mut logits = engine.prefill(&[sequence[..1].to_vec()]).unwrap();
        for t in 0..sequence.len() {
            let off = largest_difference(logits.f32(), &want[t * vocab..][..vocab]);
            assert!(off <= CLOSE, "{name}: token {t} off by {off}");
            if t + 1 < sequence.len() {
                logits = engine.decode(&sequence[t + 1..t + 2], &[0]).unwrap();
            }
        }
    }
}

#[test]
fn prefill_in_any_pieces_equals_one_forward() {
    for (name, lm, ids) in models() {
        let long: Vec<u32> = ids[0].iter().cycle().take(150).copied().collect();
        let prompts = vec![long.clone(), long[3..20].to_vec(), long[..1].to_vec()];
        let vocab = lm.config.vocab_size;
        for chunk in [1, 7, 16, 64, 1000] {
            let logits = Engine::new(&lm, 3, 150, chunk).unwrap().prefill(&prompts).unwrap();
            for (got, prompt) in logits.f32().chunks(vocab).zip(&prompts) {
                let all = uncached(&lm, prompt);
                let off = largest_difference(got, &all[all.len() - vocab..]);
                assert!(off <= CLOSE, "{name}: chunk {chunk}, prompt of {}: off by {off}", prompt.len());
            }
        }
    }
}

#[test]
fn a_sequence_does_not_depend_on_its_batch() {
    for (name, lm, ids) in models() {
        let prompts: Vec<Vec<u32>> =
            [30, 1, 12, 5].iter().map(|n| ids[0].iter().cycle().take(*n).copied().collect()).collect();
        for temperature in [0.0, 0.8] {
            let options = GenerateOptions { max_tokens: 12, temperature, top_p: 0.9, seed: 4, ..Default::default() };
            let together = generate(&lm, &prompts, &options).unwrap();
            // Draws are keyed by the sequence's place, so only the first can be compared alone when sampling.
            let count = if temperature == 0.0 { prompts.len() } else { 1 };
            for i in 0..count {
                let alone = generate(&lm, &prompts[i..=i], &options).unwrap();
                assert_eq!(alone[0], together[i], "{name}: prompt {i} at temperature {temperature}");
            }
        }
    }
}

#[test]
fn stop_ids_end_a_continuation_and_are_not_part_of_it() {
    let (_, lm, ids) = models().remove(0);
    let options = GenerateOptions { max_tokens: 10, ..Default::default() };
    let free = generate(&lm, &ids[..1], &options).unwrap().remove(0);
    assert_eq!((free.tokens.len(), free.stopped), (10, None));
    let stop = free.tokens[4];
    let first = free.tokens.iter().position(|t| *t == stop).unwrap();
    let stopped = generate(&lm, &ids[..1], &GenerateOptions { stop: vec![stop], ..options }).unwrap().remove(0);
    assert_eq!((stopped.tokens.as_slice(), stopped.stopped), (&free.tokens[..first], Some(stop)));
}

#[test]
fn a_token_beyond_the_capacity_or_the_vocabulary_is_refused() {
    let (_, lm, _) = models().remove(0);
    let mut engine = Engine::new(&lm, 1, 3, 8).unwrap();
    let error = engine.prefill(&[vec![5; 4]]).unwrap_err().to_string();
    assert!(error.contains("4 tokens") && error.contains("at most 3"), "{error}");
    let error = Engine::new(&lm, 1, 3, 8).unwrap().prefill(&[vec![5, 100_000]]).unwrap_err().to_string();
    assert!(error.contains("100000"), "{error}");
}
