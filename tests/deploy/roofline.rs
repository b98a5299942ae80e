use autocompress::cost::roofline::{estimate, halves, held_out, key, parts, phases};
use autocompress::cost::{Contract, CostModel, Errors, Table};

use super::common::{DEPLOYMENTS, deployment, fixture, parent, preset, space};

#[test]
fn every_deployment_can_be_estimated_and_says_so() {
    for name in DEPLOYMENTS {
        let (contract, space) = deployment(name);
        let (table, calibration) = estimate(&space, &contract, &Table::default()).unwrap();
        assert!(calibration.fits().is_empty());
        for part in parts(&space).unwrap() {
            for phase in phases(&contract) {
                let row = table.rows[&key(&part, phase)];
                assert!(row.median > 0.0 && row.median.is_finite(), "{part:?} {phase:?}");
                // The mark of an estimate, which a saved table keeps.
                assert_eq!(row.repeats, 0);
            }
        }
        let read = Table::from_csv(std::path::Path::new("t.csv"), &table.to_csv()).unwrap();
        assert_eq!(read, table);
        let parent = CostModel::new(&space, &contract, &table).unwrap().predict(&space.parent_choice()).unwrap();
        println!(
            "{name}: parent {:.1} ms (prefill {:.1} ms, step {:.1} µs), {:.0} tokens/s",
            1e3 * parent.request_seconds,
            1e3 * parent.prefill_seconds,
            1e6 * parent.decode_step_seconds,
            contract.generated_tokens() / parent.request_seconds
        );
    }
}

#[test]
fn a_smaller_layer_is_never_slower() {
    let (contract, space) = deployment("rtx-5080");
    let (table, _) = estimate(&space, &contract, &Table::default()).unwrap();
    let time = |part: &str, d: usize, measure| table.get(measure, 0, d, part).unwrap();
    use autocompress::cost::Measure::Prefill;
    assert!(time("moe E128 F1024 S3712 K6", 2688, Prefill) < time("moe E128 F1856 S3712 K6", 2688, Prefill));
    assert!(time("moe E128 F1856 S3712 K6", 1408, Prefill) < time("moe E128 F1856 S3712 K6", 2688, Prefill));
    let mamba = |h| format!("mamba H{h} P64 G8 N128 conv4 chunk128");
    assert!(time(&mamba(32), 2688, Prefill) < time(&mamba(64), 2688, Prefill));
}

/// Rows that this crate's own engine measured: half of them predict the other half.
#[test]
fn half_of_a_measured_table_predicts_the_other() {
    let text = std::fs::read_to_string(preset("contracts/half.toml")).unwrap();
    // The fixture's one context of decode, 287 tokens: a step in the middle.
    let text =
        text.replace("output_tokens = 64", "output_tokens = 1").replace("input_tokens = 256", "input_tokens = 287");
    let mut contract = Contract::from_toml(&preset("contracts/half.toml"), &text).unwrap();
    let decode = contract.clone();
    contract.workload.input_tokens = 256;
    contract.workload.output_tokens = 0;
    let parent = parent("tiny/config");
    let space = space("tiny", &parent);
    let measured = Table::from_file(&fixture("tiny_cpu.csv")).unwrap();
    for (name, contract) in [("prefill", &contract), ("decode", &decode)] {
        let of_phase = |table: &Table| Table {
            rows: table.rows.iter().filter(|(k, _)| k.measure.name() == name).map(|(k, c)| (k.clone(), *c)).collect(),
        };
        let mut medians = Vec::new();
        for seed in 0..8 {
            let (known, other) = halves(&of_phase(&measured), seed);
            assert!(known.rows.len() > 80 && other.rows.len() > 80);
            assert!(known.rows.keys().all(|key| !other.rows.contains_key(key)));
            let pairs = held_out(&space, contract, &known, &other).unwrap();
            assert!(pairs.len() > 80, "{name}: {}", pairs.len());
            medians.push(Errors::of(&pairs).median);
        }
        medians.sort_by(f64::total_cmp);
        println!("{name}: median error of the other half {:.1} % to {:.1} %", 100.0 * medians[0], 100.0 * medians[7]);
        assert!(medians[4] < 0.15, "{name}: {medians:?}");
    }
}
