//! The supernet's promises: sorting changes nothing, a hard choice of the masked supernet is the extracted student, spaces
//! are counted exactly and checked, importance is what its formulas say.

#[path = "../common/mod.rs"]
mod common;

mod architectures;
mod calibration;
mod extraction;
mod gradients;
mod models;
mod sorting;
mod spaces;
