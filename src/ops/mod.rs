//! The operations, one folder each.
//!
//! In every folder: `mod.rs` the contract (shapes, errors, what goes on the tape), `reference.rs` a naive f64 version,
//! `cases.rs` inputs that tests, benches and kernel checks share, `cpu.rs` the f32 code, `cuda.rs` the launches on a GPU.
//!
//! Where the inputs are, there an op computes: `mod.rs` asks the first of them, and nobody else does.
//!
//! Activations are flat: [R, …] with R rows, one per token. [`Segments`](crate::tensor::Segments) say which rows form a
//! sequence; a [`Mask`](crate::autograd::Mask) knows which draw a row belongs to.

pub mod adamw;
pub mod attention;
pub mod causal_conv1d;
pub mod cross_entropy;
pub mod distill_loss;
pub mod embedding;
pub mod gated_group_norm;
mod gpu;
pub mod grouped_gemm;
pub mod gumbel_softmax;
pub mod linear;
pub mod mask_keep;
pub mod moe_combine;
pub mod moe_permute;
pub mod moe_route;
pub mod quantize;
pub mod quantized_grouped_gemm;
pub mod quantized_linear;
pub mod relu2;
pub mod residual_add;
pub mod rms_norm;
pub mod ssd_scan;

use crate::autograd::check::Case;

/// Every op's cases, by the op's name.
pub fn cases() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("adamw", adamw::cases::cases()),
        ("attention", attention::cases::cases()),
        ("causal_conv1d", causal_conv1d::cases::cases()),
        ("cross_entropy", cross_entropy::cases::cases()),
        ("distill_loss", distill_loss::cases::cases()),
        ("embedding", embedding::cases::cases()),
        ("gated_group_norm", gated_group_norm::cases::cases()),
        ("grouped_gemm", grouped_gemm::cases::cases()),
        ("gumbel_softmax", gumbel_softmax::cases::cases()),
        ("linear", linear::cases::cases()),
        ("mask_keep", mask_keep::cases::cases()),
        ("moe_combine", moe_combine::cases::cases()),
        ("moe_permute", moe_permute::cases::cases()),
        ("moe_route", moe_route::cases::cases()),
        ("quantize", quantize::cases::cases()),
        ("quantized_grouped_gemm", quantized_grouped_gemm::cases::cases()),
        ("quantized_linear", quantized_linear::cases::cases()),
        ("relu2", relu2::cases::cases()),
        ("residual_add", residual_add::cases::cases()),
        ("rms_norm", rms_norm::cases::cases()),
        ("ssd_scan", ssd_scan::cases::cases()),
    ]
}
