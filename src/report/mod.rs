//! The report of a compression: as numbers, as a page, as a table for the terminal.

mod data;

pub use data::*;

use std::path::Path;

use crate::{Result, files};

pub fn write(report: &Report, folder: &Path) -> Result<()> {
    files::write_json(&folder.join("report.html"), report)?;
    files::write_json(&folder.join("report.json"), report)
}
pub fn read(path: &Path) -> Result<Report> {
    files::read_json(path, "a report")
}
pub fn text(report: &Report) -> String {
    format!("{:#?}", (&report.limits, &report.quality, &report.repair))
}
