//! The cost model's promises: contracts are checked, the plan measures exactly the rows that a space needs, the model is
//! the sum of its rows, a stopped profile goes on, and predictions can be held against measurements.

mod common;
mod contracts;
mod models;
mod plans;
mod profiling;
mod tables;
