use crate::device::gemm::{Mat, par_matmul};

/// Output columns `first .. first + width`: rows of the weight.
#[derive(Clone, Copy)]
pub struct Part {
    /// R.
    pub rows: usize,
    /// The weight's columns.
    pub inner: usize,
    pub first: usize,
    pub width: usize,
}

impl Part {
    fn weight<'w>(&self, w: &'w [f32]) -> Mat<'w> {
        Mat::new(&w[self.first * self.inner..], self.width, self.inner)
    }

    pub fn forward(&self, x: &[f32], w: &[f32], y: &mut [f32]) {
        par_matmul(Mat::new(x, self.rows, self.inner), self.weight(w).t(), y, self.width, false);
    }

    /// dx = dy·W, or dx += it.
    pub fn input_grad(&self, dy: &[f32], w: &[f32], dx: &mut [f32], accumulate: bool) {
        par_matmul(Mat::new(dy, self.rows, self.width), self.weight(w), dx, self.inner, accumulate);
    }

    /// The part's rows of dW = dyᵀ·x, or += it.
    pub fn weight_grad(&self, dy: &[f32], x: &[f32], dw: &mut [f32], accumulate: bool) {
        let dw = &mut dw[self.first * self.inner..][..self.width * self.inner];
        let dy = Mat::new(dy, self.rows, self.width).t();
        par_matmul(dy, Mat::new(x, self.rows, self.inner), dw, self.inner, accumulate);
    }
}
