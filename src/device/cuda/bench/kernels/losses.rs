//! The losses of rows of logits.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{F32, Room, Words, Zeros};
use super::super::workload::{Float, Workload, room};

/// R, V.
pub fn cross_entropy(shape: &[usize]) -> Vec<Workload> {
    let (rows, vocab) = (shape[0], shape[1]);
    let n = rows * vocab;
    let targets: Vec<u32> = (0..rows).map(|row| (row * 7919 % vocab) as u32).collect();
    // The logits are read, gradients written; the rest is small.
    let of = |dtype: Float| {
        let buffers = vec![F32(n), Words(targets.clone()), room(dtype, n), Room(4 * rows), Room(4 * rows)];
        let sizes = [(4 + dtype.bytes()) * n + 12 * rows, 6 * n];
        Workload::of("cross_entropy_rows", dtype, sizes, buffers, move |set| abi::CrossEntropy {
            logits: set.at(0),
            targets: set.at(1),
            dlogits: set.at(2),
            losses: set.at(3),
            tops: set.at(4),
            rows: rows as u32,
            vocab: vocab as u32,
            scale: 1.0 / rows as f32,
            unused: 0,
        })
    };
    let mut all: Vec<Workload> = Float::BOTH.into_iter().map(of).collect();
    let buffers = vec![F32(rows), Words(targets), Room(4)];
    all.push(Workload::new("cross_entropy_mean_f32", [8 * rows + 4, rows], buffers, move |set| {
        abi::CrossEntropyMean { losses: set.at(0), targets: set.at(1), loss: set.at(2), rows: rows as u32, unused: 0 }
    }));
    all
}

/// R, V, in one chunk.
pub fn distill_loss(shape: &[usize]) -> Vec<Workload> {
    let (rows, vocab) = (shape[0], shape[1]);
    let n = rows * vocab;
    let of_rows = rows * size_of::<abi::DistillStatistics>();
    let sums = vec![F32(n), F32(n), Room(of_rows)];
    let mean = vec![Zeros(of_rows), Words(vec![1; rows]), Room(4)];
    let grad = |dtype: Float| {
        let buffers = vec![F32(n), F32(n), Zeros(of_rows), room(dtype, n)];
        let sizes = [(8 + dtype.bytes()) * n + of_rows, 8 * n];
        Workload::of("distill_loss_grad", dtype, sizes, buffers, move |set| abi::DistillGrad {
            teacher: set.at(0),
            student: set.at(1),
            valid: null_mut(),
            statistics: set.at(2),
            dstudent: set.at(3),
            rows: rows as u32,
            vocab: vocab as u32,
            scale: 1.0,
            factor: 1.0 / rows as f32,
        })
    };
    let mut all = vec![
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
        Workload::new("distill_loss_mean_f32", [of_rows + 4 * rows + 4, 5 * rows], mean, move |set| abi::DistillMean {
            statistics: set.at(0),
            valid: set.at(1),
            loss: set.at(2),
            rows: rows as u32,
            unused: 0,
        }),
    ];
    all.extend(Float::BOTH.map(grad));
    all
}
