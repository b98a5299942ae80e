//! The jobs a user starts, one file or folder each.

pub mod compress;
pub mod evaluate;
pub mod pretrain;
pub mod recover;
pub mod study;
pub mod training;
