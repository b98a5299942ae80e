//! What an architecture costs on a deployment.
//!
//! Every resource with a limit (latency, memory, serving time) is a [`Resource`]: tables over gates, filled by measurement,
//! from which the hard cost of an architecture, the exact expectation over soft choices and the repair all read.

mod resource;

pub use resource::{LayerTerm, Resource};
