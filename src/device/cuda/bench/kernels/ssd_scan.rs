//! The Mamba-2 scan of one sequence, forward and backward.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{Bf16, F32, Room, Words};
use super::super::workload::{Set, Workload};

/// T, H, P, G, N.
pub fn ssd_scan(shape: &[usize]) -> Vec<Workload> {
    const CHUNK: usize = 32;
    let (rows, heads, p, groups, n) = (shape[0], shape[1], shape[2], shape[3], shape[4]);
    let chunks = rows.div_ceil(CHUNK);
    let (xbc, y, state) = (rows * (heads * p + 2 * groups * n), rows * heads * p, heads * p * n);
    let scan = move |set: &Set| abi::Scan {
        xbc: set.at(0),
        dt: set.at(1),
        a_log: set.at(2),
        d: set.at(2),
        dt_bias: set.at(2),
        initial: null_mut(),
        offsets: set.at(3),
        chunks: set.at(4),
        mask: super::bare(),
        rows: rows as u32,
        heads: heads as u32,
        head_dim: p as u32,
        groups: groups as u32,
        state: n as u32,
        segments: 1,
        dt_low: 0.0,
        dt_high: f32::INFINITY,
    };
    let shared = || {
        let bounds = [Words(vec![0, rows as u32]), Words(vec![0, chunks as u32])];
        [Bf16(xbc), Bf16(rows * heads), F32(heads)].into_iter().chain(bounds).collect::<Vec<_>>()
    };
    let mut forward = shared();
    forward.extend([Room(2 * y), Room(4 * chunks * state)]);
    let mut backward = shared();
    backward.extend([Bf16(y), F32(chunks * state), Room(2 * xbc), Room(2 * rows * heads)]);
    backward.extend([Room(4 * rows * heads * n), Room(4 * rows * heads * n), Room(12 * heads)]);
    // Within a chunk scores and their sums, half of them behind the diagonal; then the state's share and its update.
    let flops = rows * heads * (CHUNK * (n + p) + 4 * p * n);
    let inputs = 2 * (xbc + rows * heads) + 12 * heads;
    let starts = 4 * chunks * state;
    vec![
        Workload::new("ssd_scan_chunked_forward_bf16", [inputs + 2 * y + starts, flops], forward, move |set| {
            abi::ScanForward {
                scan: scan(set),
                y: set.at(5),
                unmasked: null_mut(),
                final_state: null_mut(),
                starts: set.at(6),
            }
        }),
        Workload::new(
            "ssd_scan_chunked_backward_bf16",
            [2 * inputs + 2 * y + starts + 8 * rows * heads * n, 3 * flops],
            backward,
            move |set| abi::ScanBackward {
                scan: scan(set),
                dy: set.at(5),
                dfinal: null_mut(),
                starts: set.at(6),
                dxbc: set.at(7),
                ddt: set.at(8),
                dinitial: null_mut(),
                db: set.at(9),
                dc: set.at(10),
                partials: set.at(11),
            },
        ),
    ]
}
