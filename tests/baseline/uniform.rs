//! Uniform architectures against all architectures, one by one.

use std::collections::HashSet;
use std::time::Instant;

use autocompress::Error;
use autocompress::baseline::{Reach, Uniform, nearest, uniform};
use autocompress::cost::Resource;
use autocompress::supernet::{Axis, Choice, SearchSpace};

use crate::instances::{Random, bare_space, choices, preset_space, random_resource};

const FLOOR: f64 = 0.9;

/// Per axis the one size of all its gates; `None` where they differ, a layer is removed or a width is 0.
fn widths(space: &SearchSpace, choice: &Choice) -> Option<Vec<(Axis, usize)>> {
    let mut widths: Vec<(Axis, usize)> =
        space.gates.iter().zip(&choice.0).map(|(gate, c)| (gate.axis, gate.candidates[*c])).collect();
    widths.sort_unstable();
    widths.dedup();
    let one_each = widths.windows(2).all(|pair| pair[0].0 != pair[1].0);
    (one_each && widths.iter().all(|(_, size)| *size > 0)).then_some(widths)
}

/// The definition, word by word.
fn by_enumeration(space: &SearchSpace, resources: &[Resource]) -> (HashSet<Choice>, Reach, usize, usize) {
    let rho = |choice: &Choice| resources.iter().map(|r| r.rho(&choice.0)).collect::<Vec<f64>>();
    let within: Vec<(Choice, Vec<(Axis, usize)>)> = (choices(space).into_iter())
        .filter_map(|choice| widths(space, &choice).map(|widths| (choice, widths)))
        .filter(|(choice, _)| rho(choice).iter().all(|rho| *rho <= 1.0))
        .collect();
    let grows = |a: &[(Axis, usize)], b: &[(Axis, usize)]| a != b && a.iter().zip(b).all(|(a, b)| a.1 <= b.1);
    let maximal: Vec<&Choice> = (within.iter())
        .filter(|(_, widths)| !within.iter().any(|(_, other)| grows(widths, other)))
        .map(|(choice, _)| choice)
        .collect();
    let keep = |fits: &dyn Fn(&Vec<f64>) -> bool| {
        maximal.iter().filter(|choice| fits(&rho(choice))).map(|choice| (*choice).clone()).collect::<HashSet<_>>()
    };
    let each = keep(&|rho| rho.iter().all(|rho| *rho >= FLOOR));
    let one = keep(&|rho| rho.iter().any(|rho| *rho >= FLOOR));
    let (kept, reach) = match (each.is_empty() && !maximal.is_empty(), one.is_empty()) {
        (false, _) => (each, Reach::Each),
        (true, false) => (one, Reach::Binding),
        (true, true) => (keep(&|_| true), Reach::Neither),
    };
    (kept, reach, within.len(), maximal.len())
}

fn small_space(random: &mut Random) -> SearchSpace {
    let mut globals = vec![(Axis::Hidden, 2 + random.below(3))];
    if random.uniform() < 0.5 {
        globals.push((Axis::Heads, 3));
    }
    // Layers of one axis differ in their candidates: only the common ones are uniform widths.
    let layer = |random: &mut Random| match random.below(4) {
        0 => vec![(Axis::KeepMamba, 2)],
        1 => vec![(Axis::Routed, 2 + random.below(2))],
        _ => vec![(Axis::Experts, 2 + random.below(2)), (Axis::Routed, 3), (Axis::Shared, 2)],
    };
    let layers: Vec<_> = (0..2).map(|_| layer(random)).collect();
    let zero = random.uniform() < 0.5;
    bare_space(&globals, &layers, zero)
}

#[test]
fn the_list_is_that_of_the_definition() {
    let mut reached = [0; 3];
    let mut empty = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed, 2);
        let space = small_space(&mut random);
        let count = 1 + random.below(2);
        let mut resources: Vec<Resource> =
            (0..count).map(|r| random_resource(&space, &mut random, r, seed % 2 == 0, &format!("r{r}"))).collect();
        for resource in &mut resources {
            let costs: Vec<f64> = choices(&space).iter().map(|c| resource.cost(&c.0)).collect();
            let (low, high) =
                (costs.iter().copied().fold(f64::MAX, f64::min), costs.iter().copied().fold(0.0, f64::max));
            resource.limit = low + (high - low) * 1.1 * random.uniform();
        }
        let found = uniform(&space, &resources, FLOOR).unwrap();
        let (kept, reach, within, maximal) = by_enumeration(&space, &resources);
        assert_eq!(found.choices.len(), kept.len(), "seed {seed}");
        assert_eq!(found.choices.iter().cloned().collect::<HashSet<_>>(), kept, "seed {seed}");
        assert_eq!((found.within, found.maximal), (within, maximal), "seed {seed}");
        if kept.is_empty() {
            empty += 1;
            continue;
        }
        assert_eq!(found.reach, reach, "seed {seed}");
        reached[reach as usize] += 1;
    }
    println!("{reached:?} reach each, one, no limit; {empty} without a candidate");
    assert!(reached.iter().all(|count| *count > 10) && empty > 5, "{reached:?} {empty}");
}

#[test]
fn without_limits_the_widest_is_the_only_one() {
    let space = preset_space("parents/tiny/config.json", "spaces/tiny.toml");
    let found = uniform(&space, &[], FLOOR).unwrap();
    let expected =
        Uniform { choices: vec![space.parent_choice()], reach: Reach::Each, within: 5 * 4 * 4 * 4 * 4, maximal: 1 };
    assert_eq!(found, expected);
}

/// As many as the lists of widths say: d, H, E, F, S.
#[test]
fn the_papers_parents_have_their_uniform_architectures() {
    for (parent, space, count) in [
        ("lightning", "lightning", 6 * 5 * 5 * 4 * 3),
        ("nano-3-12b", "nano-3-12b", 6 * 4 * 4 * 4),
        ("nano-3-12b", "nano-3-12b-uniform", 6 * 8 * 4 * 4 * 4),
    ] {
        let space = preset_space(&format!("parents/{parent}.json"), &format!("spaces/{space}.toml"));
        assert_eq!(uniform(&space, &[], 0.95).unwrap().within, count, "{parent}");
    }
}

#[test]
fn layers_are_never_removed() {
    let space = preset_space("parents/nano-3-12b.json", "spaces/nano-3-12b.toml");
    let mut random = Random::new(3, 0);
    let mut resource = random_resource(&space, &mut random, 1, true, "latency");
    resource.limit = 0.6 * resource.cost(&space.parent_choice().0);
    let found = uniform(&space, &[resource], 0.95).unwrap();
    assert!(!found.choices.is_empty());
    for choice in &found.choices {
        assert!(widths(&space, choice).is_some());
        assert_eq!(space.config_of(choice).unwrap().layers.len(), space.parent.layers.len());
    }
}

/// The parent of 52 layers with 153,600 combinations of widths.
#[test]
fn long_lists_are_filtered() {
    let moe = || vec![(Axis::Experts, 8), (Axis::Routed, 10), (Axis::Shared, 8)];
    let layers: Vec<_> = (0..46).map(|i| if i % 2 == 0 { Vec::new() } else { moe() }).collect();
    let space = bare_space(&[(Axis::Hidden, 20), (Axis::Heads, 12)], &layers, false);
    let mut random = Random::new(9, 0);
    let mut resources = vec![
        random_resource(&space, &mut random, 0, true, "latency"),
        random_resource(&space, &mut random, 1, true, "memory"),
    ];
    resources.iter_mut().for_each(|resource| resource.limit = 0.6 * resource.cost(&space.parent_choice().0));
    let start = Instant::now();
    let found = uniform(&space, &resources, 0.95).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{seconds:.2} s: {} within, {} maximal, {} kept, {:?}",
        found.within,
        found.maximal,
        found.choices.len(),
        found.reach
    );
    assert!(found.within > 1000 && found.maximal >= found.choices.len() && !found.choices.is_empty());
    // A fraction of a second; a slow and busy machine has much more.
    assert!(seconds < 30.0, "{seconds} s");
}

/// Against all uniform architectures, one by one.
#[test]
fn the_nearest_of_none_is_that_of_the_definition() {
    let (mut alone, mut together) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed, 5);
        let space = small_space(&mut random);
        let mut resources: Vec<Resource> =
            (0..2).map(|r| random_resource(&space, &mut random, r, seed % 2 == 0, &format!("r{r}"))).collect();
        let all: Vec<Choice> = choices(&space).into_iter().filter(|choice| widths(&space, choice).is_some()).collect();
        for resource in &mut resources {
            let costs: Vec<f64> = all.iter().map(|choice| resource.cost(&choice.0)).collect();
            resource.limit = costs.iter().copied().fold(f64::MAX, f64::min) * (0.8 + 0.6 * random.uniform());
        }
        let rho = |choice: &Choice, r: usize| resources[r].rho(&choice.0);
        let least = |r: usize, others: f64| {
            let held = all.iter().filter(|choice| (0..2).all(|other| other == r || rho(choice, other) <= others));
            held.map(|choice| rho(choice, r)).fold(f64::INFINITY, f64::min)
        };
        let error = nearest(&space, &resources);
        if all.iter().any(|choice| (0..2).all(|r| rho(choice, r) <= 1.0)) {
            assert!(matches!(error, Err(Error::Contract { .. })), "seed {seed}");
            continue;
        }
        let Ok(Error::Unreachable { resource, limit, smallest, kept, .. }) = error else {
            panic!("seed {seed}: {error:?}")
        };
        let r = resources.iter().position(|of| of.name == resource).unwrap();
        assert_eq!(limit, resources[r].limit);
        let missed: Vec<usize> = (0..2).filter(|r| least(*r, f64::INFINITY) > 1.0).collect();
        // A limit that none meets; where each can be met, the one missed by least while the other holds.
        let others = if missed.is_empty() { 1.0 } else { f64::INFINITY };
        let expected = (0..2).map(|r| least(r, others)).filter(|rho| *rho > 1.0).fold(f64::INFINITY, f64::min);
        assert!((smallest / limit - expected).abs() < 1e-12, "seed {seed}: {} {expected}", smallest / limit);
        if missed.is_empty() {
            together += 1;
            assert_eq!(kept, [resources[1 - r].name.clone()], "seed {seed}");
        } else {
            alone += 1;
        }
    }
    println!("{alone} by one limit alone, {together} by both together");
    assert!(alone > 10 && together > 10, "{alone} {together}");
}

#[test]
fn what_cannot_be_listed_is_refused() {
    let axes = [(Axis::Experts, 200), (Axis::Routed, 200), (Axis::Shared, 200)];
    let space = bare_space(&[], &[axes.to_vec()], false);
    let error = uniform(&space, &[], 0.95).unwrap_err();
    assert!(matches!(error, Error::Usage(_)) && error.to_string().contains("[200, 200, 200]"), "{error}");
    let mut random = Random::new(4, 0);
    let space = small_space(&mut random);
    let mut resource = random_resource(&space, &mut random, 0, true, "latency");
    resource.candidates[0] += 1;
    assert!(matches!(uniform(&space, &[resource], 0.95), Err(Error::Contract { .. })));
}
