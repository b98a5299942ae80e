//! What goes to standard output.

use std::io::{ErrorKind, Write};

pub use crate::report::{bytes, count};
use crate::{Error, Result};

/// Writes `text` and a line break. A reader that went away (`| head`) ends the output, not the program.
pub fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::io("standard output", "write")(e)),
        _ => Ok(()),
    }
}

/// Writes a line to standard error. Where that is closed (`2>&1 | head`) nobody reads it, and the work goes on.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes a value as indented JSON.
pub fn json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::io("standard output", "write")(e.into()))?;
    line(&text)
}
