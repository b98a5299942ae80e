//! The Mamba-2 scan of one sequence, forward and backward.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{self, F32, Room, Words};
use super::super::workload::{Float, Set, Workload, floats, room};
use super::Masked;

/// A rung of the ladder in a dtype: its name, the rows of a chunk, how the states before chunks are stored.
const RUNGS: [(&str, Float, usize, Float); 4] = [
    ("chunked", Float::F32, 32, Float::F32),
    ("chunked", Float::Bf16, 32, Float::F32),
    ("tensor_core", Float::Bf16, 64, Float::Bf16),
    ("pipelined", Float::Bf16, 64, Float::Bf16),
];

/// Sizes: T, H, P, G, N.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    heads: usize,
    p: usize,
    groups: usize,
    n: usize,
}

impl Sizes {
    fn xbc(self) -> usize {
        self.rows * (self.heads * self.p + 2 * self.groups * self.n)
    }

    fn y(self) -> usize {
        self.rows * self.heads * self.p
    }

    /// Elements of the state of all heads.
    fn state(self) -> usize {
        self.heads * self.p * self.n
    }

    /// Bytes of xbc, dt, and the heads' three parameters.
    fn inputs(self, dtype: Float) -> usize {
        dtype.bytes() * (self.xbc() + self.rows * self.heads) + 12 * self.heads
    }

    /// Operations of the forward pass in chunks: within a chunk scores and their sums, half of them behind the
    /// diagonal; then the state's share and its update.
    fn flops(self, chunk: usize) -> usize {
        self.rows * self.heads * (chunk * (self.n + self.p) + 4 * self.p * self.n)
    }

    /// What all kernels read, with where segments and their chunks begin.
    fn shared(self, dtype: Float, chunks: usize) -> Vec<Contents> {
        let bounds = [Words(vec![0, self.rows as u32]), Words(vec![0, chunks as u32])];
        let inputs = [floats(dtype, self.xbc()), floats(dtype, self.rows * self.heads), F32(self.heads)];
        inputs.into_iter().chain(bounds).collect()
    }

    fn scan(self, set: &Set) -> abi::Scan {
        abi::Scan {
            xbc: set.at(0),
            dt: set.at(1),
            a_log: set.at(2),
            d: set.at(2),
            dt_bias: set.at(2),
            initial: null_mut(),
            offsets: set.at(3),
            chunks: set.at(4),
            mask: super::bare(),
            rows: self.rows as u32,
            heads: self.heads as u32,
            head_dim: self.p as u32,
            groups: self.groups as u32,
            state: self.n as u32,
            segments: 1,
            dt_low: 0.0,
            dt_high: f32::INFINITY,
        }
    }
}

/// T, H, P, G, N.
pub fn ssd_scan(shape: &[usize]) -> Vec<Workload> {
    let &[rows, heads, p, groups, n] = shape else { unreachable!("five letters") };
    let sizes = Sizes { rows, heads, p, groups, n };
    let mut all: Vec<Workload> = Float::BOTH.into_iter().map(|dtype| recurrent(sizes, dtype)).collect();
    for (rung, dtype, chunk, starts) in RUNGS {
        let on = |workload: Workload| if rung == "chunked" { workload } else { workload.on_tensor_cores() };
        all.push(on(forward(sizes, rung, dtype, chunk, starts)));
        if rung != "pipelined" {
            all.push(on(backward(sizes, rung, dtype, chunk, starts)));
        }
    }
    all.extend(Float::BOTH.into_iter().flat_map(|dtype| [group_sum(sizes, dtype), mask_grad(sizes, dtype)]));
    all
}

/// The decay, the outer product and the row's product with the state, row by row.
fn recurrent(sizes: Sizes, dtype: Float) -> Workload {
    let mut buffers = sizes.shared(dtype, 0);
    buffers.push(room(dtype, sizes.y()));
    let least = [sizes.inputs(dtype) + dtype.bytes() * sizes.y(), 5 * sizes.rows * sizes.state()];
    Workload::of("ssd_scan_recurrent_forward", dtype, least, buffers, move |set| abi::ScanForward {
        scan: sizes.scan(set),
        y: set.at(5),
        unmasked: null_mut(),
        final_state: null_mut(),
        starts: null_mut(),
    })
}

fn forward(sizes: Sizes, rung: &str, dtype: Float, chunk: usize, starts: Float) -> Workload {
    let chunks = sizes.rows.div_ceil(chunk);
    let states = chunks * sizes.state();
    let mut buffers = sizes.shared(dtype, chunks);
    buffers.extend([room(dtype, sizes.y()), room(starts, states)]);
    let least = [sizes.inputs(dtype) + dtype.bytes() * sizes.y() + starts.bytes() * states, sizes.flops(chunk)];
    Workload::of(&format!("ssd_scan_{rung}_forward"), dtype, least, buffers, move |set| abi::ScanForward {
        scan: sizes.scan(set),
        y: set.at(5),
        unmasked: null_mut(),
        final_state: null_mut(),
        starts: set.at(6),
    })
}

/// What the backward kernels read and write, and their arguments.
fn gradients(
    sizes: Sizes,
    dtype: Float,
    chunks: usize,
    starts: Float,
    share: impl Fn(usize) -> Contents,
) -> (Vec<Contents>, impl Fn(&Set) -> abi::ScanBackward) {
    let of_head = sizes.rows * sizes.heads * sizes.n;
    let mut buffers = sizes.shared(dtype, chunks);
    buffers.extend([floats(dtype, sizes.y()), floats(starts, chunks * sizes.state())]);
    buffers.extend([room(dtype, sizes.xbc()), room(dtype, sizes.rows * sizes.heads)]);
    buffers.extend([share(of_head), share(of_head), Room(12 * sizes.heads)]);
    let args = move |set: &Set| abi::ScanBackward {
        scan: sizes.scan(set),
        dy: set.at(5),
        dfinal: null_mut(),
        starts: set.at(6),
        dxbc: set.at(7),
        ddt: set.at(8),
        dinitial: null_mut(),
        db: set.at(9),
        dc: set.at(10),
        partials: set.at(11),
    };
    (buffers, args)
}

/// Each of the forward's four products has two gradients, and C·Bᵀ is made again. Of dxbc it writes x's columns.
fn backward(sizes: Sizes, rung: &str, dtype: Float, chunk: usize, starts: Float) -> Workload {
    let chunks = sizes.rows.div_ceil(chunk);
    let (buffers, args) = gradients(sizes, dtype, chunks, starts, |share| Room(4 * share));
    let shares = 2 * 4 * sizes.rows * sizes.heads * sizes.n;
    let states = starts.bytes() * chunks * sizes.state();
    let written = 2 * dtype.bytes() * sizes.rows * sizes.groups * sizes.n;
    let bytes = 2 * sizes.inputs(dtype) - written + dtype.bytes() * sizes.y() + states + shares;
    let flops = 2 * sizes.flops(chunk) + sizes.rows * sizes.heads * chunk * sizes.n;
    Workload::of(&format!("ssd_scan_{rung}_backward"), dtype, [bytes, flops], buffers, args)
}

/// Heads' shares of the gradients of B and C, added up per group.
fn group_sum(sizes: Sizes, dtype: Float) -> Workload {
    let (buffers, args) = gradients(sizes, dtype, 1, Float::F32, F32);
    let (shares, of_groups) = (sizes.rows * sizes.heads * sizes.n, sizes.rows * sizes.groups * sizes.n);
    let least = [2 * (4 * shares + dtype.bytes() * of_groups), 2 * shares];
    Workload::of("ssd_scan_group_sum", dtype, least, buffers, args)
}

fn mask_grad(sizes: Sizes, dtype: Float) -> Workload {
    let masked = Masked::new(sizes.rows, sizes.heads);
    let mut buffers = vec![floats(dtype, sizes.y()), floats(dtype, sizes.y()), Room(masked.row_sums())];
    buffers.extend(masked.contents());
    let least = [2 * dtype.bytes() * sizes.y() + masked.row_sums(), 2 * sizes.y()];
    Workload::of("ssd_scan_mask_grad", dtype, least, buffers, move |set| abi::ScanMaskGrad {
        unmasked: set.at(0),
        dy: set.at(1),
        row_sums: set.at(2),
        mask: masked.at(set, 3),
        rows: sizes.rows as u32,
        heads: sizes.heads as u32,
        head_dim: sizes.p as u32,
        unused: 0,
    })
}
