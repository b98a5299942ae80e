use super::super::moe_permute::{DROPPED, Dispatch};
use crate::autograd::{MaskRows, masked};
use crate::device::parallel::{axpy, dot, for_rows, for_rows2};

/// The mask of a pair's expert on its token.
fn mask_of(dispatch: &Dispatch, mask: Option<&MaskRows>, pair: usize) -> f32 {
    mask.map_or(1.0, |m| m.row(pair / dispatch.top_k)[dispatch.experts[pair] as usize])
}

pub fn forward(
    y: &[f32],
    weights: &[f32],
    width: usize,
    dispatch: &Dispatch,
    mask: Option<&MaskRows>,
    out: &mut [f32],
) {
    let k = dispatch.top_k;
    for_rows(out, width, |first, out| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            out.fill(0.0);
            for pair in (first + i) * k..(first + i + 1) * k {
                let at = dispatch.positions[pair];
                if at == DROPPED {
                    continue;
                }
                let m = mask_of(dispatch, mask, pair);
                if m != 0.0 {
                    axpy(weights[pair] * m, &y[at as usize * width..][..width], out);
                }
            }
        }
    });
}

pub struct Saved<'a> {
    pub y: &'a [f32],
    pub weights: &'a [f32],
    pub width: usize,
}

/// dy [M, L], and dots `[M]` = ⟨dout of the row's token, y⟩.
pub fn backward(
    saved: &Saved,
    dispatch: &Dispatch,
    mask: Option<&MaskRows>,
    dout: &[f32],
    dy: &mut [f32],
    dots: &mut [f32],
) {
    let width = saved.width;
    if width == 0 {
        return;
    }
    for_rows2((dy, width), (dots, 1), |first, dy, dots| {
        for (i, (dy, sum)) in dy.chunks_exact_mut(width).zip(dots).enumerate() {
            let row = first + i;
            let pair = dispatch.pairs[row] as usize;
            let dout = &dout[pair / dispatch.top_k * width..][..width];
            *sum = dot(dout, &saved.y[row * width..][..width]);
            let factor = saved.weights[pair] * mask_of(dispatch, mask, pair);
            dy.iter_mut().zip(dout).for_each(|(dy, d)| *dy = masked(*d, factor));
        }
    });
}

/// The gradients of the weights [R, K] and of the mask [draws, C].
pub fn scalar_grads(
    dots: &[f32],
    weights: &[f32],
    dispatch: &Dispatch,
    mask: Option<&MaskRows>,
) -> (Vec<f32>, Vec<f32>) {
    let mut dweights = vec![0.0; weights.len()];
    let mut dkeep = vec![0.0; mask.map_or(0, MaskRows::grad_len)];
    for (pair, at) in dispatch.positions.iter().enumerate().filter(|(_, at)| **at != DROPPED) {
        let along = dots[*at as usize];
        dweights[pair] = masked(along, mask_of(dispatch, mask, pair));
        if let Some(mask) = mask {
            let interval = mask.interval(dispatch.experts[pair] as usize);
            mask.row_grad(&mut dkeep, pair / dispatch.top_k)[interval] += weights[pair] * along;
        }
    }
    (dweights, dkeep)
}
