//! Tokens in: built-in tasks, text, token shards, and the loader that feeds the training loop.
//!
//! | file | what it holds |
//! |---|---|
//! | [`batch`] | a [`Batch`]: tokens, targets, segments |
//! | [`tasks`] | eight byte-level tasks with a train and a held-out split, exact-match scoring |
//! | [`tokenizer`] | text to token ids: bytes, or a `tokenizer.json` |
//! | [`text`] | documents and evaluation records from text and JSONL files |
//! | [`shards`] | token shards on disk: format, reader, writer |
//! | [`build`] | a set of shards from documents |
//! | [`pack`] | documents shuffled per epoch and cut into rows without padding |
//! | [`source`] | the trait that every source of sequences has |
//! | [`loader`] | a background thread which fills a bounded channel with batches |
//! | [`config`] | [`DataConfig`], a source as a user describes it |
//!
//! Everything drawn at random comes from ChaCha8 streams keyed by (seed, purpose, indices): any sequence of any step
//! can be made alone, so a run that resumes sees exactly the batches it would have seen.

pub mod batch;
pub mod build;
pub mod config;
pub mod loader;
pub mod pack;
mod passes;
mod random;
pub mod shards;
pub mod source;
pub mod tasks;
pub mod text;
pub mod tokenizer;

pub use batch::{Batch, IGNORE};
pub use build::{BuildOptions, Built, build_shards};
pub use config::DataConfig;
pub use loader::{Loader, LoaderConfig};
pub use pack::Part;
pub use passes::{passes, sequences_of_pass};
pub use source::{Boundaries, Source};
pub use tasks::{Example, Split, Task, TasksConfig};
pub use tokenizer::{BOS, EOS, PAD, Tokenizer};
