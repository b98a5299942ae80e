use crate::ops::grouped_gemm::reference::grouped_gemm;
use crate::ops::quantize::{Blocks, reference::quantize};
use crate::ops::quantized_linear::Precision;

/// y\[r\] = W_e·x\[r\] with x [M, inner] by rows and each W_e [out, inner] by squares; NVFP4's tensor scale is one for all.
pub fn quantized_grouped_gemm(
    x: &[f64],
    w: &[f64],
    offsets: &[usize],
    [inner, out]: [usize; 2],
    precision: Precision,
) -> Vec<f64> {
    let format = precision.values();
    let rows = x.len().checked_div(inner).unwrap_or(0);
    let x = quantize(x, inner, format, Blocks::Rows);
    // Zeros between the experts, so that no square has elements of two.
    let stride = out.next_multiple_of(format.block()) * inner;
    let mut apart = vec![0.0; (offsets.len() - 1) * stride];
    for (apart, w) in apart.chunks_mut(stride.max(1)).zip(w.chunks((out * inner).max(1))) {
        apart[..w.len()].copy_from_slice(w);
    }
    let apart = quantize(&apart, inner, format, Blocks::Squares);
    let w: Vec<f64> = apart.chunks(stride.max(1)).flat_map(|w| &w[..out * inner]).copied().collect();
    grouped_gemm(&x, &w, offsets, inner, out, rows)
}
