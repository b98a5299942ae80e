use std::fs;

use autocompress::Error;
use autocompress::report::{read, write};
use serde_json::Value;

use crate::fixture::report;
use crate::hostile;

#[test]
fn a_report_is_read_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut reports = hostile::all();
    reports.push(("usual", report("MEMEM*EMEMEME")));
    for (name, report) in reports {
        write(&report, folder.path()).unwrap();
        let back = read(&folder.path().join("report.json")).unwrap_or_else(|e| panic!("{name}: {e}"));
        same(&serde_json::to_value(&report).unwrap(), &serde_json::to_value(&back).unwrap(), name);
    }
    let mut names: Vec<String> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["report.html", "report.json"]);
}

/// Not by ==, to which NaN is never itself. A number may come back as its neighbour: JSON is read the fast way.
fn same(a: &Value, b: &Value, place: &str) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            assert!(a.keys().eq(b.keys()), "{place}");
            a.iter().for_each(|(key, value)| same(value, &b[key], &format!("{place}.{key}")));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{place}");
            a.iter().zip(b).for_each(|(a, b)| same(a, b, place));
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!(a == b || a.next_up() == b || a.next_down() == b, "{place}: {a} and {b}");
        }
        (a, b) => assert_eq!(a, b, "{place}"),
    }
}

#[test]
fn what_json_lacks_is_a_word() {
    let mut report = report("ME");
    report.quality.held_out_after_recovery = f64::NAN;
    report.recovery.final_loss = f64::NEG_INFINITY;
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["quality"]["held_out_after_recovery"], "NaN");
    assert_eq!(json["recovery"]["final_loss"], "-Infinity");
}

#[test]
fn faults_name_the_file_and_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    assert!(matches!(read(&path), Err(Error::Io { action: "read", .. })));

    write(&report("ME"), folder.path()).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let cases = [
        (whole.replacen("\"gates\": [", "\"gates\": 3, \"x\": [", 1), "invalid type: integer `3`"),
        (whole[..whole.len() / 2].to_owned(), "EOF"),
        (whole.replacen("\"machine\"", "\"engine\"", 1), "missing field `machine`"),
        (whole.replacen("\"prefill_ms\": ", "\"prefill_ms\": \"fast\", \"x\": ", 1), "string \"fast\""),
        (String::new(), "EOF"),
    ];
    for (text, found) in cases {
        fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(&error, Error::Input { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("report.json: line ") && message.contains(found), "{message}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = write(&report("ME"), &folder.path().join("none")).unwrap_err();
    assert!(matches!(&error, Error::Io { .. }) && error.to_string().contains("none/report.json"), "{error}");
}
