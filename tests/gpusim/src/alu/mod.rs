//! Arithmetic: what every per-lane instruction computes, in the order of the PTX ISA's chapters.

pub mod approx;
pub mod bits;
pub mod compare;
pub mod convert;
pub mod float;
pub mod half;
pub mod integer;
pub mod lanes;
pub mod rounding;
