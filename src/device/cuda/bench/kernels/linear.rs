//! The matrix product's ladder, and what is fused behind its last rung.

use super::super::super::embedded::abi;
use super::super::workload::Contents::{self, Room};
use super::super::workload::{Float, Set, Workload, floats, room};
use super::Masked;

/// The rungs with their dtypes and layouts.
const RUNGS: [(&str, &[Float], &[&str]); 5] = [
    ("naive", &Float::BOTH, &["nt", "nn", "tn"]),
    ("tiled", &Float::BOTH, &["nt", "nn", "tn"]),
    ("tensor_core", &[Float::Bf16], &["nt", "nn", "tn"]),
    ("pipelined", &[Float::Bf16], &["nt", "nn", "tn"]),
    ("skinny", &Float::BOTH, &["nt"]),
];
/// The rows that `skinny` takes at the most.
const SKINNY: usize = 8;

/// M, N, K.
pub fn linear(shape: &[usize]) -> Vec<Workload> {
    let &[m, n, k] = shape else { unreachable!("three letters") };
    let sizes = [m, n, k];
    let mut all = Vec::new();
    for (rung, dtypes, layouts) in RUNGS.into_iter().filter(|(rung, ..)| *rung != "skinny" || m <= SKINNY) {
        for dtype in dtypes {
            all.extend(layouts.iter().map(|layout| product(rung, *dtype, layout, sizes)));
        }
    }
    all.extend([wide(sizes), relu2(sizes), residual(sizes)].map(Workload::on_tensor_cores));
    all
}

fn args(set: &Set, layout: &str, [m, n, k]: [usize; 3]) -> abi::Linear {
    abi::Linear {
        a: set.at(0),
        b: set.at(1),
        c: set.at(2),
        m: m as u32,
        n: n as u32,
        k: k as u32,
        lda: if layout == "tn" { m } else { k } as u32,
        ldb: if layout == "nt" { k } else { n } as u32,
        ldc: n as u32,
        accumulate: 0,
        unused: 0,
    }
}

fn product(rung: &str, dtype: Float, layout: &'static str, sizes: [usize; 3]) -> Workload {
    let [m, n, k] = sizes;
    // Gradients of weights are f32.
    let c = m * n * if layout == "tn" { 4 } else { dtype.bytes() };
    let buffers = vec![floats(dtype, m * k), floats(dtype, n * k), Room(c)];
    let least = [dtype.bytes() * (m * k + n * k) + c, 2 * m * n * k];
    let workload =
        Workload::of(&format!("linear_{rung}_{layout}"), dtype, least, buffers, move |set| args(set, layout, sizes));
    if matches!(rung, "tensor_core" | "pipelined") { workload.on_tensor_cores() } else { workload }
}

/// The operands of C = A·Bᵀ in bf16.
fn operands([m, n, k]: [usize; 3]) -> Vec<Contents> {
    vec![floats(Float::Bf16, m * k), floats(Float::Bf16, n * k)]
}

/// f32 results, as logits are.
fn wide(sizes: [usize; 3]) -> Workload {
    let [m, n, k] = sizes;
    let mut buffers = operands(sizes);
    buffers.push(Room(4 * m * n));
    let least = [2 * (m * k + n * k) + 4 * m * n, 2 * m * n * k];
    Workload::new("linear_pipelined_nt_wide_bf16", least, buffers, move |set| args(set, "nt", sizes))
}

/// relu(A·Bᵀ)²·m, and the product itself beside it.
fn relu2(sizes: [usize; 3]) -> Workload {
    let [m, n, k] = sizes;
    let masked = Masked::new(m, n);
    let mut buffers = operands(sizes);
    buffers.extend([room(Float::Bf16, m * n), room(Float::Bf16, m * n)]);
    buffers.extend(masked.contents());
    let least = [2 * (m * k + n * k + 2 * m * n), 2 * m * n * k];
    Workload::new("linear_pipelined_nt_relu2_bf16", least, buffers, move |set| abi::LinearRelu2 {
        product: args(set, "nt", sizes),
        raw: set.at(3),
        mask: masked.at(set, 4),
    })
}

/// h + m·g·A·Bᵀ, and the product itself beside it.
fn residual(sizes: [usize; 3]) -> Workload {
    let [m, n, k] = sizes;
    let (hidden, gate) = (Masked::new(m, n), Masked::gate(m, n));
    let mut buffers = operands(sizes);
    buffers.extend([room(Float::Bf16, m * n), room(Float::Bf16, m * n), floats(Float::Bf16, m * n)]);
    buffers.extend(hidden.contents());
    buffers.extend(gate.contents());
    let least = [2 * (m * k + n * k + 3 * m * n), 2 * m * n * k];
    Workload::new("linear_pipelined_nt_residual_bf16", least, buffers, move |set| abi::LinearResidual {
        product: args(set, "nt", sizes),
        raw: set.at(3),
        h: set.at(4),
        hidden: hidden.at(set, 5),
        gate: gate.at(set, 8),
    })
}
