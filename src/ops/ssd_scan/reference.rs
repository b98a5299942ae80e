use crate::tensor::Segments;

/// Inputs of the recurrence, as the op's; `mask(row, head)`.
pub struct Inputs<'a> {
    pub xbc: &'a [f64],
    pub dt: &'a [f64],
    pub a_log: &'a [f64],
    pub d: &'a [f64],
    pub dt_bias: &'a [f64],
    /// [S, H, P, N].
    pub initial: &'a [f64],
}

/// (H, P, G, N).
pub type Dims = (usize, usize, usize, usize);

/// y [R, H·P] and the final states [S, H, P, N], token by token.
pub fn ssd_scan(
    v: &Inputs,
    (heads, p, groups, n): Dims,
    limit: (f32, f32),
    segments: &Segments,
    mask: impl Fn(usize, usize) -> f64,
) -> (Vec<f64>, Vec<f64>) {
    let width = heads * p + 2 * groups * n;
    let mut y = vec![0.0; segments.rows() * heads * p];
    let mut states = v.initial.to_vec();
    for (segment, rows) in segments.iter().enumerate() {
        for h in 0..heads {
            let group = h / (heads / groups);
            let state = &mut states[(segment * heads + h) * p * n..][..p * n];
            for row in rows.clone() {
                let raw = v.dt[row * heads + h] + v.dt_bias[h];
                let softplus = raw.max(0.0) + (-raw.abs()).exp().ln_1p();
                let dt = softplus.clamp(f64::from(limit.0), f64::from(limit.1));
                let decay = (-v.a_log[h].exp() * dt).exp();
                let xbc = &v.xbc[row * width..][..width];
                let b = &xbc[heads * p + group * n..][..n];
                let c = &xbc[heads * p + (groups + group) * n..][..n];
                for i in 0..p {
                    let x = xbc[h * p + i];
                    let mut out = v.d[h] * x;
                    for j in 0..n {
                        state[i * n + j] = decay * state[i * n + j] + dt * x * b[j];
                        out += c[j] * state[i * n + j];
                    }
                    y[(row * heads + h) * p + i] = mask(row, h) * out;
                }
            }
        }
    }
    (y, states)
}
