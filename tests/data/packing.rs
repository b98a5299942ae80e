//! Packing loses no token and wastes none.

use std::collections::HashSet;

use autocompress::Error;
use autocompress::data::pack::{Documents, PackedSource};
use autocompress::data::{Batch, Boundaries, IGNORE, Source};
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

#[test]
fn no_documents_and_overflowing_steps_are_errors() {
    let error = PackedSource::from_documents(Documents::default(), Boundaries::Apart).err().unwrap();
    assert_eq!(error.to_string(), "data: found no documents, expected at least one");
    let (_, all) = numbered(&[5]);
    let source = PackedSource::from_documents(all, Boundaries::Apart).unwrap();
    assert!(matches!(source.batch(0, u64::MAX, 2, 8), Err(Error::Usage(_))));
    assert!(matches!(source.batch(0, u64::MAX / 4, 1, 8), Err(Error::Usage(_))));
    assert!(matches!(source.batch(0, 0, 0, 8), Err(Error::Usage(_))));
    assert!(matches!(source.batch(0, 0, usize::MAX, 8), Err(Error::Usage(_))));
}
