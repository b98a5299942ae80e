//! `nemotron_h`: configuration, checkpoint files, blocks and the language model.

pub mod checkpoint;
pub mod config;
