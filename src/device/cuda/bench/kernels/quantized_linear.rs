//! Products of quantised operands, and those of experts.

use super::super::super::embedded::abi;
use super::super::workload::{Float, Workload, room};
use super::grouped_gemm::Spread;
use super::quantize::Quantized;

/// Layouts, the dtypes of their results, and the blocks of their operands.
const LAYOUTS: [(&str, &[Float], [&str; 2]); 3] = [
    ("nt", &Float::BOTH, ["rows", "squares"]),
    ("nn", &Float::BOTH, ["rows", "squares"]),
    ("tn", &[Float::F32], ["columns", "columns"]),
];

/// M, N, K.
pub fn quantized_linear(shape: &[usize]) -> Vec<Workload> {
    let &[m, n, k] = shape else { unreachable!("three letters") };
    let mut all = Vec::new();
    for values in ["fp8", "nvfp4"] {
        for (layout, dtypes, [a_blocks, b_blocks]) in LAYOUTS {
            let a = Quantized::new(values, a_blocks, if layout == "tn" { [k, m] } else { [m, k] });
            let b = Quantized::new(values, b_blocks, if layout == "nt" { [n, k] } else { [k, n] });
            all.extend(dtypes.iter().map(|dtype| product(values, layout, *dtype, (a, b), [m, n, k])));
        }
    }
    all
}

fn product(
    values: &str,
    layout: &str,
    dtype: Float,
    (a, b): (Quantized, Quantized),
    [m, n, k]: [usize; 3],
) -> Workload {
    let buffers = a.contents().into_iter().chain(b.contents()).chain([room(dtype, m * n)]).collect();
    let bytes: usize = a.bytes().into_iter().chain(b.bytes()).sum();
    let sizes = [bytes + dtype.bytes() * m * n, 2 * m * n * k];
    let symbol = format!("quantized_linear_{values}_{layout}");
    let workload = Workload::of(&symbol, dtype, sizes, buffers, move |set| abi::QuantizedLinear {
        a: a.operand(set, 0),
        b: b.operand(set, 3),
        c: set.at(6),
        m: m as u32,
        n: n as u32,
        k: k as u32,
        ldc: n as u32,
        accumulate: 0,
        unused: 0,
    });
    workload.on_tensor_cores()
}

/// R, E, out, in: R rows of all experts together, spread evenly.
pub fn quantized_grouped_gemm(shape: &[usize]) -> Vec<Workload> {
    let &[rows, experts, out, inner] = shape else { unreachable!("four letters") };
    let mut all = Vec::new();
    for values in ["fp8", "nvfp4"] {
        for dtype in Float::BOTH {
            all.extend(["nt", "nn"].map(|layout| of_experts(values, layout, dtype, [rows, experts, out, inner])));
        }
        all.push(weights_of_experts(values, [rows, experts, out, inner]));
    }
    all
}

/// nt: y = x·Wᵀ; nn: dx = dy·W. Experts' weights begin at whole squares.
fn of_experts(values: &'static str, layout: &str, dtype: Float, size: [usize; 4]) -> Workload {
    let [rows, experts, out, inner] = size;
    let stride = out.next_multiple_of(if values == "fp8" { 128 } else { 16 });
    let [n, k] = if layout == "nt" { [out, inner] } else { [inner, out] };
    let a = Quantized::new(values, "rows", [rows, k]);
    let b = Quantized::new(values, "squares", [experts * stride, inner]);
    let (c, spread) = (rows * n, Spread::new(rows, experts, 128));
    let buffers = a.contents().into_iter().chain(b.contents()).chain([room(dtype, c)]).chain(spread.contents());
    let bytes: usize = a.bytes().into_iter().chain(b.bytes()).sum();
    let sizes = [bytes + dtype.bytes() * c, 2 * rows * out * inner];
    let symbol = format!("quantized_grouped_gemm_{values}_{layout}");
    let workload = Workload::of(&symbol, dtype, sizes, buffers.collect(), move |set| abi::QuantizedGroupedGemm {
        a: a.operand(set, 0),
        b: b.operand(set, 3),
        c: set.at(6),
        offsets: set.at(7),
        tiles: set.at(8),
        rows: rows as u32,
        n: n as u32,
        k: k as u32,
        experts: experts as u32,
        stride: stride as u32,
        unused: 0,
    });
    workload.on_tensor_cores()
}

/// dW = dyᵀ·x over rows that lie apart, as `stretches` lays them.
fn weights_of_experts(values: &'static str, [rows, experts, out, inner]: [usize; 4]) -> Workload {
    let edge = if values == "fp8" { 128 } else { 16 };
    let spread = Spread::new(rows, experts, edge);
    let apart = spread.tiles[experts] as usize * edge;
    let [dy, x] = [out, inner].map(|width| Quantized::new(values, "columns", [apart, width]));
    let dw = experts * out * inner;
    let buffers = dy.contents().into_iter().chain(x.contents()).chain([room(Float::F32, dw)]).chain(spread.contents());
    let bytes: usize = dy.bytes().into_iter().chain(x.bytes()).sum();
    let (sizes, symbol) = ([bytes + 4 * dw, 2 * rows * out * inner], format!("quantized_grouped_gemm_{values}_tn_f32"));
    let workload = Workload::new(symbol, sizes, buffers.collect(), move |set| abi::QuantizedGroupedWeights {
        dy: dy.operand(set, 0),
        x: x.operand(set, 3),
        dw: set.at(6),
        tiles: set.at(8),
        m: out as u32,
        n: inner as u32,
        experts: experts as u32,
        accumulate: 0,
    });
    workload.on_tensor_cores()
}
