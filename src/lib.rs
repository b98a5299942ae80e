//! autocompress: shrinks hybrid Mamba-2 / mixture-of-experts / attention language models to fit a measured deployment.
//!
//! The rooms of the house, from the ground up; a room uses only rooms below it:
//!
//! | room | what it holds |
//! |---|---|
//! | [`files`] | files and folders that appear whole or not at all |
//! | [`config_file`] | TOML files of a user |
//! | [`numerics`] | fast elementary functions, counter-based random bits |
//! | [`device`] | where memory comes from and which threads compute |
//! | [`tensor`] | contiguous arrays with a dtype and a shape |
//! | [`autograd`] | the tape, parameters, masks, gradient checking |
//! | [`ops`] | one folder per operation: contract, f64 reference, shared cases, CPU code |
//! | [`model`] | `nemotron_h`: configuration, checkpoint, blocks, language model |
//! | [`data`], [`engine`], [`run`] | tokens in, tokens out, and the run directory |
//! | [`train`] | the one training loop |
//! | [`supernet`] | the search space, importance, sorting, masks, extraction |
//! | [`cost`] | what an architecture costs on a deployment |
//! | [`search`] | the search for an architecture within limits, and its repair |
//! | [`baseline`] | architectures that a search is compared with |
//! | [`report`] | what a compression did, as numbers, a page and a table |
//! | [`export`] | weights in the formats of a deployment |
//! | [`stages`] | the jobs a user starts |
//! | [`cli`] | argument parsing |
//!
//! One letter per dimension everywhere: B batch, T tokens, d hidden, H heads, P head_dim, G groups, N state, E experts,
//! K top-k, F width, V vocabulary, R rows (usually B·T).

pub mod autograd;
pub mod baseline;
pub mod cli;
pub mod config_file;
pub mod cost;
pub mod data;
pub mod device;
pub mod engine;
pub mod error;
pub mod export;
pub mod files;
pub mod model;
pub mod numerics;
pub mod ops;
pub mod report;
pub mod run;
pub mod search;
pub mod stages;
pub mod supernet;
pub mod tensor;
pub mod train;

pub use error::{Error, Result};
