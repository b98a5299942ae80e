use crate::autograd::{MaskRows, masked};
use crate::device::parallel::{for_rows, sum_rows};

/// Rows whose mask gradient is summed by one task.
const BLOCK: usize = 64;

pub fn forward(ids: &[u32], table: &[f32], d: usize, mask: Option<&MaskRows>, y: &mut [f32]) {
    for_rows(y, d, |first, y| {
        for (i, y) in y.chunks_exact_mut(d).enumerate() {
            let entry = &table[ids[first + i] as usize * d..][..d];
            match mask {
                None => y.copy_from_slice(entry),
                Some(mask) => {
                    for ((y, x), m) in y.iter_mut().zip(entry).zip(mask.row(first + i)) {
                        *y = masked(*x, *m);
                    }
                }
            }
        }
    });
}

/// dtable\[id\] = Σ over the rows of that id of dy·m, or += it: parallel over ids, the rows of one id in order.
pub fn table_grad(ids: &[u32], dy: &[f32], d: usize, mask: Option<&MaskRows>, dtable: &mut [f32], accumulate: bool) {
    if d == 0 {
        return;
    }
    let (offsets, order) = rows_by_id(ids, dtable.len() / d);
    for_rows(dtable, d, |first, block| {
        for (i, sum) in block.chunks_exact_mut(d).enumerate() {
            if !accumulate {
                sum.fill(0.0);
            }
            for row in &order[offsets[first + i]..offsets[first + i + 1]] {
                let dy = &dy[*row * d..][..d];
                match mask {
                    None => sum.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy),
                    Some(mask) => {
                        for ((sum, dy), m) in sum.iter_mut().zip(dy).zip(mask.row(*row)) {
                            *sum += masked(*dy, *m);
                        }
                    }
                }
            }
        }
    });
}

/// Rows sorted by id, and where each id's rows start: a counting sort, so rows of one id stay in order.
fn rows_by_id(ids: &[u32], vocab: usize) -> (Vec<usize>, Vec<usize>) {
    let mut offsets = vec![0usize; vocab + 1];
    for id in ids {
        offsets[*id as usize + 1] += 1;
    }
    for id in 0..vocab {
        offsets[id + 1] += offsets[id];
    }
    let mut next = offsets.clone();
    let mut order = vec![0usize; ids.len()];
    for (row, id) in ids.iter().enumerate() {
        order[next[*id as usize]] = row;
        next[*id as usize] += 1;
    }
    (offsets, order)
}

/// [draws, C]: ⟨dy, table\[ids\]⟩ per interval.
pub fn mask_grad(ids: &[u32], table: &[f32], mask: &MaskRows, dy: &[f32]) -> Vec<f32> {
    let d = mask.width();
    sum_rows(ids.len(), BLOCK, mask.grad_len(), |rows, acc| {
        for row in rows {
            mask.add_products(acc, row, &dy[row * d..][..d], &table[ids[row] as usize * d..][..d]);
        }
    })
}
