use autocompress::cost::{Contract, CostModel, Errors, MODEL, Measure, PartPrediction, REST, Table, part_name};
use autocompress::supernet::{Axis, Choice, SearchSpace};

use super::common::{ALL_AXES, contract, space, synthetic};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn choices(space: &SearchSpace) -> Vec<Choice> {
    (0..60).map(|seed| space.random(seed)).chain([space.parent_choice()]).collect()
}

/// (prefill, decode step, bytes), from the student's configuration and the rows alone.
fn by_hand(space: &SearchSpace, contract: &Contract, table: &Table, choice: &Choice, reserve: f64) -> (f64, f64, f64) {
    let config = space.config_of(choice).unwrap();
    let parts: Vec<String> = config.layers.iter().map(part_name).chain([REST.into()]).collect();
    let row = |measure, context, part: &String| table.get(measure, context, config.hidden_size, part).unwrap();
    let sum = |measure| parts.iter().map(|p| row(measure, 0, p)).sum::<f64>();
    // Contexts 24, 27 and 31 of steps 24 … 31: the line through the three, averaged over the eight.
    let step = |p: &String| {
        let (a, b, c) = (row(Measure::Decode, 24, p), row(Measure::Decode, 27, p), row(Measure::Decode, 31, p));
        let line = |t: usize| match t {
            0..=27 => a + (b - a) * (t - 24) as f64 / 3.0,
            _ => b + (c - b) * (t - 27) as f64 / 4.0,
        };
        (24..32).map(line).sum::<f64>() / contract.workload.output_tokens as f64
    };
    let widest = (parts.iter())
        .map(|p| row(Measure::PrefillWorkspace, 0, p).max(row(Measure::DecodeWorkspace, 0, p)))
        .fold(0.0, f64::max);
    let memory = sum(Measure::Weights) + sum(Measure::Cache) + widest + reserve;
    (sum(Measure::Prefill), parts.iter().map(step).sum(), memory)
}

#[test]
fn a_prediction_is_the_sum_of_its_rows() {
    let (space, contract) = (space(ALL_AXES), contract("latency_ms = 2000\nmemory_mib = 3\nthroughput = 4"));
    let table = synthetic(&space, &contract, 17.0);
    let model = CostModel::new(&space, &contract, &table).unwrap();
    assert_eq!(
        model.resources.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(),
        ["latency", "memory", "throughput"]
    );
    assert_eq!(model.resources.iter().map(|r| r.limit).collect::<Vec<_>>(), [2.0, 3.0 * 1_048_576.0, 4.0]);
    for choice in choices(&space) {
        let (prefill, decode, memory) = by_hand(&space, &contract, &table, &choice, 17.0);
        let p = model.predict(&choice).unwrap();
        assert!(close(p.prefill_seconds, prefill) && close(p.decode_step_seconds, decode), "{p:?}");
        assert!(close(p.request_seconds, prefill + 8.0 * decode));
        assert!(close(p.memory_bytes, memory), "{} {memory}", p.memory_bytes);
        assert!(close(p.memory_bytes, p.weights_bytes + p.cache_bytes + p.workspace_bytes + p.reserve_bytes));
        // The resources say the same.
        let costs: Vec<f64> = model.resources.iter().map(|r| r.cost(&choice.0)).collect();
        assert!(close(costs[0], p.request_seconds) && close(costs[1], memory) && close(costs[2], p.request_seconds));
        // So do the parts.
        let parts = || p.layers.iter().chain([&p.rest]);
        assert!(close(parts().map(|l| l.prefill_seconds).sum(), prefill));
        assert!(close(parts().map(|l| l.decode_step_seconds).sum(), decode));
        assert!(close(parts().map(|l| l.weights_bytes + l.cache_bytes).sum(), p.weights_bytes + p.cache_bytes));
        assert!(close(parts().map(|l| l.workspace_bytes).fold(0.0, f64::max), p.workspace_bytes));
    }
}

#[test]
fn the_expectation_of_a_hard_choice_is_its_cost() {
    let (space, contract) = (space(ALL_AXES), contract("latency_ms = 5\nmemory_mib = 3"));
    let model = CostModel::new(&space, &contract, &synthetic(&space, &contract, 2.0)).unwrap();
    for choice in choices(&space) {
        let y: Vec<Vec<f64>> = (space.gates.iter().zip(&choice.0))
            .map(|(gate, at)| (0..gate.candidates.len()).map(|c| f64::from(u8::from(c == *at))).collect())
            .collect();
        for resource in &model.resources {
            let (expected, hard) = (resource.expectation(&y).0, resource.cost(&choice.0));
            assert!(close(expected, hard), "{}: {expected} {hard}", resource.name);
        }
    }
}

#[test]
fn a_removed_layer_costs_nothing() {
    let (space, contract) = (space(ALL_AXES), contract("latency_ms = 5\nmemory_mib = 3"));
    let model = CostModel::new(&space, &contract, &synthetic(&space, &contract, 0.0)).unwrap();
    let mut choice = space.parent_choice();
    let removed = [(Axis::KeepMamba, 2), (Axis::Routed, 3), (Axis::Shared, 3)];
    for (axis, layer) in removed {
        choice.0[space.gate(axis, Some(layer)).unwrap()] = 0;
    }
    let p = model.predict(&choice).unwrap();
    assert_eq!((p.layers[2], p.layers[3]), (PartPrediction::default(), PartPrediction::default()));
    assert!([0, 1, 4, 5, 6, 7].iter().all(|i| p.layers[*i].prefill_seconds > 0.0));
    // A dense layer has its own row, and the number of experts does not matter there.
    let mut dense = space.parent_choice();
    dense.0[space.gate(Axis::Routed, Some(1)).unwrap()] = 0;
    let before = model.predict(&dense).unwrap();
    assert_ne!(before.layers[1], model.predict(&space.parent_choice()).unwrap().layers[1]);
    dense.0[space.gate(Axis::Experts, Some(1)).unwrap()] = 0;
    assert_eq!(model.predict(&dense).unwrap(), before);
}

#[test]
fn a_missing_row_is_named() {
    let (space, contract) = (space(ALL_AXES), contract("latency_ms = 5"));
    let table = synthetic(&space, &contract, 0.0);
    for key in table.rows.keys() {
        let mut cut = table.clone();
        cut.rows.remove(key);
        let error = CostModel::new(&space, &contract, &cut).unwrap_err().to_string();
        assert!(error.contains(&key.to_string()), "{error}");
    }
    assert!(table.rows.keys().any(|key| key.part == MODEL));
}

#[test]
fn a_choice_of_another_space_is_refused() {
    let (space, contract) = (space(ALL_AXES), contract("latency_ms = 5"));
    let model = CostModel::new(&space, &contract, &synthetic(&space, &contract, 0.0)).unwrap();
    assert!(model.predict(&Choice(vec![0])).is_err());
}

#[test]
fn relative_errors() {
    let errors = Errors::of(&[(1.1, 1.0), (2.0, 2.0), (3.0, 4.0)]);
    assert!(close(errors.median, 0.1) && close(errors.worst, 0.25));
    assert!(close(errors.q95, 0.1 + 0.9 * 0.15), "{}", errors.q95);
}
