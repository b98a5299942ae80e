//! The run directory: everything that a job needs or makes, safe against kills, full disks and second processes.
//!
//! ```text
//! RUN/lock            held while a process works here; holds its id
//! RUN/recipe.toml     the recipe, word for word
//! RUN/inputs.json     digests of what the recipe reads
//! RUN/stages/NAME.json  one for each completed stage
//! RUN/…               what stages write: metrics.jsonl, checkpoints/step-00000123/, …
//! ```

mod checkpoints;
mod digest;
mod directory;
mod metrics;
mod stages;

pub use checkpoints::{Checkpoints, FoundCheckpoint, Latest};
pub use digest::{digest_bytes, digest_file};
pub use directory::{Input, RECIPE, RunDir, is_run};
pub use metrics::{Metrics, read_lines};
pub use stages::verify;
