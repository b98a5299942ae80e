use super::{AdamWOptions, Update};

/// value, first and second moment after one step, in f64.
pub fn adamw(
    value: &[f64],
    grad: &[f64],
    first: &[f64],
    second: &[f64],
    u: &Update,
    o: &AdamWOptions,
) -> [Vec<f64>; 3] {
    let (b1, b2, lr) = (f64::from(o.beta1), f64::from(o.beta2), f64::from(u.learning_rate));
    let g = |i: usize| grad[i] * f64::from(u.scale);
    let first: Vec<f64> = first.iter().enumerate().map(|(i, m)| b1 * m + (1.0 - b1) * g(i)).collect();
    let second: Vec<f64> = second.iter().enumerate().map(|(i, v)| b2 * v + (1.0 - b2) * g(i) * g(i)).collect();
    let t = u.update as f64;
    let value = (0..value.len())
        .map(|i| {
            let decayed = if u.decay { value[i] * (1.0 - lr * f64::from(o.weight_decay)) } else { value[i] };
            let (m, v) = (first[i] / (1.0 - b1.powf(t)), second[i] / (1.0 - b2.powf(t)));
            decayed - lr * m / (v.sqrt() + f64::from(o.eps))
        })
        .collect();
    [value, first, second]
}
