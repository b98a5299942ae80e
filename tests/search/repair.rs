//! The repair against all architectures, one by one, and at the size of the large parents.

use std::time::Instant;

use autocompress::Error;
use autocompress::cost::Resource;
use autocompress::search::{argmax, repair};
use autocompress::supernet::{Axis, Choice, SearchSpace};

use crate::instances::{Random, bare_space, choices, log_probabilities, paged, preset_space, random_resource};

const DELTA: f64 = 0.02;

/// Σ of log-probabilities; experts of a layer without routed width count as their leading candidate.
fn value(space: &SearchSpace, p: &[Vec<f64>], choice: &Choice) -> f64 {
    (0..p.len())
        .map(|g| {
            let gate = &space.gates[g];
            let routed = space.gate(Axis::Routed, gate.layer);
            let dense = routed.is_some_and(|f| space.gates[f].candidates[choice.0[f]] == 0);
            if gate.axis == Axis::Experts && dense { p[g][argmax(&p[g])] } else { p[g][choice.0[g]] }
        })
        .sum()
}

fn largest(resources: &[Resource], choice: &Choice) -> f64 {
    resources.iter().map(|r| r.rho(&choice.0)).fold(0.0, f64::max)
}

/// The largest value within the limits, and of those that use them.
fn by_enumeration(space: &SearchSpace, p: &[Vec<f64>], resources: &[Resource]) -> (Option<f64>, Option<f64>) {
    let mut best = (None, None);
    for choice in choices(space) {
        let (value, largest) = (value(space, p, &choice), largest(resources, &choice));
        let keep = |best: &mut Option<f64>| *best = Some(best.map_or(value, |b: f64| b.max(value)));
        if largest <= 1.0 {
            keep(&mut best.0);
            if largest >= 1.0 - DELTA {
                keep(&mut best.1);
            }
        }
    }
    best
}

fn small_space(random: &mut Random) -> SearchSpace {
    let mut globals = vec![(Axis::Hidden, 2 + random.below(2))];
    if random.uniform() < 0.5 {
        globals.push((Axis::Heads, 2));
    }
    let layer = |random: &mut Random| match random.below(3) {
        0 => vec![(Axis::KeepMamba, 2)],
        1 => vec![(Axis::Experts, 3), (Axis::Routed, 3), (Axis::Shared, 2)],
        _ => vec![(Axis::Experts, 2), (Axis::Routed, 2)],
    };
    let layers: Vec<_> = (0..2 + random.below(2)).map(|_| layer(random)).collect();
    let zero = random.uniform() < 0.6;
    bare_space(&globals, &layers, zero)
}

#[test]
fn the_repair_is_the_optimum() {
    let mut steps = 0;
    let (mut counted, mut filled, mut unfilled, mut unreachable) = (0, 0, 0, 0);
    for seed in 0..600 {
        let mut random = Random::new(seed, 1);
        let space = small_space(&mut random);
        let sharp = 0.3 + 3.0 * random.uniform();
        let p = log_probabilities(&space, &mut random, sharp);
        let count = 1 + random.below(3);
        let mut resources: Vec<Resource> = (0..count)
            .map(|r| {
                let widest = if r == 0 { random.below(3) } else { random.below(2) };
                let resource = random_resource(&space, &mut random, widest, seed % 3 == 0, &format!("r{r}"));
                // Kept layers are counted for at most two of three limits.
                if r == 0 || random.uniform() < 0.5 { resource } else { paged(&space, &mut random, resource) }
            })
            .collect();
        steps += usize::from(resources.iter().any(|resource| resource.counted.is_some()));
        let all = choices(&space);
        for resource in &mut resources {
            // From below the smallest to above the largest cost.
            let costs: Vec<f64> = all.iter().map(|c| resource.cost(&c.0)).collect();
            let (low, high) =
                (costs.iter().copied().fold(f64::MAX, f64::min), costs.iter().copied().fold(0.0, f64::max));
            resource.limit = low + (high - low) * (1.15 * random.uniform() - 0.03);
        }
        let found = repair(&space, &p, &resources, DELTA);
        match by_enumeration(&space, &p, &resources) {
            (None, _) => {
                unreachable += 1;
                check_unreachable(&space, &resources, found.unwrap_err(), seed);
            }
            (Some(within), using) => {
                let found = found.unwrap();
                let best = using.unwrap_or(within);
                let largest = largest(&resources, &found.choice);
                assert!(largest <= 1.0, "seed {seed}: ρ {largest}");
                assert!(using.is_none() || largest >= 1.0 - DELTA, "seed {seed}: {largest}");
                assert!((found.log_probability_after - best).abs() < 1e-9, "seed {seed}: {found:?}, best {best}");
                assert!((value(&space, &p, &found.choice) - best).abs() < 1e-9, "seed {seed}");
                assert_eq!(found.gap, 0.0);
                let leading: Vec<usize> = p.iter().map(|p| argmax(p)).collect();
                let changed: Vec<&String> = (space.gates.iter().enumerate())
                    .filter(|(g, _)| found.choice.0[*g] != leading[*g])
                    .map(|(_, gate)| &gate.name)
                    .collect();
                assert_eq!(found.gates_changed.iter().collect::<Vec<_>>(), changed);
                let rho = |c: &[usize]| resources.iter().map(|r| r.rho(c)).collect::<Vec<f64>>();
                assert_eq!((found.rho_before, found.rho_after), (rho(&leading), rho(&found.choice.0)));
                counted += 1;
                filled += usize::from(using.is_some());
                unfilled += usize::from(using.is_none());
            }
        }
    }
    println!(
        "{counted} optima, {filled} use a limit, {unfilled} cannot; {unreachable} out of reach; {steps} with paged caches"
    );
    assert!(steps > 100 && counted > 300 && filled > 200 && unfilled > 10 && unreachable > 20);
}

/// The named resource's smallest cost: over all architectures, or over those that keep the other limits.
fn check_unreachable(space: &SearchSpace, resources: &[Resource], error: Error, seed: u64) {
    let message = error.to_string();
    let Error::Unreachable { resource, limit, smallest, architecture, kept: told, .. } = error else {
        panic!("seed {seed}: {message}");
    };
    let of = resources.iter().find(|r| r.name == resource).unwrap();
    let alone_out_of_reach = resources.iter().any(|r| choices(space).iter().all(|c| r.rho(&c.0) > 1.0));
    let kept = |c: &&Choice| alone_out_of_reach || resources.iter().all(|r| r.name == resource || r.rho(&c.0) <= 1.0);
    let all = choices(space);
    let least = all.iter().filter(kept).map(|c| of.cost(&c.0)).fold(f64::MAX, f64::min);
    assert!(
        (smallest - least).abs() < 1e-9 && limit == of.limit && smallest > limit,
        "seed {seed}: {message}, {least}"
    );
    let json = serde_json::from_str(&architecture).unwrap();
    let choice = space.choice_from_json(std::path::Path::new("error"), &json).unwrap();
    assert!((of.cost(&choice.0) - least).abs() < 1e-9, "seed {seed}: {message}");
    assert!(message.contains(&resource) && message.contains(&architecture));
    let others = resources.iter().filter(|r| r.name != resource && !alone_out_of_reach).map(|r| &r.name);
    assert_eq!(told.iter().collect::<Vec<_>>(), others.collect::<Vec<_>>(), "seed {seed}: {message}");
}

#[test]
fn an_architecture_that_fits_stays_as_it_is() {
    let mut random = Random::new(5, 0);
    let space = small_space(&mut random);
    let p = log_probabilities(&space, &mut random, 2.0);
    let mut resource = random_resource(&space, &mut random, 1, false, "memory");
    let leading: Vec<usize> = p.iter().map(|p| argmax(p)).collect();
    resource.limit = resource.cost(&leading) * 1.01;
    let found = repair(&space, &p, &[resource], DELTA).unwrap();
    assert_eq!((found.choice.0, found.gates_changed.len()), (leading, 0));
    let found = repair(&space, &p, &[], DELTA).unwrap();
    assert!(found.gates_changed.is_empty());
}

#[test]
fn arguments_of_another_space_are_refused() {
    let mut random = Random::new(6, 0);
    let space = small_space(&mut random);
    let p = log_probabilities(&space, &mut random, 1.0);
    let mut resource = random_resource(&space, &mut random, 0, true, "latency");
    assert!(repair(&space, &p[1..], &[], DELTA).is_err());
    let mut wrong = p.clone();
    wrong[0][0] = f64::NAN;
    assert!(repair(&space, &wrong, &[], DELTA).is_err());
    resource.candidates[0] += 1;
    assert!(repair(&space, &p, &[resource], DELTA).is_err());
}

/// 52 layers: two limits, of which one has two groups of widest layers and, where layers may go, paged caches; leading candidates that break the limits or leave
/// much unused.
#[test]
fn at_the_size_of_the_large_parents() {
    for (parent, file) in [("nano-3-12b", "nano-3-12b"), ("nano-30b", "lightning"), ("super-120b", "super")] {
        let space = preset_space(&format!("parents/{parent}.json"), &format!("spaces/{file}.toml"));
        for (seed, sharp) in [(1, 5.0), (3, 0.5), (4, 0.0)] {
            let mut random = Random::new(seed, 7);
            let p = log_probabilities(&space, &mut random, sharp);
            let latency = random_resource(&space, &mut random, 0, true, "latency");
            let memory = random_resource(&space, &mut random, 2, true, "memory");
            let mut resources = vec![latency, paged(&space, &mut random, memory)];
            for share in [0.55, 0.75] {
                for resource in &mut resources {
                    resource.limit = share * resource.cost(&space.parent_choice().0);
                }
                let start = Instant::now();
                let found = repair(&space, &p, &resources, DELTA).unwrap();
                let seconds = start.elapsed().as_secs_f64();
                println!(
                    "{file} sharp {sharp} share {share}: {seconds:.2} s, {} of {} gates, ρ {:.3?} → {:.3?}, log p {:.3} → {:.3}, gap {}",
                    found.gates_changed.len(),
                    space.gates.len(),
                    found.rho_before,
                    found.rho_after,
                    found.log_probability_before,
                    found.log_probability_after,
                    found.gap
                );
                assert!(found.rho_after.iter().all(|rho| *rho <= 1.0));
                assert_eq!(found.gap, 0.0);
            }
        }
    }
}
