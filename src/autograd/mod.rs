//! Reverse-mode differentiation over a tape, parameters and their gradients, masks, and the gradient checker.

pub mod check;
mod mask;
mod param;
mod stored;
mod tape;
pub mod transfer;

pub use mask::{Draws, Mask, MaskRows, masked};
pub use param::{GradientSink, Gradients, Param, ParamId, Params, WriteGradient};
pub use stored::{Play, Stored, store};
pub(crate) use stored::{WIDE_PRODUCT, on_host, round_stored};
pub use tape::{Backward, OpTime, Tape, Var};
