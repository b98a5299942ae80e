//! What is measured: each op's kernels at a shape.

mod attention;
mod grouped_gemm;
mod losses;
mod moe_route;
mod ssd_scan;

use std::ptr::null_mut;

use super::super::embedded::abi;
use super::Spec;
use super::workload::Contents::{self, Bf16, Bytes, Codes, F32, Room, Words, Zeros};
use super::workload::{Set, Workload};
use crate::ops::causal_conv1d;

pub const SPECS: &[Spec] = &[
    Spec { op: "adamw", letters: &["elements"], paper: &[100_000_000], small: &[65_536], make: adamw },
    Spec {
        op: "attention",
        letters: &["T", "Hq", "Hkv", "D"],
        paper: &[8192, 32, 2, 128],
        small: &[128, 4, 2, 64],
        make: attention::attention,
    },
    Spec { op: "causal_conv1d", letters: &["R", "C"], paper: &[8192, 6144], small: &[256, 256], make: causal_conv1d },
    Spec {
        op: "cross_entropy",
        letters: &["R", "V"],
        paper: &[8192, 131_072],
        small: &[64, 512],
        make: losses::cross_entropy,
    },
    Spec {
        op: "distill_loss",
        letters: &["R", "V"],
        paper: &[8192, 131_072],
        small: &[64, 512],
        make: losses::distill_loss,
    },
    Spec {
        op: "embedding",
        letters: &["R", "V", "d"],
        paper: &[8192, 131_072, 2688],
        small: &[64, 512, 256],
        make: embedding,
    },
    Spec {
        op: "gated_group_norm",
        letters: &["R", "G", "columns"],
        paper: &[8192, 8, 512],
        small: &[64, 4, 128],
        make: gated_group_norm,
    },
    Spec {
        op: "grouped_gemm",
        letters: &["R", "E", "out", "in"],
        paper: &[49_152, 128, 1856, 2688],
        small: &[512, 4, 128, 256],
        make: grouped_gemm::grouped_gemm,
    },
    Spec {
        op: "linear",
        letters: &["M", "N", "K"],
        paper: &[8192, 10_304, 2688],
        small: &[256, 256, 256],
        make: linear,
    },
    Spec {
        op: "moe_combine",
        letters: &["R", "E", "K", "L"],
        paper: &[8192, 128, 6, 2688],
        small: &[64, 16, 6, 256],
        make: moe_combine,
    },
    Spec {
        op: "moe_permute",
        letters: &["R", "E", "K", "L"],
        paper: &[8192, 128, 6, 2688],
        small: &[64, 16, 6, 256],
        make: moe_permute,
    },
    Spec {
        op: "moe_route",
        letters: &["R", "E", "K"],
        paper: &[8192, 128, 6],
        small: &[64, 32, 6],
        make: moe_route::moe_route,
    },
    Spec { op: "quantize", letters: &["R", "W"], paper: &[8192, 2688], small: &[256, 512], make: quantize },
    Spec {
        op: "quantized_linear",
        letters: &["M", "N", "K"],
        paper: &[8192, 10_240, 2688],
        small: &[256, 256, 256],
        make: quantized_linear,
    },
    Spec { op: "relu2", letters: &["R", "F"], paper: &[8192, 3712], small: &[64, 512], make: relu2 },
    Spec { op: "residual_add", letters: &["R", "d"], paper: &[8192, 2688], small: &[64, 512], make: residual_add },
    Spec { op: "rms_norm", letters: &["R", "d"], paper: &[8192, 2688], small: &[256, 512], make: rms_norm },
    Spec {
        op: "ssd_scan",
        letters: &["T", "H", "P", "G", "N"],
        paper: &[8192, 64, 64, 8, 128],
        small: &[128, 4, 64, 2, 64],
        make: ssd_scan::ssd_scan,
    },
];

fn joined(mut shared: Vec<Contents>, own: Vec<Contents>) -> Vec<Contents> {
    shared.extend(own);
    shared
}

/// No mask.
fn bare() -> abi::Mask {
    abi::Mask { ends: null_mut(), keep: null_mut(), draw: null_mut(), length: 1, candidates: 0 }
}

fn step_state() -> Vec<u8> {
    let state = abi::StepState { update: 5, learning_rate: 1e-3, max_norm: 1.0, ..Default::default() };
    // SAFETY: plain data without padding (cuda/abi.h).
    unsafe { std::slice::from_raw_parts((&raw const state).cast::<u8>(), size_of::<abi::StepState>()) }.to_vec()
}

fn adamw(shape: &[usize]) -> Vec<Workload> {
    let n = shape[0];
    let squares = Workload::new("adamw_squares_bf16", [2 * n, 2 * n], vec![Bf16(n), Room(n.div_ceil(16384) * 8)], {
        move |set: &Set| abi::AdamWSquares { grad: set.at(0), partials: set.at(1), elements: n as u64 }
    });
    let buffers = vec![Bytes(step_state()), F32(1), F32(n), F32(n), F32(n), Zeros(4 * n), Room(2 * n)];
    // The master and both moments are read and written, the gradient is read, the bf16 copy written.
    let update = Workload::new("adamw_update_f32", [30 * n, 15 * n], buffers, move |set| abi::AdamWUpdate {
        state: set.at(0),
        norm: set.at(1),
        grad: set.at(2),
        value: set.at(3),
        first: set.at(4),
        second: set.at(5),
        weight: set.at(6),
        elements: n as u64,
        rate: 1.0,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        unused: 0,
    });
    vec![squares, update]
}

fn causal_conv1d(shape: &[usize]) -> Vec<Workload> {
    let (rows, channels, kernel) = (shape[0], shape[1], 4);
    let n = rows * channels;
    let stretch = causal_conv1d::cuda::STRETCH;
    let conv = move |set: &Set| abi::Conv {
        x: set.at(0),
        weight: set.at(1),
        bias: set.at(2),
        initial: null_mut(),
        offsets: set.at(3),
        rows: rows as u32,
        channels: channels as u32,
        kernel: kernel as u32,
        segments: 1,
        stretch: stretch as u32,
        unused: 0,
    };
    let shared = move || vec![Bf16(n), Bf16(channels * kernel), Bf16(channels), Words(vec![0, rows as u32])];
    let forward = joined(shared(), vec![Room(2 * n)]);
    let partials = rows.div_ceil(stretch) * channels * (kernel + 1) * 4;
    let backward = joined(shared(), vec![Bf16(n), Room(2 * n), Room(partials)]);
    vec![
        Workload::new("causal_conv1d_forward_bf16", [4 * n, 2 * kernel * n], forward, move |set| abi::ConvForward {
            conv: conv(set),
            y: set.at(4),
        }),
        Workload::new("causal_conv1d_backward_bf16", [6 * n + partials, 6 * kernel * n], backward, move |set| {
            abi::ConvBackward { conv: conv(set), dy: set.at(4), dx: set.at(5), partials: set.at(6) }
        }),
    ]
}

fn embedding(shape: &[usize]) -> Vec<Workload> {
    let (rows, vocab, width) = (shape[0], shape[1], shape[2]);
    let ids: Vec<u32> = (0..rows).map(|row| (row * 7919 % vocab) as u32).collect();
    let buffers = vec![Words(ids), Bf16(vocab * width), Room(2 * rows * width)];
    vec![Workload::new("embedding_forward_bf16", [4 * rows * width, 0], buffers, move |set| abi::EmbeddingForward {
        ids: set.at(0),
        table: set.at(1),
        y: set.at(2),
        mask: bare(),
        rows: rows as u32,
        width: width as u32,
    })]
}

fn gated_group_norm(shape: &[usize]) -> Vec<Workload> {
    let (rows, groups, columns) = (shape[0], shape[1], shape[2]);
    let (width, rows_per_block) = (groups * columns, 16);
    let n = rows * width;
    let forward = vec![Bf16(n), Bf16(n), Bf16(width), Room(2 * n)];
    let partials = rows.div_ceil(rows_per_block) * width * 4;
    let backward = vec![Bf16(n), Bf16(n), Bf16(width), Bf16(n), Room(2 * n), Room(2 * n), Room(partials)];
    vec![
        Workload::new("gated_group_norm_forward_bf16", [6 * n, 10 * n], forward, move |set| {
            abi::GatedGroupNormForward {
                y: set.at(0),
                z: set.at(1),
                weight: set.at(2),
                out: set.at(3),
                mask: bare(),
                rows: rows as u32,
                groups: groups as u32,
                columns: columns as u32,
                head_dim: 64,
                rows_per_block: rows_per_block as u32,
                eps: 1e-5,
            }
        }),
        Workload::new("gated_group_norm_backward_bf16", [10 * n + partials, 25 * n], backward, move |set| {
            abi::GatedGroupNormBackward {
                y: set.at(0),
                z: set.at(1),
                weight: set.at(2),
                dout: set.at(3),
                dy: set.at(4),
                dz: set.at(5),
                weight_partials: set.at(6),
                row_sums: null_mut(),
                mask: bare(),
                rows: rows as u32,
                groups: groups as u32,
                columns: columns as u32,
                head_dim: 64,
                rows_per_block: rows_per_block as u32,
                eps: 1e-5,
            }
        }),
    ]
}

/// Leading dimensions of a product's dense operands.
fn strides(layout: &str, [m, n, k]: [usize; 3]) -> (usize, usize) {
    (if layout == "tn" { m } else { k }, if layout == "nt" { k } else { n })
}

fn linear(shape: &[usize]) -> Vec<Workload> {
    let [m, n, k] = [shape[0], shape[1], shape[2]];
    let mut all = Vec::new();
    for rung in ["naive", "tiled", "tensor_core", "pipelined", "skinny"] {
        for layout in ["nt", "nn", "tn"] {
            if rung == "skinny" && (layout != "nt" || m > 8) {
                continue;
            }
            let (lda, ldb) = strides(layout, [m, n, k]);
            let out = if layout == "tn" { 4 } else { 2 };
            let bytes = 2 * (m * k + n * k) + out * m * n;
            let buffers = vec![Bf16(m * k), Bf16(n * k), Room(out * m * n)];
            let symbol = format!("linear_{rung}_{layout}_bf16");
            let workload = Workload::new(symbol, [bytes, 2 * m * n * k], buffers, move |set| abi::Linear {
                a: set.at(0),
                b: set.at(1),
                c: set.at(2),
                m: m as u32,
                n: n as u32,
                k: k as u32,
                lda: lda as u32,
                ldb: ldb as u32,
                ldc: n as u32,
                accumulate: 0,
                unused: 0,
            });
            let on_tensor_cores = matches!(rung, "tensor_core" | "pipelined");
            all.push(if on_tensor_cores { workload.on_tensor_cores() } else { workload });
        }
    }
    all
}

/// A dispatch of R tokens to K of E experts each, spread evenly: chosen [R, K], pair_of [R·K], row_of [R·K] and the rows
/// that are filled.
fn dispatch(rows: usize, experts: usize, top_k: usize) -> [Vec<u32>; 4] {
    let chosen: Vec<u32> = (0..rows * top_k).map(|pair| ((pair / top_k * 5 + pair % top_k) % experts) as u32).collect();
    let mut pair_of: Vec<u32> = (0..chosen.len() as u32).collect();
    pair_of.sort_by_key(|pair| chosen[*pair as usize]);
    let mut row_of = vec![0; pair_of.len()];
    pair_of.iter().enumerate().for_each(|(row, pair)| row_of[*pair as usize] = row as u32);
    let filled = vec![pair_of.len() as u32];
    [chosen, pair_of, row_of, filled]
}

fn moe_combine(shape: &[usize]) -> Vec<Workload> {
    let (rows, experts, top_k, width) = (shape[0], shape[1], shape[2], shape[3]);
    let [chosen, _, row_of, filled] = dispatch(rows, experts, top_k);
    let pairs = rows * top_k;
    let combine = move |set: &Set| abi::MoeCombine {
        y: set.at(0),
        weights: set.at(1),
        chosen: set.at(2),
        row_of: set.at(3),
        filled: set.at(4),
        mask: bare(),
        tokens: rows as u32,
        top_k: top_k as u32,
        width: width as u32,
        unused: 0,
    };
    let shared =
        || vec![Bf16(pairs * width), F32(pairs), Words(chosen.clone()), Words(row_of.clone()), Words(filled.clone())];
    let forward = joined(shared(), vec![Room(2 * rows * width)]);
    let backward = joined(shared(), vec![Bf16(rows * width), Room(2 * pairs * width), Room(4 * pairs)]);
    let flops = 2 * pairs * width;
    vec![
        Workload::new(
            "moe_combine_forward_bf16",
            [2 * (pairs + rows) * width + 8 * pairs, flops],
            forward,
            move |set| abi::MoeCombineForward { combine: combine(set), out: set.at(5) },
        ),
        Workload::new(
            "moe_combine_backward_bf16",
            [2 * (2 * pairs + rows) * width + 12 * pairs, 2 * flops],
            backward,
            move |set| abi::MoeCombineBackward {
                combine: combine(set),
                dout: set.at(5),
                dy: set.at(6),
                dweights: set.at(7),
                row_sums: null_mut(),
            },
        ),
    ]
}

fn moe_permute(shape: &[usize]) -> Vec<Workload> {
    let (rows, experts, top_k, width) = (shape[0], shape[1], shape[2], shape[3]);
    let [_, pair_of, row_of, filled] = dispatch(rows, experts, top_k);
    let pairs = rows * top_k;
    let forward = vec![Bf16(rows * width), Words(pair_of), Words(filled.clone()), Room(2 * pairs * width)];
    let backward = vec![Bf16(pairs * width), Words(row_of), Words(filled), Room(2 * rows * width)];
    let bytes = 2 * (pairs + rows) * width + 4 * pairs;
    vec![
        Workload::new("moe_permute_forward_bf16", [bytes, 0], forward, move |set| abi::MoePermuteForward {
            x: set.at(0),
            pair_of: set.at(1),
            filled: set.at(2),
            y: set.at(3),
            pairs: pairs as u32,
            top_k: top_k as u32,
            width: width as u32,
            unused: 0,
        }),
        Workload::new("moe_permute_backward_bf16", [bytes, pairs * width], backward, move |set| {
            abi::MoePermuteBackward {
                dy: set.at(0),
                row_of: set.at(1),
                filled: set.at(2),
                dx: set.at(3),
                tokens: rows as u32,
                top_k: top_k as u32,
                width: width as u32,
                unused: 0,
            }
        }),
    ]
}

/// Bytes of an [rows, width] matrix's codes and scales. `blocks` are as in the kernels' names.
fn quantized_bytes(values: &str, blocks: &str, rows: usize, width: usize) -> (usize, usize) {
    let block = if values == "fp8" { 128 } else { 16 };
    let (down, across) = match blocks {
        "rows" => (rows, width.div_ceil(block)),
        "columns" => (rows.div_ceil(block), width),
        _ => (rows.div_ceil(block), width.div_ceil(block)),
    };
    if values == "fp8" { (rows * width, 4 * down * across) } else { (rows * width.div_ceil(2), down * across) }
}

fn quantize(shape: &[usize]) -> Vec<Workload> {
    let (rows, width) = (shape[0], shape[1]);
    let n = rows * width;
    let partials = n.div_ceil(16384);
    let mut all = vec![
        Workload::new("quantize_amax_bf16", [2 * n + 4 * partials, n], vec![Bf16(n), Room(4 * partials)], move |set| {
            abi::QuantizeAmax { x: set.at(0), partials: set.at(1), elements: n as u64 }
        }),
        Workload::new(
            "quantize_hadamard_bf16",
            [2 * (n + rows.next_multiple_of(16) * width), 4 * n],
            vec![Bf16(n), Room(2 * rows.next_multiple_of(16) * width)],
            move |set| abi::QuantizeHadamard { x: set.at(0), y: set.at(1), rows: rows as u32, width: width as u32 },
        ),
    ];
    for values in ["fp8", "nvfp4"] {
        for blocks in ["rows", "columns", "squares"] {
            let (codes, scales) = quantized_bytes(values, blocks, rows, width);
            let buffers = vec![Bf16(n), Room(codes), Room(scales), Words(vec![1f32.to_bits()])];
            let symbol = format!("quantize_{values}_{blocks}_bf16");
            all.push(Workload::new(symbol, [2 * n + codes + scales, n], buffers, move |set| abi::Quantize {
                x: set.at(0),
                codes: set.at(1),
                scales: set.at(2),
                tensor_scale: set.at(3),
                state: null_mut(),
                first_draw: 0,
                rows: rows as u32,
                width: width as u32,
                format: 0,
                stochastic: 0,
            }));
        }
    }
    all
}

fn quantized_linear(shape: &[usize]) -> Vec<Workload> {
    let [m, n, k] = [shape[0], shape[1], shape[2]];
    let mut all = Vec::new();
    for (values, block) in [("fp8", 128), ("nvfp4", 16)] {
        for (layout, dtype, a_blocks, b_blocks) in
            [("nt", "bf16", "rows", "squares"), ("nn", "bf16", "rows", "squares"), ("tn", "f32", "columns", "columns")]
        {
            let (a_size, b_size) =
                (if layout == "tn" { (k, m) } else { (m, k) }, if layout == "nt" { (n, k) } else { (k, n) });
            let (a_codes, a_scales) = quantized_bytes(values, a_blocks, a_size.0, a_size.1);
            let (b_codes, b_scales) = quantized_bytes(values, b_blocks, b_size.0, b_size.1);
            let out = if dtype == "f32" { 4 } else { 2 };
            let scales = |bytes: usize| if values == "fp8" { F32(bytes / 4) } else { Codes(bytes) };
            let one = || Words(vec![1f32.to_bits()]);
            let buffers = vec![
                Codes(a_codes),
                scales(a_scales),
                one(),
                Codes(b_codes),
                scales(b_scales),
                one(),
                Room(out * m * n),
            ];
            let extent = move |blocks: &str| match blocks {
                "rows" => [1, block],
                "columns" => [block, 1],
                _ => [block, block],
            };
            let operand = move |set: &Set, first: usize, blocks: &str| abi::QuantizedOperand {
                codes: set.at(first),
                scales: set.at(first + 1),
                tensor_scale: set.at(first + 2),
                format: 0,
                block_rows: extent(blocks)[0],
                block_columns: extent(blocks)[1],
                unused: 0,
            };
            let bytes = a_codes + a_scales + b_codes + b_scales + out * m * n;
            let symbol = format!("quantized_linear_{values}_{layout}_{dtype}");
            let workload = Workload::new(symbol, [bytes, 2 * m * n * k], buffers, move |set| abi::QuantizedLinear {
                a: operand(set, 0, a_blocks),
                b: operand(set, 3, b_blocks),
                c: set.at(6),
                m: m as u32,
                n: n as u32,
                k: k as u32,
                ldc: n as u32,
                accumulate: 0,
                unused: 0,
            });
            all.push(workload.on_tensor_cores());
        }
    }
    all
}

fn relu2(shape: &[usize]) -> Vec<Workload> {
    let (rows, width) = (shape[0], shape[1]);
    let n = rows * width;
    vec![
        Workload::new("relu2_forward_bf16", [4 * n, 2 * n], vec![Bf16(n), Room(2 * n)], move |set| abi::Relu2Forward {
            x: set.at(0),
            y: set.at(1),
            mask: bare(),
            rows: rows as u32,
            width: width as u32,
        }),
        Workload::new("relu2_backward_bf16", [6 * n, 3 * n], vec![Bf16(n), Bf16(n), Room(2 * n)], move |set| {
            abi::Relu2Backward {
                x: set.at(0),
                dy: set.at(1),
                dx: set.at(2),
                row_sums: null_mut(),
                mask: bare(),
                rows: rows as u32,
                width: width as u32,
            }
        }),
    ]
}

fn residual_add(shape: &[usize]) -> Vec<Workload> {
    let (rows, width) = (shape[0], shape[1]);
    let n = rows * width;
    let buffers = vec![Bf16(n), Bf16(n), Room(2 * n)];
    vec![Workload::new("residual_add_forward_bf16", [6 * n, n], buffers, move |set| abi::ResidualAddForward {
        h: set.at(0),
        x: set.at(1),
        out: set.at(2),
        hidden: bare(),
        gate: bare(),
        rows: rows as u32,
        width: width as u32,
    })]
}

fn rms_norm(shape: &[usize]) -> Vec<Workload> {
    let (rows, width) = (shape[0], shape[1]);
    let (n, rows_per_block) = (rows * width, 16);
    let partials = 4 * rows.div_ceil(rows_per_block) * width;
    let backward = vec![Bf16(n), Bf16(width), Bf16(n), F32(rows), Room(2 * n), Room(partials)];
    vec![
        Workload::new(
            "rms_norm_forward_bf16",
            [4 * n + 2 * width + 4 * rows, 4 * n],
            vec![Bf16(n), Bf16(width), Room(2 * n), Room(4 * rows)],
            move |set| abi::RmsNormForward {
                x: set.at(0),
                weight: set.at(1),
                y: set.at(2),
                scales: set.at(3),
                mask: bare(),
                rows: rows as u32,
                width: width as u32,
                rows_per_block: rows_per_block as u32,
                eps: 1e-5,
            },
        ),
        Workload::new(
            "rms_norm_backward_bf16",
            [6 * n + 2 * width + 4 * rows + partials, 10 * n],
            backward,
            move |set| abi::RmsNormBackward {
                x: set.at(0),
                weight: set.at(1),
                dy: set.at(2),
                scales: set.at(3),
                dx: set.at(4),
                weight_partials: set.at(5),
                row_sums: null_mut(),
                mask: bare(),
                rows: rows as u32,
                width: width as u32,
                rows_per_block: rows_per_block as u32,
                unused: 0,
            },
        ),
    ]
}
