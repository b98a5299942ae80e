//! The router's draws, and masks made of them: small tensors whose launches are what costs.

use super::super::super::embedded::abi;
use super::super::workload::Contents::{Bytes, F32, Room};
use super::super::workload::Workload;
use super::step_state;

/// draws, C.
pub fn gumbel_softmax(shape: &[usize]) -> Vec<Workload> {
    let (draws, candidates) = (shape[0], shape[1]);
    let n = draws * candidates;
    let state = || Bytes(step_state());
    let noise = vec![state(), Room(4 * n)];
    let forward = vec![state(), F32(candidates), F32(n), Room(4 * n)];
    let backward = vec![state(), F32(n), F32(n), Room(4 * candidates)];
    vec![
        Workload::new("gumbel_softmax_noise_f32", [4 * n, 2 * n], noise, move |set| abi::GumbelNoise {
            state: set.at(0),
            noise: set.at(1),
            gate: 3,
            draws: draws as u32,
            candidates: candidates as u32,
            unused: 0,
        }),
        Workload::new("gumbel_softmax_forward_f32", [8 * n + 4 * candidates, 6 * n], forward, move |set| {
            abi::GumbelForward {
                state: set.at(0),
                logits: set.at(1),
                noise: set.at(2),
                y: set.at(3),
                draws: draws as u32,
                candidates: candidates as u32,
            }
        }),
        Workload::new("gumbel_softmax_backward_f32", [8 * n + 4 * candidates, 5 * n], backward, move |set| {
            abi::GumbelBackward {
                state: set.at(0),
                y: set.at(1),
                dy: set.at(2),
                dlogits: set.at(3),
                draws: draws as u32,
                candidates: candidates as u32,
                accumulate: 0,
                unused: 0,
            }
        }),
    ]
}

/// draws, C.
pub fn mask_keep(shape: &[usize]) -> Vec<Workload> {
    let (draws, candidates) = (shape[0], shape[1]);
    let n = draws * candidates;
    let of = |kernel| {
        let buffers = vec![F32(n), Room(4 * n)];
        Workload::new(format!("mask_keep_{kernel}_f32"), [8 * n, n], buffers, move |set| abi::MaskKeep {
            in_: set.at(0),
            out: set.at(1),
            draws: draws as u32,
            candidates: candidates as u32,
        })
    };
    vec![of("forward"), of("backward")]
}
