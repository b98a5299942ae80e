//! The convolution over one sequence, and the inputs that it leaves for the next call.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{Room, Words};
use super::super::workload::{Float, Set, Workload, floats, room};
use crate::ops::causal_conv1d::cuda::STRETCH;

/// Taps.
const KERNEL: usize = 4;

/// R, C.
pub fn causal_conv1d(shape: &[usize]) -> Vec<Workload> {
    let (rows, channels) = (shape[0], shape[1]);
    Float::BOTH.into_iter().flat_map(|dtype| of(dtype, rows, channels)).collect()
}

fn of(dtype: Float, rows: usize, channels: usize) -> [Workload; 3] {
    let (n, element) = (rows * channels, dtype.bytes());
    let conv = move |set: &Set| abi::Conv {
        x: set.at(0),
        weight: set.at(1),
        bias: set.at(2),
        initial: null_mut(),
        offsets: set.at(3),
        rows: rows as u32,
        channels: channels as u32,
        kernel: KERNEL as u32,
        segments: 1,
        stretch: STRETCH as u32,
        unused: 0,
    };
    let shared = || {
        let bounds = Words(vec![0, rows as u32]);
        vec![floats(dtype, n), floats(dtype, channels * KERNEL), floats(dtype, channels), bounds]
    };
    let (mut forward, mut backward, mut state) = (shared(), shared(), shared());
    forward.push(room(dtype, n));
    let partials = rows.div_ceil(STRETCH) * channels * (KERNEL + 1) * 4;
    backward.extend([floats(dtype, n), room(dtype, n), Room(partials)]);
    let kept = (KERNEL - 1) * channels;
    state.push(room(dtype, kept));
    [
        Workload::of("causal_conv1d_forward", dtype, [2 * element * n, 2 * KERNEL * n], forward, move |set| {
            abi::ConvForward { conv: conv(set), y: set.at(4) }
        }),
        Workload::of(
            "causal_conv1d_backward",
            dtype,
            [3 * element * n + partials, 6 * KERNEL * n],
            backward,
            move |set| abi::ConvBackward { conv: conv(set), dy: set.at(4), dx: set.at(5), partials: set.at(6) },
        ),
        Workload::of("causal_conv1d_state", dtype, [2 * element * kept, 0], state, move |set| abi::ConvState {
            x: set.at(0),
            initial: null_mut(),
            offsets: set.at(3),
            state: set.at(4),
            channels: channels as u32,
            kernel: KERNEL as u32,
            segments: 1,
            unused: 0,
        }),
    ]
}
