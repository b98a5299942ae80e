//! The data room's promises: splits never overlap, scoring is exact, batches depend on the seed and the step alone,
//! packing loses and wastes no token, and errors say where, what was found and what was expected.

mod common;
mod config;
mod loader;
mod packing;
mod shards;
mod task_rows;
mod tasks;
mod text;
mod tokenizer;
