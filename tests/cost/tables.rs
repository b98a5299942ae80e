use std::path::Path;

use autocompress::cost::{Cost, Key, Measure, Table, quantile};

use super::common::{ALL_AXES, contract, space, synthetic};

#[test]
fn a_table_reads_back_as_it_was_written() {
    let mut table = synthetic(&space(ALL_AXES), &contract("latency_ms = 1"), -12.5);
    let key = Key { measure: Measure::Decode, context: 9, hidden_size: 7, part: "attention H4 KV2 P32".into() };
    table.rows.insert(key, Cost { median: 1.0 / 3.0 * 1e-7, iqr: f64::MIN_POSITIVE, repeats: 5 });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.csv");
    table.save(&path).unwrap();
    assert_eq!(Table::from_file(&path).unwrap(), table);
}

#[test]
fn a_damaged_table_is_refused_with_its_line() {
    let csv = synthetic(&space(ALL_AXES), &contract("latency_ms = 1"), 0.0).to_csv();
    let line = csv.lines().nth(2).unwrap();
    let cases = [
        (csv.replacen("measure", "what", 1), "line 1"),
        (csv.replacen(line, &format!("{line},5"), 1), "line 3"),
        (csv.replacen(line, "decode,x,128,rest,1,1,1", 1), "line 3"),
        (csv.replacen(line, "decode,1,128,rest,nan,1,1", 1), "line 3"),
        (format!("{csv}{line}\n"), "a second row"),
    ];
    for (text, at) in cases {
        let error = Table::from_csv(Path::new("t.csv"), &text).unwrap_err().to_string();
        assert!(error.contains("t.csv") && error.contains(at), "{error}");
    }
}

#[test]
fn medians_and_quartiles() {
    let cost = Cost::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
    assert_eq!((cost.median, cost.iqr, cost.repeats), (3.0, 2.0, 5));
    assert_eq!([0.0, 0.5, 0.95, 1.0].map(|q| quantile(&[0.0, 10.0, 20.0], q)), [0.0, 10.0, 19.0, 20.0]);
}
