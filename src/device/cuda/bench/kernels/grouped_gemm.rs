//! Products of experts whose rows are spread evenly.

use super::super::super::embedded::abi;
use super::super::workload::Contents::{self, Room, Words};
use super::super::workload::{Float, Set, Workload, floats, room};
use super::Masked;

/// Where experts' rows, and their tiles of `edge` rows, begin.
pub(super) struct Spread {
    pub offsets: Vec<u32>,
    pub tiles: Vec<u32>,
}

impl Spread {
    pub fn new(rows: usize, experts: usize, edge: usize) -> Spread {
        let offsets: Vec<u32> = (0..=experts).map(|e| (rows * e / experts) as u32).collect();
        let mut tiles = vec![0];
        for of_expert in offsets.windows(2) {
            tiles.push(tiles[tiles.len() - 1] + (of_expert[1] - of_expert[0]).div_ceil(edge as u32));
        }
        tiles.push(tiles[experts]); // no rows behind the last expert's
        Spread { offsets, tiles }
    }

    pub fn contents(&self) -> [Contents; 2] {
        [Words(self.offsets.clone()), Words(self.tiles.clone())]
    }
}

/// Sizes: R rows of all experts together, E, out, in.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    experts: usize,
    out: usize,
    inner: usize,
}

/// R, E, out, in.
pub fn grouped_gemm(shape: &[usize]) -> Vec<Workload> {
    let &[rows, experts, out, inner] = shape else { unreachable!("four letters") };
    let sizes = Sizes { rows, experts, out, inner };
    let mut all = vec![tiles(rows, experts)];
    for (rung, dtype, edge) in [("tiled", Float::F32, 64), ("pipelined", Float::Bf16, 128)] {
        let spread = Spread::new(rows, experts, edge);
        let on = |workload: Workload| if rung == "tiled" { workload } else { workload.on_tensor_cores() };
        all.extend([
            on(product(sizes, &spread, rung, dtype, "nt")),
            on(product(sizes, &spread, rung, dtype, "nn")),
            on(weights(sizes, &spread, rung, dtype)),
        ]);
    }
    all.push(relu2(sizes).on_tensor_cores());
    all
}

fn tiles(rows: usize, experts: usize) -> Workload {
    let buffers = vec![Words(Spread::new(rows, experts, 128).offsets), Room(4 * (experts + 2))];
    Workload::new("grouped_gemm_tiles_u32", [4 * (2 * experts + 3), 0], buffers, move |set| abi::GroupedTiles {
        offsets: set.at(0),
        tiles: set.at(1),
        experts: experts as u32,
        rows: rows as u32,
        edge: 128,
        unused: 0,
    })
}

impl Sizes {
    fn elements(self) -> [usize; 3] {
        [self.rows * self.inner, self.experts * self.out * self.inner, self.rows * self.out]
    }

    fn flops(self) -> usize {
        2 * self.rows * self.out * self.inner
    }

    /// The arguments of a product of n columns over k.
    fn args(self, set: &Set, [n, k]: [usize; 2]) -> abi::GroupedGemm {
        abi::GroupedGemm {
            a: set.at(0),
            b: set.at(1),
            c: set.at(2),
            offsets: set.at(3),
            tiles: set.at(4),
            rows: self.rows as u32,
            n: n as u32,
            k: k as u32,
            experts: self.experts as u32,
        }
    }
}

/// nt: y = x·Wᵀ; nn: dx = dy·W.
fn product(sizes: Sizes, spread: &Spread, rung: &str, dtype: Float, layout: &str) -> Workload {
    let [x, w, y] = sizes.elements();
    let (from, to, extent) = match layout {
        "nt" => (x, y, [sizes.out, sizes.inner]),
        _ => (y, x, [sizes.inner, sizes.out]),
    };
    let mut buffers = vec![floats(dtype, from), floats(dtype, w), room(dtype, to)];
    buffers.extend(spread.contents());
    let least = [dtype.bytes() * (x + w + y), sizes.flops()];
    let symbol = format!("grouped_gemm_{rung}_{layout}");
    Workload::of(&symbol, dtype, least, buffers, move |set| sizes.args(set, extent))
}

fn weights(sizes: Sizes, spread: &Spread, rung: &str, dtype: Float) -> Workload {
    let [x, w, y] = sizes.elements();
    let mut buffers = vec![floats(dtype, y), floats(dtype, x), Room(4 * w)];
    buffers.extend(spread.contents());
    let least = [dtype.bytes() * (x + y) + 4 * w, sizes.flops()];
    Workload::of(&format!("grouped_gemm_{rung}_tn"), dtype, least, buffers, move |set| abi::GroupedWeights {
        dy: set.at(0),
        x: set.at(1),
        dw: set.at(2),
        offsets: set.at(3),
        m: sizes.out as u32,
        n: sizes.inner as u32,
        experts: sizes.experts as u32,
        accumulate: 0,
    })
}

/// relu(x·Wᵀ)²·m, and the product itself beside it.
fn relu2(sizes: Sizes) -> Workload {
    let [x, w, y] = sizes.elements();
    let masked = Masked::new(sizes.rows, sizes.out);
    let mut buffers = vec![floats(Float::Bf16, x), floats(Float::Bf16, w), room(Float::Bf16, y)];
    buffers.extend(Spread::new(sizes.rows, sizes.experts, 128).contents());
    buffers.push(room(Float::Bf16, y));
    buffers.extend(masked.contents());
    let least = [2 * (x + w + 2 * y), sizes.flops()];
    Workload::new("grouped_gemm_pipelined_nt_relu2_bf16", least, buffers, move |set| abi::GroupedRelu2 {
        product: sizes.args(set, [sizes.out, sizes.inner]),
        raw: set.at(5),
        mask: masked.at(set, 6),
    })
}
