//! Elementary functions that vectorise, counter-based random numbers and low-precision floats: the arithmetic that every
//! device must agree on.

pub mod elementary;
pub mod fp4;
pub mod fp8;
pub mod philox;
pub mod rounding;

pub use elementary::{exp, exp_to_88, fma, sigmoid, silu, silu_grad, softplus};
pub use fp8::Fp8;
pub use philox::Philox;
pub use rounding::Rounding;
