//! The Mamba-2 scan of one sequence, forward and backward.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{self, Bf16, F32, Room, Words};
use super::super::workload::{Set, Workload};

/// A rung of the ladder: its name, the rows of a chunk, the bytes of an element of the states before chunks.
const RUNGS: [(&str, usize, usize); 3] = [("chunked", 32, 4), ("tensor_core", 64, 2), ("pipelined", 64, 2)];

/// T, H, P, G, N.
pub fn ssd_scan(shape: &[usize]) -> Vec<Workload> {
    let &[rows, heads, p, groups, n] = shape else { unreachable!("five letters") };
    let (xbc, y, state) = (rows * (heads * p + 2 * groups * n), rows * heads * p, heads * p * n);
    let inputs = 2 * (xbc + rows * heads) + 12 * heads;
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
    let shared = move |chunks: usize| -> Vec<Contents> {
        let bounds = [Words(vec![0, rows as u32]), Words(vec![0, chunks as u32])];
        [Bf16(xbc), Bf16(rows * heads), F32(heads)].into_iter().chain(bounds).collect()
    };
    // The decay, the outer product and the row's product with the state.
    let mut recurrent = shared(0);
    recurrent.push(Room(2 * y));
    let sizes = [inputs + 2 * y, 5 * rows * state];
    let mut all =
        vec![Workload::new("ssd_scan_recurrent_forward_bf16", sizes, recurrent, move |set| abi::ScanForward {
            scan: scan(set),
            y: set.at(5),
            unmasked: null_mut(),
            final_state: null_mut(),
            starts: null_mut(),
        })];
    for (rung, chunk, element) in RUNGS {
        let chunks = rows.div_ceil(chunk);
        let starts = element * chunks * state;
        // Within a chunk scores and their sums, half of them behind the diagonal; then the state's share and its update.
        let flops = rows * heads * (chunk * (n + p) + 4 * p * n);
        let on_tensor_cores = |workload: Workload| match rung {
            "chunked" => workload,
            _ => workload.on_tensor_cores(),
        };
        let mut forward = shared(chunks);
        forward.extend([Room(2 * y), Room(starts)]);
        let sizes = [inputs + 2 * y + starts, flops];
        let symbol = format!("ssd_scan_{rung}_forward_bf16");
        all.push(on_tensor_cores(Workload::new(symbol, sizes, forward, move |set| abi::ScanForward {
            scan: scan(set),
            y: set.at(5),
            unmasked: null_mut(),
            final_state: null_mut(),
            starts: set.at(6),
        })));
        if rung == "pipelined" {
            continue; // forward alone
        }
        let share = 4 * rows * heads * n;
        let mut backward = shared(chunks);
        backward.extend([Bf16(y), if element == 2 { Bf16(chunks * state) } else { F32(chunks * state) }]);
        backward.extend([Room(2 * xbc), Room(2 * rows * heads), Room(share), Room(share), Room(12 * heads)]);
        // Each of the forward's four products has two gradients, and C·Bᵀ is made again.
        let flops = 2 * flops + rows * heads * chunk * n;
        let sizes = [2 * inputs + 2 * y + starts + 2 * share, flops];
        let symbol = format!("ssd_scan_{rung}_backward_bf16");
        all.push(on_tensor_cores(Workload::new(symbol, sizes, backward, move |set| abi::ScanBackward {
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
        })));
    }
    all
}
