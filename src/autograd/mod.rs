//! Reverse-mode differentiation over a tape, parameters and their gradients, masks, and the gradient checker.

pub mod check;
mod mask;
mod param;
mod tape;
pub mod transfer;

pub use mask::{Draws, Mask, MaskRows, masked};
pub use param::{GradientSink, Gradients, Param, ParamId, Params, WriteGradient};
pub use tape::{Backward, OpTime, Tape, Var, round_to_bf16};
pub(crate) use tape::{WIDE_PRODUCT, rounds_to_bf16};
