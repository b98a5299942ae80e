//! Why a PTX text was refused.

use std::fmt;

/// A refusal with the line it concerns (from 1; 0 when it concerns the whole text).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxError {
    pub line: u32,
    pub message: String,
}

impl PtxError {
    pub fn new(line: u32, message: impl Into<String>) -> Self {
        PtxError { line, message: message.into() }
    }
}

impl fmt::Display for PtxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for PtxError {}

pub type Result<T> = std::result::Result<T, PtxError>;
