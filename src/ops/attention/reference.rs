use std::ops::Range;

use super::AttentionDims;
use crate::tensor::Segments;

/// Query by query and head by head: softmax over the keys that the query sees, 0 where it sees none.
pub fn attention([q, k, v]: [&[f64]; 3], dims: &AttentionDims, queries: &Segments, keys: &[Range<usize>]) -> Vec<f64> {
    let &AttentionDims { heads, kv_heads, head_dim: d } = dims;
    let mut out = vec![0.0; q.len()];
    for (rows, keys) in queries.iter().zip(keys) {
        for row in rows.clone() {
            let seen = (keys.len() + row - rows.start + 1).saturating_sub(rows.len());
            for head in 0..heads {
                let kv_head = head / (heads / kv_heads);
                let at = |x: usize| (x * kv_heads + kv_head) * d;
                let q = &q[(row * heads + head) * d..][..d];
                let seen = keys.start..keys.start + seen;
                let score = |key| q.iter().zip(&k[at(key)..]).map(|(q, k)| q * k).sum::<f64>() / (d as f64).sqrt();
                let scores: Vec<f64> = seen.clone().map(score).collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
                for (key, score) in seen.zip(&scores) {
                    let p = (score - largest).exp() / total;
                    for i in 0..d {
                        out[(row * heads + head) * d + i] += p * v[at(key) + i];
                    }
                }
            }
        }
    }
    out
}
