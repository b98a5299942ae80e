//! Rows of the table, the sort of rows by id, and the table's gradient.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{Room, Words};
use super::super::workload::{Float, Set, Workload, floats, room};
use super::{Masked, bare, scanned};

/// Keys of a digit of the sort.
const DIGIT: usize = 512;

/// R, V, d.
pub fn embedding(shape: &[usize]) -> Vec<Workload> {
    let &[rows, vocab, width] = shape else { unreachable!("three letters") };
    let ids: Vec<u32> = (0..rows).map(|row| (row * 7919 % vocab) as u32).collect();
    let of = |dtype| [forward(dtype, &ids, vocab, width), mask_grad(dtype, &ids, vocab, width)];
    let mut all: Vec<Workload> = Float::BOTH.into_iter().flat_map(of).collect();
    all.extend(sort(&ids));
    let mut order: Vec<u32> = (0..rows as u32).collect();
    order.sort_by_key(|row| ids[*row as usize]);
    let below = |id: usize| order.partition_point(|row| (ids[*row as usize] as usize) < id) as u32;
    let starts: Vec<u32> = (0..=vocab).map(below).collect();
    let buffers = vec![Words(ids.clone()), Words(order.clone()), Room(4 * (vocab + 1))];
    all.push(Workload::new("embedding_offsets_u32", [8 * rows + 4 * (vocab + 1), 0], buffers, move |set| {
        abi::EmbeddingOffsets {
            ids: set.at(0),
            order: set.at(1),
            offsets: set.at(2),
            rows: rows as u32,
            vocab: vocab as u32,
        }
    }));
    all.extend(Float::BOTH.map(|dtype| backward(dtype, &order, &starts, width)));
    all
}

fn forward(dtype: Float, ids: &[u32], vocab: usize, width: usize) -> Workload {
    let n = ids.len() * width;
    let rows = ids.len() as u32;
    let buffers = vec![Words(ids.to_vec()), floats(dtype, vocab * width), room(dtype, n)];
    Workload::of("embedding_forward", dtype, [2 * dtype.bytes() * n, 0], buffers, move |set| abi::EmbeddingForward {
        ids: set.at(0),
        table: set.at(1),
        y: set.at(2),
        mask: bare(),
        rows,
        width: width as u32,
    })
}

fn mask_grad(dtype: Float, ids: &[u32], vocab: usize, width: usize) -> Workload {
    let (rows, n) = (ids.len(), ids.len() * width);
    let masked = Masked::new(rows, width);
    let mut buffers = vec![Words(ids.to_vec()), floats(dtype, vocab * width), floats(dtype, n)];
    buffers.push(Room(masked.row_sums()));
    buffers.extend(masked.contents());
    let sizes = [2 * dtype.bytes() * n + masked.row_sums(), 2 * n];
    Workload::of("embedding_mask_grad", dtype, sizes, buffers, move |set| abi::EmbeddingMaskGrad {
        ids: set.at(0),
        table: set.at(1),
        dy: set.at(2),
        row_sums: set.at(3),
        mask: masked.at(set, 4),
        rows: rows as u32,
        width: width as u32,
    })
}

/// The first digit's three launches.
fn sort(ids: &[u32]) -> [Workload; 3] {
    let rows = ids.len();
    let starts = scanned(&ids.iter().map(|id| *id as usize % DIGIT).collect::<Vec<_>>(), DIGIT);
    let counts = 4 * starts.len();
    let args = move |set: &Set| abi::EmbeddingSort {
        ids: set.at(0),
        order_in: null_mut(),
        order_out: set.at(1),
        counts: set.at(2),
        rows: rows as u32,
        shift: 0,
    };
    let sizes = [("count", 4 * rows + counts), ("scan", 2 * counts), ("place", 8 * rows + counts)];
    sizes.map(|(kernel, bytes)| {
        let buffers = vec![Words(ids.to_vec()), Room(4 * rows), Words(starts.clone())];
        Workload::new(format!("embedding_sort_{kernel}_u32"), [bytes, 0], buffers, args)
    })
}

/// Every row of the table's gradient is written, those of ids that do not occur too.
fn backward(dtype: Float, order: &[u32], starts: &[u32], width: usize) -> Workload {
    let (n, vocab) = (order.len() * width, starts.len() - 1);
    let buffers = vec![Words(order.to_vec()), Words(starts.to_vec()), floats(dtype, n), Room(4 * vocab * width)];
    let bytes = dtype.bytes() * n + 4 * vocab * width + 4 * (order.len() + starts.len());
    Workload::of("embedding_backward", dtype, [bytes, n], buffers, move |set| abi::EmbeddingBackward {
        order: set.at(0),
        offsets: set.at(1),
        dy: set.at(2),
        dtable: set.at(3),
        mask: bare(),
        vocab: vocab as u32,
        width: width as u32,
        accumulate: 0,
        unused: 0,
    })
}
