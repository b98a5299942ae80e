//! Elementary functions that vectorise and counter-based random numbers: the arithmetic that every device must agree on.

pub mod elementary;
pub mod philox;

pub use elementary::{exp, exp_to_88, fma, sigmoid, silu, silu_grad, softplus};
pub use philox::Philox;
