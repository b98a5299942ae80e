//! The jobs a user starts, one file each.

pub mod evaluate;
pub mod pretrain;
pub mod profile;
pub mod recipe_file;
pub mod recover;
