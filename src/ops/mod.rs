//! The operations, one folder each.
//!
//! In every folder: `mod.rs` the contract (shapes, errors, what goes on the tape), `reference.rs` a naive f64 version,
//! `cases.rs` inputs that tests, benches and kernel checks share, `cpu.rs` the f32 code.
//!
//! Activations are flat: [R, …] with R rows, one per token. [`Segments`](crate::tensor::Segments) say which rows form a
//! sequence; a [`Mask`](crate::autograd::Mask) knows which draw a row belongs to.

pub mod attention;
pub mod cross_entropy;
pub mod distill_loss;
pub mod embedding;
pub mod linear;
pub mod relu2;
pub mod residual_add;
pub mod rms_norm;

use crate::autograd::check::Case;

/// Every op's cases, by the op's name.
pub fn cases() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("attention", attention::cases::cases()),
        ("cross_entropy", cross_entropy::cases::cases()),
        ("distill_loss", distill_loss::cases::cases()),
        ("embedding", embedding::cases::cases()),
        ("linear", linear::cases::cases()),
        ("relu2", relu2::cases::cases()),
        ("residual_add", residual_add::cases::cases()),
        ("rms_norm", rms_norm::cases::cases()),
    ]
}
