/// y\[r\] = W_e·x\[r\] for the rows of each expert; 0 for rows behind the last offset.
pub fn grouped_gemm(x: &[f64], w: &[f64], offsets: &[usize], inner: usize, out: usize, rows: usize) -> Vec<f64> {
    let mut y = vec![0.0; rows * out];
    for (e, range) in offsets.windows(2).enumerate() {
        for r in range[0]..range[1] {
            for o in 0..out {
                y[r * out + o] = (0..inner).map(|i| x[r * inner + i] * w[(e * out + o) * inner + i]).sum();
            }
        }
    }
    y
}
