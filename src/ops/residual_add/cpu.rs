use crate::autograd::{MaskRows, masked};
use crate::device::parallel::{for_rows, sum_rows};

/// Rows whose mask gradients are summed by one task.
const BLOCK: usize = 64;

/// The product of both masks at component j of a row.
#[inline(always)]
fn factor(hidden: Option<&[f32]>, keep: Option<&[f32]>, j: usize) -> f32 {
    hidden.map_or(1.0, |m| m[j]) * keep.map_or(1.0, |m| m[j])
}

pub fn forward(h: &[f32], x: &[f32], d: usize, hidden: Option<&MaskRows>, keep: Option<&MaskRows>, out: &mut [f32]) {
    for_rows(out, d, |first, out| {
        for (i, out) in out.chunks_exact_mut(d).enumerate() {
            let row = first + i;
            let (h, x) = (&h[row * d..][..d], &x[row * d..][..d]);
            if hidden.is_none() && keep.is_none() {
                out.iter_mut().zip(h).zip(x).for_each(|((out, h), x)| *out = h + x);
                continue;
            }
            let (hidden, keep) = (hidden.map(|m| m.row(row)), keep.map(|m| m.row(row)));
            for j in 0..d {
                out[j] = h[j] + masked(x[j], factor(hidden, keep, j));
            }
        }
    });
}

pub fn input_grad(dout: &[f32], d: usize, hidden: Option<&MaskRows>, keep: Option<&MaskRows>, dx: &mut [f32]) {
    for_rows(dx, d, |first, dx| {
        for (i, dx) in dx.chunks_exact_mut(d).enumerate() {
            let row = first + i;
            let dout = &dout[row * d..][..d];
            let (hidden, keep) = (hidden.map(|m| m.row(row)), keep.map(|m| m.row(row)));
            for j in 0..d {
                dx[j] = masked(dout[j], factor(hidden, keep, j));
            }
        }
    });
}

/// The gradients of the hidden mask's and the layer gate's keep probabilities, [draws, C] each, empty where there is no mask.
/// Each is ⟨dout, x·(the other mask)⟩ per interval.
pub fn mask_grads(
    x: &[f32],
    d: usize,
    hidden: Option<&MaskRows>,
    keep: Option<&MaskRows>,
    dout: &[f32],
) -> [Vec<f32>; 2] {
    let rows = x.len().checked_div(d).unwrap_or(0);
    let grad = |of: Option<&MaskRows>, other: Option<&MaskRows>| -> Vec<f32> {
        let Some(of) = of else { return Vec::new() };
        sum_rows(rows, BLOCK, of.grad_len(), |rows, acc| {
            let mut unmasked = vec![0.0; d];
            for row in rows {
                unmasked.copy_from_slice(&x[row * d..][..d]);
                if let Some(other) = other {
                    unmasked.iter_mut().zip(other.row(row)).for_each(|(x, m)| *x = masked(*x, *m));
                }
                of.add_products(acc, row, &dout[row * d..][..d], &unmasked);
            }
        })
    };
    [grad(hidden, keep), grad(keep, hidden)]
}
