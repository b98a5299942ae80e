//! The report of a compression: as numbers, as a page, as a table for the terminal.

mod data;

pub use data::*;
