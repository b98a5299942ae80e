//! Promise: what the search is compared with is chosen by the same limits, exactly, and a study compares like with like and
//! survives being stopped.

#[allow(dead_code)]
#[path = "../search/instances.rs"]
mod instances;
#[allow(dead_code)]
#[path = "../cli/common.rs"]
mod program;

mod minitron;
mod random;
mod study;
mod uniform;
