//! A report as files.

use std::path::Path;

use super::{Report, html};
use crate::files::{read_text, write_atomic};
use crate::{Error, Result};

/// Writes `report.json` and `report.html` into `folder`, each whole or not at all. NaN and the infinities are strings.
///
/// # Errors
/// [`Error::Io`] naming the file that cannot be written; an earlier one stays as it was.
pub fn write(report: &Report, folder: &Path) -> Result<()> {
    let json_file = folder.join("report.json");
    let mut json = serde_json::to_string_pretty(report).map_err(|e| Error::io(&json_file, "write")(e.into()))?;
    json.push('\n');
    let page = html(report)?;
    write_atomic(&json_file, |out| out.write_all(json.as_bytes()))?;
    write_atomic(&folder.join("report.html"), |out| out.write_all(page.as_bytes()))
}

/// Reads what [`write()`] left in `report.json`.
///
/// # Errors
/// [`Error::Io`] where the file cannot be read, [`Error::Input`] naming the line where it is no report.
pub fn read(path: &Path) -> Result<Report> {
    serde_json::from_str(&read_text(path)?).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let found = error.to_string();
        let found = found.strip_suffix(&format!(" at {place}")).unwrap_or(&found);
        Error::input(path, place, found, "a report as this program writes it")
    })
}
