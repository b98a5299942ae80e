use std::collections::{BTreeMap, BTreeSet};

use autocompress::cost::{Contract, Measure, Plan, REST, Run, part_name};
use autocompress::model::Config;
use autocompress::model::config::Layer;
use autocompress::supernet::{SearchSpace, Space};

use super::common::{ALL_AXES, contract, preset, space};

/// Runs, and distinct (d, part) of the runs' layers.
fn check(plan: &Plan, layers_per_run: usize) -> (usize, usize) {
    let mut seen: BTreeMap<(usize, String), usize> = BTreeMap::new();
    for run in &plan.runs {
        assert!((1..=layers_per_run).contains(&run.layers.len()));
        plan.config(run).validate(std::path::Path::new("run")).unwrap();
        for layer in &run.layers {
            *seen.entry((run.hidden_size, part_name(layer))).or_default() += 1;
        }
    }
    assert!(seen.values().all(|times| *times == 1), "a configuration is measured twice");
    (plan.runs.len(), seen.len())
}

#[test]
fn a_plan_has_exactly_the_rows_that_the_space_needs() {
    let plan = Plan::new(&space(ALL_AXES), &contract("latency_ms = 1"), 10, 0).unwrap();
    // Per d: 3 Mamba, 2·2·3 MoE, 2 MLP, 1 attention = 18 layers in two runs.
    assert_eq!(check(&plan, 10), (4, 36));
    // 36 layers and 2 rests, each with 3 contexts of decode and 5 other measures.
    assert_eq!(plan.keys().len(), 38 * 8);
    let contexts: BTreeSet<usize> =
        plan.keys().iter().filter(|k| k.measure == Measure::Decode).map(|k| k.context).collect();
    assert_eq!(contexts, BTreeSet::from([24, 27, 31]));
}

#[test]
fn what_any_architecture_has_is_measured() {
    let space = space(ALL_AXES);
    let keys = Plan::new(&space, &contract("latency_ms = 1"), 7, 3).unwrap().keys();
    let parts: BTreeSet<(usize, &str)> = keys.iter().map(|k| (k.hidden_size, k.part.as_str())).collect();
    let mut used = BTreeSet::new();
    for seed in 0..400 {
        let config = space.config_of(&space.random(seed)).unwrap();
        used.insert((config.hidden_size, REST.to_owned()));
        used.extend(config.layers.iter().map(|layer| (config.hidden_size, part_name(layer))));
    }
    // And nothing else is.
    assert_eq!(used.iter().map(|(d, part)| (*d, part.as_str())).collect::<BTreeSet<_>>(), parts);
}

#[test]
fn presets_need_this_many_runs() {
    let contract = Contract::from_file(&preset("contracts/cpu.toml")).unwrap();
    for (parent, name, layers) in [
        // 5 d × (4 Mamba + 4·4·5 MoE + 4 MLP + attention).
        ("parents/tiny/config.json", "spaces/tiny.toml", 5 * 89),
        // 6 d × (5 Mamba + 5·4·3 MoE + attention).
        ("parents/lightning.json", "spaces/lightning.toml", 6 * 66),
        // 6 d × (1 Mamba + 4·4·4 MoE with S + 4·4 without + 4 MLP + attention).
        ("parents/nano-3-12b.json", "spaces/nano-3-12b.toml", 6 * 86),
    ] {
        let parent = Config::from_file(&preset(parent)).unwrap();
        let space = SearchSpace::new(&Space::from_file(&preset(name)).unwrap(), &parent).unwrap();
        let plan = Plan::new(&space, &contract, 10, 0).unwrap();
        let d = plan.runs.iter().map(|run| run.hidden_size).collect::<BTreeSet<_>>().len();
        assert_eq!(check(&plan, 10), (d * (layers / d).div_ceil(10), layers), "{name}");
    }
}

/// The plan of the small parent, whose Mamba layers share one gate.
fn tiny() -> (Config, Plan) {
    let contract = Contract::from_file(&preset("contracts/cpu.toml")).unwrap();
    let parent = Config::from_file(&preset("parents/tiny/config.json")).unwrap();
    let space = SearchSpace::new(&Space::from_file(&preset("spaces/tiny.toml")).unwrap(), &parent).unwrap();
    (parent, Plan::new(&space, &contract, 10, 0).unwrap())
}

#[test]
fn what_layers_share_is_measured_more_often() {
    let (parent, plan) = tiny();
    let mamba = |run: &&Run| run.layers.iter().filter(|layer| matches!(layer, Layer::Mamba(_))).count();
    let layers = parent.layers.iter().filter(|layer| matches!(layer, Layer::Mamba(_))).count();
    assert!(layers > 1);
    for run in &plan.runs {
        // Each head count is of all Mamba layers at once; every other gate is of one layer.
        let (expected, times) = if mamba(&run) > 0 { (4, 2 * layers - 1) } else { (0, 1) };
        assert_eq!((mamba(&run), run.times), (expected, times), "{run:?}");
    }
    assert_eq!(plan.runs.iter().filter(|run| mamba(run) > 0).count(), 5, "one for each hidden size");
}

#[test]
fn the_order_measures_every_run_as_often_as_a_repeat_before_the_next() {
    let (_, plan) = tiny();
    let once: usize = plan.runs.iter().map(|run| run.times).sum();
    assert!(once > plan.runs.len(), "nothing is shared");
    let order = plan.order(4, 1);
    assert_eq!(order.len(), 4 * once);
    for (repeat, runs) in order.chunks(once).enumerate() {
        let mut sorted = runs.to_vec();
        sorted.sort_by_key(|(time, run)| (*run, *time));
        let of = |(run, r): (usize, &Run)| (repeat * r.times..(repeat + 1) * r.times).map(move |time| (time, run));
        assert_eq!(sorted, plan.runs.iter().enumerate().flat_map(of).collect::<Vec<_>>());
    }
    let runs = |at: std::ops::Range<usize>| order[at].iter().map(|(_, run)| *run).collect::<Vec<_>>();
    assert_ne!(runs(0..once), runs(once..2 * once));
    assert_eq!(order, plan.order(4, 1));
}
