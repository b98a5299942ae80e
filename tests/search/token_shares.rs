//! Which experts a step's tokens go to, as a search tells it.

use autocompress::autograd::{Gradients, Tape};
use autocompress::data::{Batch, Source};
use autocompress::model::config::Layer;
use autocompress::model::{ExpertMasking, Input, Lm, Output};
use autocompress::search::{RouterOptions, Search, SearchOptions, SearchState, TokenShare, token_shares};
use autocompress::supernet::SearchSpace;
use autocompress::train::{Job, StepState};

use crate::jobs::{Noise, options, parent, space_of};

const EXPERTS: &str = "[moe]\nexperts = [8, 6, 4]";

fn counting(expert_masking: ExpertMasking, recompute: bool) -> SearchOptions {
    let router = RouterOptions { output_std: 0.3, ..RouterOptions::default() };
    SearchOptions { expert_masking, recompute, router, token_shares: true, ..options() }
}

/// The state after a step whose batch is computed in parts.
fn step(parent: &Lm, space: &SearchSpace, options: SearchOptions, batch: &Batch, parts: usize) -> SearchState {
    let mut job = Search::new(parent, space, &[], options, 1).unwrap();
    let mut grads = Gradients::new(job.params());
    let (sequences, mut first_sequence) = (batch.sequences, 0);
    for part in batch.split(parts) {
        let state = StepState { step: 0, learning_rate: 1e-3, seed: 8, sequences, first_sequence, products: None };
        let share = part.valid_tokens() as f32 / batch.valid_tokens() as f32;
        job.micro_batch(&part, share, &state, &mut grads).unwrap();
        first_sequence += part.sequences;
        if first_sequence == sequences {
            job.after_step(&state).unwrap();
        }
    }
    job.state().unwrap().clone()
}

/// The definition, word for word, of a layer's pairs per expert.
fn by_definition(load: &[u32], groups: usize, candidates: &[usize]) -> TokenShare {
    let all: f64 = load.iter().map(|n| f64::from(*n)).sum();
    let period = load.len() / groups;
    let pairs = |c: usize| -> f64 {
        let first = if c == 0 { 0 } else { candidates[c - 1] / groups };
        let ranks = first..candidates[c] / groups;
        ranks.flat_map(|rank| (0..groups).map(move |g| g * period + rank)).map(|e| f64::from(load[e])).sum()
    };
    let most = f64::from(*load.iter().max().unwrap());
    TokenShare {
        by_candidate: (0..candidates.len()).map(|c| pairs(c) / all).collect(),
        busiest: load.len() as f64 * most / all,
    }
}

#[test]
fn shares_are_those_of_the_supernets_own_routing() {
    let parent = parent();
    let space = space_of(&parent, EXPERTS);
    let batch = Noise.batch(5, 0, 4, 12).unwrap();
    let segments = batch.rows().unwrap();
    let output = parent.forward(&Tape::inference(), &Input::new(&batch.tokens, &segments)).unwrap();
    let loads = Output::counts(&output.loads).unwrap();
    let (layer, groups) = (parent.config.layers.iter().enumerate())
        .find_map(|(i, layer)| if let Layer::Moe(moe) = layer { Some((i, moe.n_group)) } else { None })
        .unwrap();
    let expected = by_definition(&loads[0], groups, &[4, 6, 8]);
    let states = [false, true].map(|recompute| {
        step(&parent, &space, counting(ExpertMasking::Output, recompute), &batch, 1).token_shares.unwrap()
    });
    assert_eq!(states[0], states[1], "activations computed again are not counted again");
    let [output, _] = states;
    // Nothing before the first MoE layer is masked, and masks on outputs leave the choice to the parent.
    assert_eq!(output[0], (format!("layers.{layer}.experts"), expected));
    assert_eq!(output.len(), loads.len());
    for (name, share) in &output {
        assert!(
            (share.by_candidate.iter().sum::<f64>() - 1.0).abs() < 1e-12 && share.busiest >= 1.0,
            "{name}: {share:?}"
        );
    }
    // Masked scores send tokens to the experts that all candidates keep.
    let score = step(&parent, &space, counting(ExpertMasking::Score, false), &batch, 1).token_shares.unwrap();
    for ((name, output), (_, score)) in output.iter().zip(&score) {
        assert!(score.by_candidate[0] > output.by_candidate[0] + 0.05, "{name}: {output:?} {score:?}");
    }
}

#[test]
fn micro_batches_and_threads_tell_the_same_shares() {
    let parent = parent();
    let space = space_of(&parent, EXPERTS);
    let batch = Noise.batch(6, 0, 4, 12).unwrap();
    let options = counting(ExpertMasking::Output, false);
    let shares = |parts| step(&parent, &space, options, &batch, parts).token_shares.unwrap();
    let whole = shares(1);
    assert_eq!(autocompress::device::with_threads(1, || shares(1)).unwrap(), whole);
    for parts in [2, 4] {
        assert_eq!(shares(parts), whole, "{parts} parts");
    }
    let untold = step(&parent, &space, SearchOptions { token_shares: false, ..options }, &batch, 1);
    assert_eq!(untold, SearchState { token_shares: None, ..step(&parent, &space, options, &batch, 1) });
    let mut line = serde_json::Map::new();
    untold.write(&mut line);
    assert!(!line.contains_key("expert_token_shares"));
}

#[test]
fn groups_ties_and_nothing_at_all_have_shares() {
    let parent = parent();
    let space = space_of(&parent, EXPERTS);
    let Some(Layer::Moe(moe)) = space.parent.layers.iter().find(|layer| matches!(layer, Layer::Moe(_))) else {
        panic!("a parent with experts")
    };
    for load in [[1u32, 2, 3, 4, 5, 6, 7, 8], [9, 0, 0, 0, 0, 0, 0, 0], [5; 8]] {
        let loads = [load.iter().map(|n| u64::from(*n)).collect::<Vec<u64>>()];
        let (_, share) = token_shares(&space, &loads).remove(0);
        assert_eq!(share, by_definition(&load, moe.n_group, &[4, 6, 8]), "{load:?}");
    }
    let (_, share) = token_shares(&space, &[vec![0; 8]]).remove(0);
    assert_eq!(share, TokenShare { by_candidate: vec![0.0; 3], busiest: 0.0 });
}
