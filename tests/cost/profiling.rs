use std::collections::BTreeSet;
use std::fs;

use autocompress::cost::{
    CostModel, Dummy, Key, MODEL, Measure, Plan, ProfileOptions, Table, measure, profile, validate, weight_bytes,
};

use super::common::{SMALL, alone, contract, space};

fn options() -> ProfileOptions {
    ProfileOptions { repeats: 2, layers_per_run: 3, starts: 2, seed: 4 }
}

#[test]
fn a_profile_measures_the_plan_and_predictions_are_near() {
    let _alone = alone();
    let (space, contract) = (space(SMALL), contract("latency_ms = 50\nmemory_mib = 3"));
    let dir = tempfile::tempdir().unwrap();
    let table = profile(&space, &contract, &options(), &dir.path().join("runs.jsonl"), &mut |_, _| {}).unwrap();
    let plan = Plan::new(&space, &contract, 3, 4).unwrap();
    let mut keys = plan.keys();
    keys.insert(Key { measure: Measure::Reserve, context: 0, hidden_size: 0, part: MODEL.into() });
    assert_eq!(table.rows.keys().cloned().collect::<BTreeSet<_>>(), keys);
    for (key, cost) in &table.rows {
        let kept = key.measure == Measure::Cache || key.measure == Measure::Reserve;
        assert!(kept || cost.median > 0.0, "{key}: {cost:?}");
    }

    let model = CostModel::new(&space, &contract, &table).unwrap();
    let choices = [space.parent_choice(), space.random(4), space.random(9)];
    let validation = validate(&model, &contract, &choices, 5).unwrap();
    for (predicted, measured) in &validation.points {
        println!(
            "request {:.3} ms predicted, {:.3} measured; prefill {:.3}, {:.3}; step {:.4}, {:.4}; {:.0} bytes, {}",
            predicted.request_seconds * 1e3,
            measured.request.median * 1e3,
            predicted.prefill_seconds * 1e3,
            measured.prefill_seconds * 1e3,
            predicted.decode_step_seconds * 1e3,
            measured.decode_step_seconds * 1e3,
            predicted.memory_bytes,
            measured.peak_bytes
        );
        let predicted_without = predicted.memory_bytes - predicted.reserve_bytes;
        println!("  memory beyond the parts {:.0} bytes", measured.peak_bytes as f64 - predicted_without);
    }
    println!("time {:?}\nmemory {:?}", validation.request, validation.memory);
    // Memory is counted, not timed: it has no noise.
    assert!(validation.memory.worst < 0.05, "{:?}", validation.memory);
    // Times share the machine with other tests: only the order of magnitude is sure.
    assert!(validation.request.worst < 5.0, "{:?}", validation.request);
}

#[test]
fn a_stopped_profile_goes_on_with_the_same_rows() {
    let _alone = alone();
    let (space, contract) = (space(SMALL), contract("latency_ms = 50"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.jsonl");
    let run = || profile(&space, &contract, &options(), &path, &mut |_, _| {}).unwrap();
    let whole = run();
    let text = fs::read_to_string(&path).unwrap();
    // Complete: nothing is measured again.
    assert_eq!(run(), whole);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    // Stopped in the middle of a line.
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let half = lines.len() / 2;
    fs::write(&path, format!("{}{}", lines[..half].concat(), &lines[half][..lines[half].len() / 2])).unwrap();
    let resumed = run();
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.starts_with(&lines[..half].concat()), "what was measured stays");
    assert_eq!(after.lines().count(), lines.len());
    let describe = |table: &Table| table.rows.iter().map(|(k, c)| (k.clone(), c.repeats)).collect::<Vec<_>>();
    assert_eq!(describe(&resumed), describe(&whole));
    // More repeats go on from there.
    let more = ProfileOptions { repeats: 3, ..options() };
    profile(&space, &contract, &more, &path, &mut |_, _| {}).unwrap();
    assert!(fs::read_to_string(&path).unwrap().starts_with(&after));
    // Results of another workload are refused.
    let mut other = contract.clone();
    other.workload.batch = 1;
    let error = profile(&space, &other, &options(), &path, &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("runs.jsonl") && error.contains("another plan"), "{error}");
}

#[test]
fn memory_is_the_models_own_whatever_else_is_loaded() {
    let _alone = alone();
    let (space, contract) = (space(SMALL), contract("memory_mib = 3"));
    let parent = Dummy::new(&space.parent).unwrap();
    let student =
        Dummy::new(&space.config_of(&space.uniform(&[(autocompress::supernet::Axis::Hidden, 96)]).unwrap()).unwrap());
    let student = student.unwrap();
    for dummy in [&parent, &student] {
        let bytes = dummy.layer_bytes.iter().sum::<usize>() + dummy.rest_bytes;
        assert_eq!(weight_bytes(&dummy.lm), bytes);
        let elements: usize = dummy.lm.params.iter().map(|(_, p)| p.value.numel()).sum();
        assert!(bytes >= 4 * elements && bytes < 5 * elements, "{bytes} for {elements} weights");
    }
    let alone = measure(&[&student.lm], &contract, 1).unwrap();
    let both = measure(&[&parent.lm, &student.lm], &contract, 2).unwrap();
    assert_eq!(alone[0].peak_bytes, both[1].peak_bytes);
    assert!(both[0].peak_bytes > both[1].peak_bytes);
    assert!(both.iter().all(|m| m.peak_bytes > weight_bytes(&student.lm) && m.throughput(&contract) > 0.0));
    if cfg!(target_os = "linux") {
        assert!(both.iter().all(|m| m.resident_bytes.is_some_and(|bytes| bytes > m.peak_bytes)));
    }
}
