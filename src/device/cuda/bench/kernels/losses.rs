//! The losses of rows of logits.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{F32, Room, Words, Zeros};
use super::super::workload::Workload;

/// R, V.
pub fn cross_entropy(shape: &[usize]) -> Vec<Workload> {
    let (rows, vocab) = (shape[0], shape[1]);
    let n = rows * vocab;
    let targets: Vec<u32> = (0..rows).map(|row| (row * 7919 % vocab) as u32).collect();
    let buffers = vec![F32(n), Words(targets), Room(2 * n), Room(4 * rows), Room(4 * rows)];
    // The logits are read, bf16 gradients written; the rest is small.
    vec![Workload::new("cross_entropy_rows_bf16", [6 * n + 12 * rows, 6 * n], buffers, move |set| abi::CrossEntropy {
        logits: set.at(0),
        targets: set.at(1),
        dlogits: set.at(2),
        losses: set.at(3),
        tops: set.at(4),
        rows: rows as u32,
        vocab: vocab as u32,
        scale: 1.0 / rows as f32,
        unused: 0,
    })]
}

/// R, V, in one chunk.
pub fn distill_loss(shape: &[usize]) -> Vec<Workload> {
    let (rows, vocab) = (shape[0], shape[1]);
    let n = rows * vocab;
    let of_rows = rows * size_of::<abi::DistillStatistics>();
    let sums = vec![F32(n), F32(n), Room(of_rows)];
    let grad = vec![F32(n), F32(n), Zeros(of_rows), Room(2 * n)];
    vec![
        Workload::new("distill_loss_sums_f32", [8 * n + of_rows, 10 * n], sums, move |set| abi::DistillSums {
            teacher: set.at(0),
            student: set.at(1),
            valid: null_mut(),
            statistics: set.at(2),
            rows: rows as u32,
            vocab: vocab as u32,
            scale: 1.0,
            first: 1,
        }),
        Workload::new("distill_loss_grad_bf16", [10 * n + of_rows, 8 * n], grad, move |set| abi::DistillGrad {
            teacher: set.at(0),
            student: set.at(1),
            valid: null_mut(),
            statistics: set.at(2),
            dstudent: set.at(3),
            rows: rows as u32,
            vocab: vocab as u32,
            scale: 1.0,
            factor: 1.0 / rows as f32,
        }),
    ]
}
