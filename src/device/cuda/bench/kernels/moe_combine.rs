//! Experts' outputs, weighted and added up per token.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{F32, Room, Words};
use super::super::workload::{Float, Set, Workload, floats, room};
use super::bare;
use super::moe_permute::Dispatch;

/// R, E, K, L.
pub fn moe_combine(shape: &[usize]) -> Vec<Workload> {
    let &[rows, experts, top_k, width] = shape else { unreachable!("four letters") };
    let dispatch = Dispatch::new(rows, experts, top_k);
    Float::BOTH.into_iter().flat_map(|dtype| of(dtype, &dispatch, [rows, top_k, width])).collect()
}

fn of(dtype: Float, dispatch: &Dispatch, [rows, top_k, width]: [usize; 3]) -> [Workload; 2] {
    let pairs = rows * top_k;
    let (x, y, element) = (rows * width, pairs * width, dtype.bytes());
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
    let shared = || {
        let [chosen, row_of, filled] = [&dispatch.chosen, &dispatch.row_of, &dispatch.filled].map(|w| Words(w.clone()));
        vec![floats(dtype, y), F32(pairs), chosen, row_of, filled]
    };
    let (mut forward, mut backward) = (shared(), shared());
    forward.push(room(dtype, x));
    backward.extend([floats(dtype, x), room(dtype, y), Room(4 * pairs)]);
    [
        Workload::of("moe_combine_forward", dtype, [element * (x + y) + 8 * pairs, 2 * y], forward, move |set| {
            abi::MoeCombineForward { combine: combine(set), out: set.at(5) }
        }),
        Workload::of(
            "moe_combine_backward",
            dtype,
            [element * (x + 2 * y) + 12 * pairs, 4 * y],
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
