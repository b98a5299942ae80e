//! The cost model: how right its predictions were, and its table.

use serde::Serialize;

use super::panel::Panel;
use crate::report::chart::{ErrorRow, Point, diagonal, errors, point_key};
use crate::report::number::{bytes, percent, ratio, short, signed_percent};
use crate::report::{CostModelResult, CostPoint, CostRow, Report};

/// Tables up to so many rows are open at first.
const OPEN: usize = 12;

#[derive(Serialize)]
pub(super) struct Costs {
    rows: usize,
    points: usize,
    /// Factor of the times' predictions, where it is not 1.
    drift: Option<String>,
    panels: Vec<Panel>,
    errors: Vec<ErrorLine>,
    tables: Vec<Table>,
    open: bool,
}

#[derive(Serialize)]
struct ErrorLine {
    resource: String,
    median: String,
    worst: String,
    margin: String,
    /// Of the student alone, with its sign.
    student: String,
}

#[derive(Serialize)]
struct Table {
    hidden_size: usize,
    whose: &'static str,
    rows: Vec<TableRow>,
}

#[derive(Serialize)]
struct TableRow {
    part: String,
    prefill: String,
    decode: String,
    request: String,
    weights: String,
    cache: String,
    workspace: String,
}

pub(super) fn costs(report: &Report) -> Costs {
    let model = &report.cost_model;
    Costs {
        rows: model.rows,
        points: model.points.len(),
        drift: (model.drift != 1.0).then(|| format!("{:.3}", model.drift)),
        panels: panels(model),
        errors: error_lines(model),
        tables: tables(report),
        open: model.table.len() <= OPEN,
    }
}

fn points(model: &CostModelResult, of: fn(&CostPoint) -> (f64, f64)) -> Vec<Point<'_>> {
    let point = |p| {
        let (predicted, measured) = of(p);
        Point { name: &p.name, predicted, measured }
    };
    model.points.iter().map(point).collect()
}

fn panels(model: &CostModelResult) -> Vec<Panel> {
    let latency = points(model, |p| (p.predicted_ms, p.measured_ms));
    let memory = points(model, |p| (p.predicted_mib, p.measured_mib));
    let keys = || {
        [("other", "random architecture"), ("parent", "parent"), ("student", "student")]
            .map(|(class, name)| (point_key(class), name.to_owned()))
    };
    let row = |name, unit, points| ErrorRow { name, unit, points, margin: model.margin.get(name).copied() };
    let rows = [row("latency", "ms", latency.as_slice()), row("memory", "MiB", memory.as_slice())];
    let label = "Relative errors of the predictions of latency and memory";
    vec![
        Panel::new("Latency of a request", diagonal("Predicted against measured latency", "ms", &latency)).keys(keys()),
        Panel::new("Peak memory", diagonal("Predicted against measured memory", "MiB", &memory)).keys(keys()),
        Panel::new("(predicted − measured) / measured", errors(label, &rows))
            .note("Shaded: the margin kept from a limit."),
    ]
}

fn error_lines(model: &CostModelResult) -> Vec<ErrorLine> {
    let mut resources: Vec<&String> = model.median_error.keys().chain(model.worst_error.keys()).collect();
    resources.sort_unstable();
    resources.dedup();
    let line = |resource: &String| {
        let of = |map: &std::collections::BTreeMap<String, f64>| {
            map.get(resource).map_or("–".to_owned(), |v| percent(*v, 2))
        };
        ErrorLine {
            resource: resource.clone(),
            median: of(&model.median_error),
            worst: of(&model.worst_error),
            margin: of(&model.margin),
            student: student_error(model, resource),
        }
    };
    resources.into_iter().map(line).collect()
}

/// (predicted − measured) / measured of the student.
fn student_error(model: &CostModelResult, resource: &str) -> String {
    let student = model.points.iter().find(|p| p.name == "student");
    let error = student.and_then(|p| match resource {
        "latency" => Some(ratio(p.predicted_ms, p.measured_ms) - 1.0),
        "memory" => Some(ratio(p.predicted_mib, p.measured_mib) - 1.0),
        _ => None,
    });
    error.map_or("–".to_owned(), signed_percent)
}

fn tables(report: &Report) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for row in &report.cost_model.table {
        let line = table_row(row, report.deployment.workload.output_tokens);
        match tables.iter_mut().find(|t| t.hidden_size == row.hidden_size) {
            Some(table) => table.rows.push(line),
            None => {
                let (parent, student) = (report.parent.hidden_size, report.student.hidden_size);
                let whose = match (row.hidden_size == parent, row.hidden_size == student) {
                    (true, true) => "parent and student",
                    (true, false) => "parent",
                    (false, true) => "student",
                    _ => "",
                };
                tables.push(Table { hidden_size: row.hidden_size, whose, rows: vec![line] });
            }
        }
    }
    tables
}

fn table_row(row: &CostRow, output_tokens: usize) -> TableRow {
    TableRow {
        part: row.part.clone(),
        prefill: short(row.prefill_ms),
        decode: short(row.decode_us),
        request: short(row.prefill_ms + output_tokens as f64 * row.decode_us / 1e3),
        weights: bytes(row.weights_bytes),
        cache: bytes(row.cache_bytes),
        workspace: bytes(row.workspace_bytes),
    }
}
