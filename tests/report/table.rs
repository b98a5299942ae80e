use autocompress::report::text;

use crate::fixture::report;
use crate::hostile;

#[test]
fn it_fits_and_holds_nothing_that_a_terminal_obeys() {
    let mut reports = hostile::all();
    reports.push(("usual", report("MEMEM*EMEMEME")));
    for (name, report) in reports {
        let text = text(&report);
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{name}: {} columns: {line}", line.chars().count());
            assert!(line.chars().all(|c| (' '..='~').contains(&c) || "·→≤≥ρ".contains(c)), "{name}: {line}");
        }
    }
}

#[test]
fn it_says_what_was_measured() {
    let report = report("MEME*EME");
    let text = text(&report);
    let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}\n{text}"));
    let latency = &report.limits[0];
    for number in [latency.parent_predicted, latency.parent_measured, latency.student_measured, latency.limit] {
        assert!(line("latency, ms").contains(&format!("{number:.2}")), "{text}");
    }
    assert!(line("latency, ms").ends_with("yes"));
    assert!(line("memory, MiB").contains('≤') && line("throughput, tokens/s").contains('≥'));
    assert!(line("sort").contains("92.1 %") && line("sort").contains("25.9 %") && line("sort").contains("86.8 %"));
    assert!(line("mean score").contains("91.9 %"));
    assert!(line("held-out KL").contains("0.0713"));
    assert!(line("ρ before the repair").contains("latency 1.0312"));
    let changed =
        format!("gates changed by the repair: {} of {}", report.repair.gates_changed.len(), report.repair.gates);
    assert_eq!(line("gates changed"), changed);
    assert_eq!(text.lines().last(), Some("every limit is met"));
}

#[test]
fn a_limit_that_is_not_met_is_last_with_its_gap() {
    let report = hostile::one_limit();
    let text = text(&report);
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("not met: latency by 0.3") && last.ends_with(" ms (1.6 %)"), "{last}");
    assert!(text.lines().any(|l| l.starts_with("latency, ms") && l.ends_with("NO")));
}

#[test]
fn a_limit_that_contradicts_the_report_wins() {
    let mut report = hostile::one_limit();
    report.met = true;
    assert!(text(&report).lines().last().unwrap().starts_with("not met"));
    report.limits[0].met = true;
    report.met = false;
    assert!(!text(&report).contains("every limit is met"));
    report.met = true;
    assert!(text(&report).contains("every limit is met"));
    report.limits[0].student_measured = f64::NAN;
    assert!(!text(&report).contains("every limit is met"));
}
