//! What is measured: each op's kernels at a shape, in all dtypes.

mod adamw;
mod attention;
mod causal_conv1d;
mod elementwise;
mod embedding;
mod gated_group_norm;
mod gates;
mod grouped_gemm;
mod linear;
mod losses;
mod masked;
mod moe_combine;
mod moe_permute;
mod moe_route;
mod quantize;
mod quantized_linear;
mod rms_norm;
mod second_pass;
mod ssd_scan;

use std::ptr::null_mut;

use super::super::embedded::abi;
use super::Spec;
use super::workload::Workload;
use masked::Masked;

type Make = fn(&[usize]) -> Vec<Workload>;

const fn spec(
    op: &'static str,
    letters: &'static [&'static str],
    paper: &'static [&'static [usize]],
    small: &'static [&'static [usize]],
    make: Make,
) -> Spec {
    Spec { op, letters, paper, small, make }
}

pub const SPECS: &[Spec] = &[
    spec("adamw", &["elements"], &[&[100_000_000]], &[&[65_536]], adamw::adamw),
    spec("attention", &["T", "Hq", "Hkv", "D"], &[&[8192, 32, 2, 128]], &[&[128, 4, 2, 64]], attention::attention),
    spec("causal_conv1d", &["R", "C"], &[&[8192, 6144]], &[&[256, 256]], causal_conv1d::causal_conv1d),
    spec("column_sum", &["P", "width"], &[&[512, 2688]], &[&[32, 512]], second_pass::column_sum),
    spec("cross_entropy", &["R", "V"], &[&[8192, 131_072]], &[&[64, 512]], losses::cross_entropy),
    spec("distill_loss", &["R", "V"], &[&[8192, 131_072]], &[&[64, 512]], losses::distill_loss),
    spec("embedding", &["R", "V", "d"], &[&[8192, 131_072, 2688]], &[&[64, 512, 1024]], embedding::embedding),
    spec(
        "gated_group_norm",
        &["R", "G", "columns"],
        &[&[8192, 8, 512]],
        &[&[64, 4, 128]],
        gated_group_norm::gated_group_norm,
    ),
    spec(
        "grouped_gemm",
        &["R", "E", "out", "in"],
        &[&[49_152, 128, 1856, 2688]],
        &[&[512, 4, 128, 256]],
        grouped_gemm::grouped_gemm,
    ),
    spec("gumbel_softmax", &["draws", "C"], &[&[8, 8]], &[&[8, 8]], gates::gumbel_softmax),
    // The second shape is a step of generation.
    spec(
        "linear",
        &["M", "N", "K"],
        &[&[8192, 10_304, 2688], &[8, 10_304, 2688]],
        &[&[256, 256, 256], &[8, 256, 256]],
        linear::linear,
    ),
    spec("mask_grad", &["R", "draws", "C"], &[&[8192, 8, 8]], &[&[2048, 4, 8]], second_pass::mask_grad),
    spec("mask_keep", &["draws", "C"], &[&[8, 8]], &[&[8, 8]], gates::mask_keep),
    spec(
        "moe_combine",
        &["R", "E", "K", "L"],
        &[&[8192, 128, 6, 2688]],
        &[&[64, 16, 6, 256]],
        moe_combine::moe_combine,
    ),
    spec(
        "moe_permute",
        &["R", "E", "K", "L"],
        &[&[8192, 128, 6, 2688]],
        &[&[64, 16, 6, 256]],
        moe_permute::moe_permute,
    ),
    spec("moe_route", &["R", "E", "K"], &[&[8192, 128, 6]], &[&[64, 32, 6]], moe_route::moe_route),
    spec("quantize", &["R", "W"], &[&[8192, 2688]], &[&[256, 512]], quantize::quantize),
    spec(
        "quantized_grouped_gemm",
        &["R", "E", "out", "in"],
        &[&[49_152, 128, 1856, 2688]],
        &[&[512, 4, 128, 256]],
        quantized_linear::quantized_grouped_gemm,
    ),
    spec(
        "quantized_linear",
        &["M", "N", "K"],
        &[&[8192, 10_240, 2688]],
        &[&[256, 256, 256]],
        quantized_linear::quantized_linear,
    ),
    spec("relu2", &["R", "F"], &[&[8192, 3712]], &[&[64, 512]], elementwise::relu2),
    spec("residual_add", &["R", "d"], &[&[8192, 2688]], &[&[64, 1024]], elementwise::residual_add),
    spec("rms_norm", &["R", "d"], &[&[8192, 2688]], &[&[256, 512]], rms_norm::rms_norm),
    spec(
        "ssd_scan",
        &["T", "H", "P", "G", "N"],
        &[&[8192, 64, 64, 8, 128]],
        &[&[128, 4, 64, 2, 64]],
        ssd_scan::ssd_scan,
    ),
];

/// No mask.
fn bare() -> abi::Mask {
    abi::Mask { ends: null_mut(), keep: null_mut(), draw: null_mut(), length: 1, candidates: 0 }
}

fn step_state() -> Vec<u8> {
    let state =
        abi::StepState { update: 5, learning_rate: 1e-3, kappa: 1.0, tau: 0.5, max_norm: 1.0, ..Default::default() };
    // SAFETY: plain data without padding (cuda/abi.h).
    unsafe { std::slice::from_raw_parts((&raw const state).cast::<u8>(), size_of::<abi::StepState>()) }.to_vec()
}

/// Items of a block of the counting sort (cuda/device/counting_sort.cuh).
const SORT_TILE: usize = 2048;

/// What the sort's scan makes of its counts: [keys, tiles], how many items come before the tile's of the key.
fn scanned(items: &[usize], keys: usize) -> Vec<u32> {
    let tiles = items.len().div_ceil(SORT_TILE);
    let mut counts = vec![0; keys * tiles];
    items.iter().enumerate().for_each(|(at, key)| counts[key * tiles + at / SORT_TILE] += 1);
    let mut before = 0;
    counts.iter_mut().for_each(|count| before += std::mem::replace(count, before));
    counts
}
