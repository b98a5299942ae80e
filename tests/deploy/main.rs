//! Promise: a deployment that is not at hand can be planned: its contract is explained and its contradictions found, its
//! memory is predicted term by term from a configuration, its times are estimated and marked as such, and traces of its
//! engine become the rows of its table, to the nanosecond. By such a table a recipe runs to the recovered student.

mod commands;
mod common;
mod contracts;
mod elsewhere;
mod generator;
mod memory;
mod planned;
mod roofline;
mod rows;
mod traces;
mod training;
