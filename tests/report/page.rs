use std::fs;
use std::path::Path;

use autocompress::report::{Report, html, text, write};

use crate::fixture::{report, screened};
use crate::hostile::{self, SCRIPT};
use crate::tags::{Tag, tags};

/// Patterns of the usual reports: the tiny parent, one of 13 layers, one with 50 gates.
const PATTERNS: [&str; 3] = ["MEMEM*EMEMEME", "MEME*EME", "MEMEM*EMEMEM*EMEMEM*EMEMEM-E"];

fn usual() -> Vec<(&'static str, Report)> {
    PATTERNS.map(|pattern| (pattern, report(pattern))).into()
}

fn everything() -> Vec<(&'static str, Report)> {
    let mut reports = usual();
    reports.extend(hostile::all());
    reports
}

#[test]
fn it_is_balanced_and_draws_only_numbers() {
    for (name, report) in everything() {
        let page = html(&report).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(page.len() < 3 << 20, "{name}: {} bytes", page.len());
        for tag in tags(&page) {
            for key in ["x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "width", "height", "d", "fill-opacity"] {
                let Some(value) = tag.attributes.get(key) else { continue };
                if tag.name != "meta" {
                    let fine = |c: char| c.is_ascii_digit() || ".-% MLhlz".contains(c);
                    assert!(!value.is_empty() && value.chars().all(fine), "{name}: {tag:?}");
                    assert!(!value.starts_with('-') || !["width", "height", "r"].contains(&key), "{name}: {tag:?}");
                }
            }
        }
    }
}

#[test]
fn shapes_stay_within_their_picture() {
    for (name, report) in everything() {
        let page = html(&report).unwrap();
        let mut size = [0.0, 0.0];
        for Tag { name: tag, attributes, .. } in tags(&page) {
            let number = |key: &str| attributes.get(key).and_then(|v| v.parse::<f64>().ok());
            if let Some(view) = attributes.get("viewBox") {
                let parts: Vec<f64> = view.split(' ').map(|v| v.parse().unwrap()).collect();
                size = [parts[2], parts[3]];
            }
            let within = |at: f64, most: f64| (-8.0..=most + 8.0).contains(&at);
            if tag == "rect" && attributes.values().all(|v| !v.contains('%')) {
                let (x, y) = (number("x").unwrap_or(0.0), number("y").unwrap_or(0.0));
                let (right, bottom) = (x + number("width").unwrap(), y + number("height").unwrap());
                let fine =
                    within(x, size[0]) && within(y, size[1]) && within(right, size[0]) && within(bottom, size[1]);
                assert!(fine || !attributes.contains_key("x"), "{name}: {attributes:?} in {size:?}");
            }
            if tag == "circle" {
                assert!(within(number("cx").unwrap(), size[0]) && within(number("cy").unwrap(), size[1]), "{name}");
            }
        }
    }
}

#[test]
fn it_asks_for_nothing_from_outside_and_runs_nothing() {
    for (name, report) in everything() {
        let page = html(&report).unwrap();
        for outside in ["http:", "https:", "@import", "@font-face", "src=\"", "javascript:"] {
            assert!(!page.contains(outside), "{name}: {outside}");
        }
        for tag in tags(&page) {
            assert!(
                !["script", "img", "iframe", "object", "embed", "base", "form", "use"].contains(&tag.name.as_str())
            );
            for (key, value) in &tag.attributes {
                assert!(!key.starts_with("on"), "{name}: {tag:?}");
                let inside = value.starts_with('#') || value == "data:,";
                assert!(key != "href" || inside, "{name}: {tag:?}");
            }
        }
        assert!(!page.contains('\u{1b}'), "{name}: a control character");
    }
}

#[test]
fn names_are_text() {
    let page = html(&hostile::all().swap_remove(0).1).unwrap();
    assert!(page.contains("&lt;script&gt;") && page.contains("{{ 7*7 }}") && !page.contains(SCRIPT));
}

#[test]
fn pictures_are_told_in_words() {
    for (name, report) in everything() {
        let page = html(&report).unwrap();
        let tags = tags(&page);
        for svg in tags.iter().filter(|t| t.name == "svg") {
            let hidden = svg.attributes.get("aria-hidden").is_some_and(|v| v == "true");
            let told = svg.attributes.get("aria-label").is_some_and(|v| !v.is_empty());
            assert!(hidden != told, "{name}: {svg:?}");
        }
        let headings: Vec<&str> =
            tags.iter().map(|t| t.name.as_str()).filter(|n| ["h1", "h2", "h3"].contains(n)).collect();
        assert_eq!(headings[..2], ["h1", "h2"], "{name}");
        assert_eq!(headings.iter().filter(|h| **h == "h1").count(), 1);
        for anchor in tags.iter().filter(|t| t.name == "a") {
            let target = anchor.attributes["href"].trim_start_matches('#');
            assert!(tags.iter().any(|t| t.attributes.get("id").is_some_and(|id| id == target)), "{name}: {target}");
        }
    }
}

#[test]
fn it_says_what_the_report_says() {
    let mut report = report("MEMEM*EMEMEME");
    report.student.layers[2].kind = "removed".to_owned();
    let page = html(&report).unwrap();
    assert!(page.contains("Every limit is met"));
    assert!(page.contains("Layer 2: Mamba removed"));
    let columns =
        tags(&page).into_iter().filter(|t| t.attributes.get("aria-label").is_some_and(|l| l.starts_with("Layer ")));
    assert_eq!(columns.count(), 13);
    let search = report.search.clone().unwrap();
    for gate in &search.gates {
        assert!(page.contains(&format!("aria-label=\"{}: ", gate.name)), "{}", gate.name);
    }
    for row in &report.cost_model.table {
        assert!(page.contains(&row.part));
    }
    assert!(page.contains("memory_mib = 5"), "the recipe");
    assert!(page.contains("1.23·10²¹") && page.contains(&search.architectures), "how many architectures");
    assert!(!page.contains("by less than the spread"));
    report.limits[0].student_iqr = report.limits[0].limit;
    assert!(html(&report).unwrap().contains("by less than the spread"));
    let missed = html(&hostile::one_limit()).unwrap();
    assert!(missed.contains("Not met: latency by ") && missed.contains("✗ not met") && !missed.contains("Every limit"));
}

#[test]
fn a_screening_is_told_in_place_of_a_search() {
    let report = screened("MEME*E");
    let page = html(&report).unwrap();
    for part in [
        "<h2>Screening</h2>",
        "id=\"screening\"",
        "d 96, E 12",
        "the student",
        "75.0 %",
        "Distillation of the candidates",
    ] {
        assert!(page.contains(part), "lacks {part}");
    }
    for part in ["<h2>Search</h2>", "<h2>Repair</h2>", "Gates over steps", "gates changed"] {
        assert!(!page.contains(part), "has {part}");
    }
    assert_eq!(page.matches("the student</td>").count(), 1);
    let told = text(&report);
    assert!(
        told.contains("uniform candidates: 6, 5 of them distilled") && told.contains("ρ of the architecture: "),
        "{told}"
    );
    assert!(!told.contains("repair"), "{told}");
}

/// Not a check: leaves pages for a person to look at.
#[test]
#[ignore = "writes pages to look at"]
fn leave_pages_to_look_at() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    for (name, report) in everything() {
        let folder = folder.join(name.replace('*', "x").replace([' ', ','], "_"));
        fs::create_dir_all(&folder).unwrap();
        write(&report, &folder).unwrap();
        println!("{}\n{}", folder.join("report.html").display(), text(&report));
    }
}
