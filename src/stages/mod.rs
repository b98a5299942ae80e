//! The jobs a user starts, one file each.

pub mod evaluate;
pub mod pretrain;
pub mod profile;
pub mod recover;
