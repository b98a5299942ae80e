use crate::autograd::{MaskRows, masked};
use crate::device::parallel::{for_rows, sum_rows};

/// Rows whose mask gradient is summed by one task.
const BLOCK: usize = 64;

pub fn forward(x: &[f32], width: usize, mask: Option<&MaskRows>, y: &mut [f32]) {
    for_rows(y, width, |first, y| {
        let x = &x[first * width..][..y.len()];
        let Some(mask) = mask else {
            for (y, x) in y.iter_mut().zip(x) {
                *y = square(*x);
            }
            return;
        };
        for (i, (y, x)) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)).enumerate() {
            for ((y, x), m) in y.iter_mut().zip(x).zip(mask.row(first + i)) {
                *y = masked(square(*x), *m);
            }
        }
    });
}

/// dx = 2·relu(x)·m·dy.
pub fn input_grad(x: &[f32], width: usize, mask: Option<&MaskRows>, dy: &[f32], dx: &mut [f32]) {
    for_rows(dx, width, |first, dx| {
        let (x, dy) = (&x[first * width..][..dx.len()], &dy[first * width..][..dx.len()]);
        let Some(mask) = mask else {
            for ((dx, x), dy) in dx.iter_mut().zip(x).zip(dy) {
                *dx = 2.0 * positive(*x) * dy;
            }
            return;
        };
        let rows = dx.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(dy.chunks_exact(width));
        for (i, ((dx, x), dy)) in rows.enumerate() {
            for (((dx, x), dy), m) in dx.iter_mut().zip(x).zip(dy).zip(mask.row(first + i)) {
                *dx = masked(2.0 * positive(*x) * dy, *m);
            }
        }
    });
}

/// [draws, C]: ⟨dy, relu(x)²⟩ per interval.
pub fn mask_grad(x: &[f32], mask: &MaskRows, dy: &[f32]) -> Vec<f32> {
    let width = mask.width();
    sum_rows(x.len().checked_div(width).unwrap_or(0), BLOCK, mask.grad_len(), |rows, acc| {
        let mut activation = vec![0.0; width];
        for row in rows {
            for (a, x) in activation.iter_mut().zip(&x[row * width..]) {
                *a = square(*x);
            }
            mask.add_products(acc, row, &dy[row * width..][..width], &activation);
        }
    })
}

/// max(x, 0), NaN kept: a broken activation must show, not turn into 0.
#[inline(always)]
fn positive(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn square(x: f32) -> f32 {
    let p = positive(x);
    p * p
}
