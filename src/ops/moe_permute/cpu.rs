use super::{DROPPED, Dispatch};
use crate::device::parallel::for_rows;

pub fn forward(x: &[f32], width: usize, dispatch: &Dispatch, y: &mut [f32]) {
    for_rows(y, width, |first, y| {
        for (y, pair) in y.chunks_exact_mut(width).zip(&dispatch.pairs[first..]) {
            let token = *pair as usize / dispatch.top_k;
            y.copy_from_slice(&x[token * width..][..width]);
        }
    });
}

/// A token's gradient is the sum of its K rows', in slot order.
pub fn backward(dy: &[f32], width: usize, dispatch: &Dispatch, dx: &mut [f32]) {
    let k = dispatch.top_k;
    for_rows(dx, width, |first, dx| {
        for (i, dx) in dx.chunks_exact_mut(width).enumerate() {
            let mut rows = dispatch.positions[(first + i) * k..][..k].iter().filter(|at| **at != DROPPED);
            match rows.next() {
                Some(at) => dx.copy_from_slice(&dy[*at as usize * width..][..width]),
                None => dx.fill(0.0),
            }
            for at in rows {
                dx.iter_mut().zip(&dy[*at as usize * width..]).for_each(|(sum, d)| *sum += d);
            }
        }
    });
}
