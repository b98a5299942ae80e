//! Experts: tokens that are gathered, weights of many experts, and what is added up of them.

use std::ptr::null_mut;

use autocompress::autograd::{Tape, Var};
use autocompress::device::cuda::DeviceBuffer;
use autocompress::device::cuda::embedded::abi;
use autocompress::ops::linear::linear;
use autocompress::tensor::Tensor;

use super::lab::{DTYPES, Data, FAR, Lab, bare, bits};
use super::products::Quantized;

/// Experts per token, and the width of a row.
const TOP: usize = 8;
const WIDTH: usize = 7168;
/// Tokens in front of the eight that count: 37,400 and 75,000 in all, whose rows have 2.14e9 and 4.30e9 elements.
const TOKENS: [usize; 2] = [37_392, 74_992];
const COUNT: usize = 8;
/// Pairs that are dropped, the last ones.
const DROPPED: usize = 3;

pub fn all(lab: &Lab) {
    for dtype in DTYPES {
        for tokens in TOKENS {
            lab.same(&format!("moe_permute_{dtype}"), tokens, |before| permute(lab, dtype, before));
            lab.same(&format!("moe_combine_{dtype}"), tokens, |before| combine(lab, dtype, before));
        }
    }
    for (rung, dtype, edge) in [("tiled", "f32", 64), ("pipelined", "bf16", 128)] {
        lab.same(&format!("grouped_gemm_{rung}"), EXPERTS, |before| grouped(lab, rung, dtype, edge, before));
    }
    for [rows, out] in [[2048, 768], [512, 1024]] {
        wide(lab, rows, out);
    }
    for values in ["fp8", "nvfp4"] {
        for dtype in DTYPES {
            lab.same(&format!("quantized_grouped_gemm_{values}_{dtype}"), EXPERTS, |before| {
                quantized(lab, values, dtype, before)
            });
        }
    }
}

fn permute(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (tokens, pairs) = (before + COUNT, (before + COUNT) * TOP);
    let (skip, of_pairs) = (before * TOP * WIDTH, COUNT * TOP * WIDTH);
    let filled = lab.cuda.upload(&[(pairs - DROPPED) as u32]).unwrap();
    // The pairs that count, in another order.
    let order: Vec<u32> = (0..COUNT * TOP).map(|i| (before * TOP + i * 5 % (COUNT * TOP)) as u32).collect();
    let order = lab.end(before * TOP, &order);
    let x = lab.data(dtype, before * WIDTH, COUNT * WIDTH);
    let y = lab.data_room(dtype, skip + of_pairs);
    let args = abi::MoePermuteForward {
        x: x.ptr(),
        pair_of: order.ptr(),
        filled: filled.ptr(),
        y: y.ptr(),
        pairs: pairs as u32,
        top_k: TOP as u32,
        width: WIDTH as u32,
        unused: 0,
    };
    lab.launch(&format!("moe_permute_forward_{dtype}"), &args, TOP as u64);
    let dy = lab.data(dtype, skip, of_pairs);
    let dx = lab.data_room(dtype, tokens * WIDTH);
    let args = abi::MoePermuteBackward {
        dy: dy.ptr(),
        row_of: order.ptr(),
        filled: filled.ptr(),
        dx: dx.ptr(),
        tokens: tokens as u32,
        top_k: TOP as u32,
        width: WIDTH as u32,
        unused: 0,
    };
    lab.launch(&format!("moe_permute_backward_{dtype}"), &args, 1);
    vec![y.bits(skip, of_pairs), dx.bits(before * WIDTH, COUNT * WIDTH)]
}

fn combine(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (tokens, pairs) = (before + COUNT, (before + COUNT) * TOP);
    let (skip, of_pairs) = (before * TOP, COUNT * TOP);
    let filled = lab.cuda.upload(&[(pairs - DROPPED) as u32]).unwrap();
    let row_of: Vec<u32> = (0..of_pairs).map(|i| (skip + i * 5 % of_pairs) as u32).collect();
    let row_of = lab.end(skip, &row_of);
    let chosen = lab.end(skip, &(0..of_pairs as u32).map(|i| i % 13).collect::<Vec<_>>());
    let weights = lab.data("f32", skip, of_pairs);
    let y = lab.data(dtype, skip * WIDTH, of_pairs * WIDTH);
    let combine = abi::MoeCombine {
        y: y.ptr(),
        weights: weights.ptr(),
        chosen: chosen.ptr(),
        row_of: row_of.ptr(),
        filled: filled.ptr(),
        mask: bare(),
        tokens: tokens as u32,
        top_k: TOP as u32,
        width: WIDTH as u32,
        unused: 0,
    };
    let out = lab.data_room(dtype, tokens * WIDTH);
    lab.launch(&format!("moe_combine_forward_{dtype}"), &abi::MoeCombineForward { combine, out: out.ptr() }, 1);
    let dout = lab.data(dtype, before * WIDTH, COUNT * WIDTH);
    let dy = lab.data_room(dtype, pairs * WIDTH);
    let dweights = lab.room::<f32>(pairs);
    let args = abi::MoeCombineBackward {
        combine,
        dout: dout.ptr(),
        dy: dy.ptr(),
        dweights: dweights.ptr(),
        row_sums: null_mut(),
    };
    lab.launch(&format!("moe_combine_backward_{dtype}"), &args, 1);
    vec![
        out.bits(before * WIDTH, COUNT * WIDTH),
        // Rows of dropped pairs are zeroed by whoever has them.
        dy.bits(skip * WIDTH, (of_pairs - DROPPED) * WIDTH),
        bits(&dweights, skip, of_pairs),
    ]
}

/// Experts in front of the one that has tokens; the weights of all have more than 2³² elements.
const EXPERTS: usize = 1000;
const OUT: usize = 128;
const INNER: usize = 33_792;
const ROWS: usize = 6;
const _: () = assert!(EXPERTS * OUT * INNER > FAR);

/// Where experts' rows begin, and their tiles.
fn bounds(lab: &Lab, before: usize) -> [DeviceBuffer<u32>; 2] {
    let mut offsets = vec![0; before + 1];
    offsets.push(ROWS as u32);
    let mut tiles = vec![0; before + 1];
    tiles.extend([1, 1]);
    [offsets, tiles].map(|values| lab.cuda.upload(&values).unwrap())
}

fn grouped(lab: &Lab, rung: &str, dtype: &str, edge: usize, before: usize) -> Vec<Vec<u8>> {
    let [offsets, tiles] = bounds(lab, before);
    let (skip, of_expert) = (before * OUT * INNER, OUT * INNER);
    let w = lab.data(dtype, skip, of_expert);
    let (x, dy) = (lab.data(dtype, 0, ROWS * INNER), lab.data(dtype, 0, ROWS * OUT));
    let (y, dx) = (lab.data_room(dtype, ROWS * OUT), lab.data_room(dtype, ROWS * INNER));
    let product = abi::GroupedGemm {
        a: x.ptr(),
        b: w.ptr(),
        c: y.ptr(),
        offsets: offsets.ptr(),
        tiles: tiles.ptr(),
        rows: ROWS as u32,
        n: OUT as u32,
        k: INNER as u32,
        experts: before as u32 + 1,
    };
    lab.launch(&format!("grouped_gemm_{rung}_nt_{dtype}"), &product, 0);
    let mut outputs = vec![y.bits(0, ROWS * OUT)];
    if rung == "pipelined" {
        let raw = lab.data_room(dtype, ROWS * OUT);
        lab.launch(
            "grouped_gemm_pipelined_nt_relu2_bf16",
            &abi::GroupedRelu2 { product, raw: raw.ptr(), mask: bare() },
            0,
        );
        outputs.extend([y.bits(0, ROWS * OUT), raw.bits(0, ROWS * OUT)]);
    }
    let args = abi::GroupedGemm { a: dy.ptr(), c: dx.ptr(), n: INNER as u32, k: OUT as u32, ..product };
    lab.launch(&format!("grouped_gemm_{rung}_nn_{dtype}"), &args, 0);
    outputs.push(dx.bits(0, ROWS * INNER));
    let dw = lab.room::<f32>(skip + of_expert);
    let args = abi::GroupedWeights {
        dy: dy.ptr(),
        x: x.ptr(),
        dw: dw.ptr(),
        offsets: offsets.ptr(),
        m: OUT as u32,
        n: INNER as u32,
        experts: before as u32 + 1,
        accumulate: 0,
    };
    lab.launch(&format!("grouped_gemm_{rung}_tn_{dtype}"), &args, (OUT / edge * INNER / edge) as u64);
    outputs.push(bits(&dw, skip, of_expert));
    outputs
}

/// 128 experts of 4096 columns, whose products broke other kernels, against the op on the host. Every sixteenth has rows.
fn wide(lab: &Lab, rows: usize, out: usize) {
    const ALL: usize = 128;
    const EVERY: usize = 16;
    const K: usize = 4096;
    let of_expert = rows / (ALL / EVERY);
    let offsets: Vec<u32> = (0..=ALL).map(|e| (e / EVERY * of_expert) as u32).collect();
    let mut tiles = vec![0];
    tiles.extend(offsets.windows(2).scan(0, |sum, w| {
        *sum += (w[1] - w[0]).div_ceil(128);
        Some(*sum)
    }));
    tiles.push(tiles[ALL]);
    let [offsets, tiles] = [offsets, tiles].map(|values| lab.cuda.upload(&values).unwrap());
    let (x, mut w) = (lab.data("bf16", 0, rows * K), lab.data_room("bf16", ALL * out * K));
    let y = lab.data_room("bf16", rows * out);
    let with_rows: Vec<usize> = (EVERY - 1..ALL).step_by(EVERY).collect();
    with_rows.iter().for_each(|e| w.put(e * out * K, &lab.normal(out * K)));
    let product = abi::GroupedGemm {
        a: x.ptr(),
        b: w.ptr(),
        c: y.ptr(),
        offsets: offsets.ptr(),
        tiles: tiles.ptr(),
        rows: rows as u32,
        n: out as u32,
        k: K as u32,
        experts: ALL as u32,
    };
    lab.launch("grouped_gemm_pipelined_nt_bf16", &product, 0);
    for (at, e) in with_rows.into_iter().enumerate() {
        let there = |first, dims: [usize; 2], data: &Data| {
            Var::constant(Tensor::from_slice(dims, &data.values(first, dims[0] * dims[1])))
        };
        let rows = there(at * of_expert * K, [of_expert, K], &x);
        let want = linear(&Tape::inference(), &rows, &there(e * out * K, [out, K], &w)).unwrap();
        let got = y.values(at * of_expert * out, of_expert * out);
        let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v * v)).sum::<f64>().sqrt();
        let off = norm(&mut got.iter().zip(want.f32()).map(|(a, b)| a - b)) / norm(&mut want.f32().iter().copied());
        // Each number is rounded to 8 bits once.
        assert!(off < 1.0 / 256.0, "{out} columns: expert {e} off by {off:e}");
    }
}

fn quantized(lab: &Lab, values: &str, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let is_fp8 = values == "fp8";
    let block = if is_fp8 { 128 } else { 16 };
    let [offsets, tiles] = bounds(lab, before);
    let w = Quantized::new(lab, is_fp8, before * OUT, [OUT, INNER], [block, block]);
    let mut outputs = Vec::new();
    for (layout, [n, k]) in [("nt", [OUT, INNER]), ("nn", [INNER, OUT])] {
        let a = Quantized::new(lab, is_fp8, 0, [ROWS, k], [1, block]);
        let c = lab.data_room(dtype, ROWS * n);
        let args = abi::QuantizedGroupedGemm {
            a: a.operand(),
            b: w.operand(),
            c: c.ptr(),
            offsets: offsets.ptr(),
            tiles: tiles.ptr(),
            rows: ROWS as u32,
            n: n as u32,
            k: k as u32,
            experts: before as u32 + 1,
            stride: OUT as u32,
            unused: 0,
        };
        lab.launch(&format!("quantized_grouped_gemm_{values}_{layout}_{dtype}"), &args, 0);
        outputs.push(c.bits(0, ROWS * n));
    }
    if dtype == "f32" {
        let [dy, x] = [OUT, INNER].map(|width| Quantized::new(lab, is_fp8, 0, [block, width], [block, 1]));
        let (skip, of_expert) = (before * OUT * INNER, OUT * INNER);
        let dw = lab.room::<f32>(skip + of_expert);
        let args = abi::QuantizedGroupedWeights {
            dy: dy.operand(),
            x: x.operand(),
            dw: dw.ptr(),
            tiles: tiles.ptr(),
            m: OUT as u32,
            n: INNER as u32,
            experts: before as u32 + 1,
            accumulate: 0,
        };
        lab.launch(&format!("quantized_grouped_gemm_{values}_tn_f32"), &args, (INNER / 128) as u64);
        outputs.push(bits(&dw, skip, of_expert));
    }
    outputs
}
