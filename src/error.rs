//! The crate's one error type.
//!
//! Every variant names where the fault is (file, key, tensor, argument), what was found and what was expected.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused: exit code 1, or 2 where what was to be read is not there or not to be read.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        path: PathBuf,
        /// What was tried, as a verb: "read", "create", "write".
        action: &'static str,
        source: std::io::Error,
    },

    /// A file that a user gave is not what it must be: exit code 2.
    #[error("{}: {at}: found {found}, expected {expected}", file.display())]
    Input {
        file: PathBuf,
        /// Where in the file: a key, a tensor's name, a line.
        at: String,
        found: String,
        expected: String,
    },

    /// A command line or a combination of options that cannot work: exit code 2.
    #[error("{0}")]
    Usage(String),

    /// An operation was given tensors that break its contract: exit code 1.
    #[error("{op}: {argument}: found {found}, expected {expected}")]
    Contract { op: &'static str, argument: &'static str, found: String, expected: String },

    /// A number that must be finite is not, while a job runs: exit code 1.
    #[error("{what} is {value} at step {step}: training has diverged; earlier checkpoints are kept")]
    Diverged { what: &'static str, value: f32, step: u64 },

    /// More memory than the machine has: exit code 1.
    #[error("{what}: needs at least {} GiB of memory, found {} GiB in this machine", needed >> 30, found >> 30)]
    Memory { what: String, needed: u64, found: u64 },

    /// A limit that no architecture of the search space meets: exit code 2.
    #[error(
        "{resource}: found at {} {smallest} {unit} (the architecture {architecture}{}), expected at {} {limit} {unit}",
        if *at_least { "most" } else { "least" },
        kept_text(kept),
        if *at_least { "least" } else { "most" }
    )]
    Unreachable {
        /// The limited quantity, or the key that limits it.
        resource: String,
        unit: String,
        /// What the cost must be at most.
        limit: f64,
        /// The smallest cost that any architecture has.
        smallest: f64,
        /// Where more is better: the cost must be `limit` at least, and `smallest` is the largest.
        at_least: bool,
        /// The other limits that the architecture keeps, where each alone can be met.
        kept: Vec<String>,
        /// Its gates and sizes, as JSON.
        architecture: String,
    },

    /// Another process holds the run directory: exit code 1.
    #[error("{}: in use by process {pid}; wait for it, or stop it", path.display())]
    Locked { path: PathBuf, pid: String },

    /// A GPU, its driver or a kernel: exit code 2 where this machine does not have what was asked for, else 1.
    #[error(transparent)]
    Cuda(#[from] crate::device::cuda::CudaError),

    /// Kernels that do not compute what they must: exit code 1.
    #[error("{0}")]
    Kernels(String),
}

/// Which limits an architecture keeps.
fn kept_text(kept: &[String]) -> String {
    if kept.is_empty() { String::new() } else { format!(", within the limit of {}", kept.join(" and ")) }
}

impl Error {
    pub fn io(path: impl AsRef<Path>, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.as_ref().to_path_buf();
        move |source| Error::Io { path, action, source }
    }

    pub fn input(
        file: impl AsRef<Path>,
        at: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Error {
        Error::Input {
            file: file.as_ref().to_path_buf(),
            at: at.into(),
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// Names the file and the table that a fault in the usage was read from: it begins with a key of that table, or, where
    /// it is of the whole table, with "found".
    pub fn within_table(self, file: &Path, table: &str) -> Error {
        match self {
            Error::Usage(text) if text.starts_with("found ") => {
                Error::Usage(format!("{}: {table}: {text}", file.display()))
            }
            Error::Usage(text) => Error::Usage(format!("{}: {table}.{text}", file.display())),
            other => other,
        }
    }

    /// Names the file that a fault in the usage was read from.
    pub fn within(self, file: &Path) -> Error {
        match self {
            Error::Usage(text) => Error::Usage(format!("{}: {text}", file.display())),
            other => other,
        }
    }

    pub fn contract(
        op: &'static str,
        argument: &'static str,
        found: impl std::fmt::Debug,
        expected: impl Into<String>,
    ) -> Error {
        Error::Contract { op, argument, found: format!("{found:?}"), expected: expected.into() }
    }

    /// The process's exit code: 2 where the user's input is at fault, 1 where the work failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Input { .. } | Error::Usage(_) | Error::Unreachable { .. } => 2,
            Error::Cuda(error) if error.is_usage() => 2,
            Error::Io { action: "read" | "open", source, .. } if names_no_input(source.kind()) => 2,
            Error::Io { .. }
            | Error::Cuda(_)
            | Error::Kernels(_)
            | Error::Contract { .. }
            | Error::Diverged { .. }
            | Error::Memory { .. }
            | Error::Locked { .. } => 1,
        }
    }
}

/// Whether nothing readable stands at a path, so that the path is at fault and not the disk.
fn names_no_input(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::PermissionDenied
    )
}
