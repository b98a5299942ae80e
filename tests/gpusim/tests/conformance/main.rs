//! Conformance: one instruction at a time, against values worked out from the PTX ISA by other means than the simulator's:
//! wide integers, the processor's own rounding modes, the `half` crate, or tables.

mod bits;
mod compare;
mod convert;
mod float;
mod half_precision;
mod harness;
mod integer;
mod matrix;
mod memory;
mod moves;
mod special;
mod warp;
