//! Random architectures within limits.

use std::collections::HashSet;

use autocompress::Error;
use autocompress::baseline::random;
use autocompress::supernet::Axis;

use crate::instances::{Random, bare_space, choices, random_resource};

const DELTA: f64 = 0.02;

#[test]
fn random_architectures_use_the_limits_and_differ_by_seed() {
    let moe = || vec![(Axis::Experts, 3), (Axis::Routed, 3), (Axis::Shared, 2)];
    let space = bare_space(&[(Axis::Hidden, 3)], &[moe(), vec![(Axis::KeepMamba, 2)], moe()], true);
    let mut numbers = Random::new(1, 0);
    let mut resources = vec![
        random_resource(&space, &mut numbers, 0, false, "latency"),
        random_resource(&space, &mut numbers, 1, true, "memory"),
    ];
    let parent = space.parent_choice();
    for share in [0.4, 0.6, 0.8] {
        resources.iter_mut().for_each(|resource| resource.limit = share * resource.cost(&parent.0));
        let largest = |choice: &[usize]| resources.iter().map(|resource| resource.rho(choice)).fold(0.0, f64::max);
        let can = choices(&space).iter().any(|choice| (1.0 - DELTA..=1.0).contains(&largest(&choice.0)));
        assert!(can, "share {share}");
        let mut seen = HashSet::new();
        for seed in 0..40 {
            let choice = random(&space, &resources, DELTA, seed).unwrap();
            let used = largest(&choice.0);
            assert!((1.0 - DELTA..=1.0).contains(&used), "share {share}, seed {seed}: {used}");
            assert_eq!(random(&space, &resources, DELTA, seed).unwrap(), choice);
            seen.insert(choice);
        }
        assert!(seen.len() > 10, "share {share}: {}", seen.len());
    }
    resources[1].limit = 1e-9;
    let error = random(&space, &resources, DELTA, 0).unwrap_err();
    assert!(matches!(&error, Error::Unreachable { resource, .. } if resource == "memory"), "{error}");
}

#[test]
fn without_limits_every_candidate_is_as_likely() {
    let space = bare_space(&[(Axis::Hidden, 4)], &[vec![(Axis::Experts, 4)]], false);
    let mut counts = [[0; 4]; 2];
    for seed in 0..4000 {
        let choice = random(&space, &[], DELTA, seed).unwrap();
        choice.0.iter().zip(&mut counts).for_each(|(candidate, counts)| counts[*candidate] += 1);
    }
    // 1000 expected, standard deviation 27.
    assert!(counts.iter().flatten().all(|count| (850..1150).contains(count)), "{counts:?}");
}
