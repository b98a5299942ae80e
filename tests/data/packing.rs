//! Packing loses no token and wastes none.

use std::collections::HashSet;

use autocompress::Error;
use autocompress::data::pack::{Documents, PackedSource};
use autocompress::data::{Batch, Boundaries, IGNORE, Part, Source, passes, sequences_of_pass};
use proptest::prelude::*;

use crate::common::{check_batch, numbered};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packing_loses_no_token_and_wastes_none(
        lengths in prop::collection::vec(1usize..40, 1..20),
        length in 1usize..50,
        sequences in 1usize..4,
        seed in any::<u64>(),
    ) {
        let (list, all) = numbered(&lengths);
        let total: usize = lengths.iter().sum();
        let source = PackedSource::from_documents(all, Boundaries::Apart).unwrap();
        prop_assert_eq!(source.tokens(), total);
        let steps = (2 * total).div_ceil(sequences * length) as u64;
        let batches: Vec<Batch> =
            (0..steps).map(|step| source.batch(seed, step, sequences, length).unwrap()).collect();
        let stream: Vec<u32> = batches.iter().flat_map(|batch| batch.tokens.clone()).collect();
        // Each epoch is all documents, whole, in some order.
        for epoch in stream.chunks_exact(total).take(2) {
            let mut rest = epoch;
            let mut seen = HashSet::new();
            while let Some(&first) = rest.first() {
                let document = list.iter().find(|document| document[0] == first).expect("a document's first token");
                prop_assert_eq!(&rest[..document.len()], &document[..]);
                prop_assert!(seen.insert(first));
                rest = &rest[document.len()..];
            }
            prop_assert_eq!(seen.len(), list.len());
        }
        let firsts: HashSet<u32> = list.iter().map(|document| document[0]).collect();
        let lasts: HashSet<u32> = list.iter().map(|document| document[document.len() - 1]).collect();
        for batch in &batches {
            check_batch(batch);
            for at in 0..batch.tokens.len() {
                let starts = at % length == 0 || firsts.contains(&batch.tokens[at]);
                prop_assert_eq!(batch.segments.contains(&at), starts);
                let ends = (at + 1) % length == 0 || lasts.contains(&batch.tokens[at]);
                prop_assert_eq!(batch.targets[at] == IGNORE, ends);
            }
        }
    }
}

#[test]
fn joined_documents_are_one_segment_a_row() {
    let (_, all) = numbered(&[5, 9, 3, 7]);
    let apart = PackedSource::from_documents(all.clone(), Boundaries::Apart).unwrap().batch(3, 0, 3, 8).unwrap();
    let joined = PackedSource::from_documents(all, Boundaries::Joined).unwrap().batch(3, 0, 3, 8).unwrap();
    assert_eq!(joined.segments, [0, 8, 16, 24]);
    assert!(apart.segments.len() > 4);
    assert_eq!((apart.tokens, apart.targets), (joined.tokens, joined.targets));
}

#[test]
fn epochs_are_shuffled_by_seed_and_number() {
    let (_, all) = numbered(&[4; 50]);
    let source = PackedSource::from_documents(all, Boundaries::Apart).unwrap();
    let epoch = |seed, step| source.batch(seed, step, 1, 200).unwrap().tokens;
    assert_ne!(epoch(1, 0), epoch(1, 1));
    assert_ne!(epoch(1, 0), epoch(2, 0));
    let sorted: Vec<u32> = (10..210).collect();
    assert_ne!(epoch(1, 0), sorted);
    // More epochs than are remembered, then back again.
    let first = epoch(1, 0);
    (0..5).for_each(|step| drop(epoch(1, step)));
    assert_eq!(epoch(1, 0), first);
}

/// What is read once has every row of one batch, once, however it is cut into passes.
#[test]
fn passes_have_the_rows_of_one_batch() {
    let (_, all) = numbered(&[7; 40]);
    let source = PackedSource::from_documents(all, Boundaries::Apart).unwrap();
    assert_eq!(Source::tokens(&source), Some(280));
    for (sequences, length) in [(1, 4), (10, 28), (3, 2000), (5, 1500)] {
        let whole = source.batch(3, 0, sequences, length).unwrap();
        let parts: Vec<Batch> = passes(&source, 3, sequences, length).map(Result::unwrap).collect();
        assert_eq!(parts.len(), sequences.div_ceil(sequences_of_pass(sequences, length)));
        assert_eq!(parts.iter().map(|part| part.sequences).sum::<usize>(), sequences);
        assert_eq!(parts.iter().flat_map(|part| part.tokens.clone()).collect::<Vec<_>>(), whole.tokens);
        assert_eq!(parts.iter().flat_map(|part| part.targets.clone()).collect::<Vec<_>>(), whole.targets);
    }
    // An epoch in rows: every token once. Five sequences in passes of two: the last is not the second pass again.
    let mut tokens: Vec<u32> = passes(&source, 3, 10, 28).flat_map(|part| part.unwrap().tokens).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (10..290).collect::<Vec<u32>>());
    assert_eq!(sequences_of_pass(5, 1500), 2);
}

#[test]
fn no_documents_and_overflowing_steps_are_errors() {
    let error = PackedSource::from_documents(Documents::default(), Boundaries::Apart).err().unwrap();
    assert_eq!(error.to_string(), "found no documents, expected at least one");
    let (_, all) = numbered(&[5]);
    let source = PackedSource::from_documents(all, Boundaries::Apart).unwrap();
    assert!(matches!(source.batch(0, u64::MAX, 2, 8), Err(Error::Usage(_))));
    assert!(matches!(source.batch(0, u64::MAX / 4, 1, 8), Err(Error::Usage(_))));
    assert!(matches!(source.batch(0, 0, 0, 8), Err(Error::Usage(_))));
    assert!(matches!(source.batch(0, 0, usize::MAX, 8), Err(Error::Usage(_))));
}

/// What a source gives in an epoch, sorted.
fn epoch(source: &PackedSource) -> Vec<u32> {
    let mut tokens = source.batch(1, 0, 1, source.tokens()).unwrap().tokens;
    tokens.sort_unstable();
    tokens
}

#[test]
fn a_part_is_held_out_and_never_trained_on() {
    for (lengths, held_out) in [(vec![7; 20], 7), (vec![5; 119], 25), (vec![400], 20), (vec![60; 19], 57)] {
        let (list, all) = numbered(&lengths);
        let all = PackedSource::from_documents(all, Boundaries::Apart).unwrap();
        let [train, held] = [Part::Train, Part::HeldOut].map(|part| all.part(part).unwrap());
        assert_eq!((train.tokens() + held.tokens(), held.tokens()), (all.tokens(), held_out), "{lengths:?}");
        // Tokens are numbered, so equal ones are the same place.
        let (train, held) = (epoch(&train), epoch(&held));
        assert!(train.iter().all(|token| held.binary_search(token).is_err()), "{lengths:?}");
        let mut both = [train, held].concat();
        both.sort_unstable();
        assert_eq!(both, list.concat());
        assert_eq!(epoch(&all.part(Part::HeldOut).unwrap()), epoch(&all.part(Part::HeldOut).unwrap()));
    }
    let (_, all) = numbered(&[19, 3]);
    let all = PackedSource::from_documents(all, Boundaries::Apart).unwrap();
    assert_eq!(all.part(Part::Train).unwrap().tokens(), 22);
    let refused = all.part(Part::HeldOut).err().unwrap().to_string();
    assert!(refused.contains("22 tokens in 2 documents") && refused.contains("evaluate.held_out"), "{refused}");
}
