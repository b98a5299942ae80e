//! What a profiler would count: exact, and the same on every machine.

pub mod banks;
pub mod counters;
pub mod sectors;
