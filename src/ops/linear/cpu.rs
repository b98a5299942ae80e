use crate::device::gemm::{Mat, par_matmul};

pub fn forward(x: &[f32], w: &[f32], y: &mut [f32], rows: usize, inner: usize, out: usize) {
    par_matmul(Mat::new(x, rows, inner), Mat::new(w, out, inner).t(), y, out, false);
}

/// dx = dy·W.
pub fn input_grad(dy: &[f32], w: &[f32], dx: &mut [f32], rows: usize, inner: usize, out: usize) {
    par_matmul(Mat::new(dy, rows, out), Mat::new(w, out, inner), dx, inner, false);
}

/// dW = dyᵀ·x, or dW += it.
pub fn weight_grad(dy: &[f32], x: &[f32], dw: &mut [f32], (rows, inner, out): (usize, usize, usize), accumulate: bool) {
    par_matmul(Mat::new(dy, rows, out).t(), Mat::new(x, rows, inner), dw, inner, accumulate);
}
