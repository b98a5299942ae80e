use std::ops::Range;

use super::{AttentionDims, attention, reference};
use crate::autograd::check::{Case, Generator};
use crate::tensor::Segments;

const fn dims(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionDims {
    AttentionDims { heads, kv_heads, head_dim }
}

pub fn cases() -> Vec<Case> {
    vec![
        same("no rows", dims(2, 1, 4), &[]),
        same("one token", dims(1, 1, 1), &[1]),
        same("6 query heads on 3, batch 2", dims(6, 3, 5), &[11, 11]),
        same("several segments, empty ones among them", dims(4, 2, 8), &[3, 0, 17, 1, 0]),
        same("a query tile less one", dims(2, 1, 3), &[63]),
        same("a query tile", dims(2, 1, 3), &[64]),
        same("a query tile and one", dims(2, 1, 3), &[65]),
        same("a key tile and one", dims(1, 1, 2), &[129]),
        same("many query heads on one", dims(7, 1, 4), &[37]),
        same("as many key-value heads", dims(3, 3, 7), &[29, 2]),
        of("cached decode", dims(4, 2, 8), &[1, 1, 1], vec![0..7, 7..8, 8..150]),
        of("prefill in chunks", dims(4, 2, 4), &[5, 40], vec![2..19, 30..201]),
        of("more queries than keys", dims(2, 1, 4), &[9, 4, 70], vec![0..3, 3..3, 3..10]),
        of("keys apart, shared and unused", dims(2, 2, 3), &[4, 6], vec![5..15, 2..12]),
    ]
}

/// Self-attention over packed sequences.
fn same(name: &str, dims: AttentionDims, lengths: &[usize]) -> Case {
    let mut start = 0;
    let keys = lengths.iter().map(|n| {
        start += n;
        start - n..start
    });
    of(name, dims, lengths, keys.collect())
}

fn of(name: &str, dims: AttentionDims, lengths: &[usize], keys: Vec<Range<usize>>) -> Case {
    let segments = lengths.iter().scan(0, |end, n| {
        *end += n;
        Some(*end)
    });
    let offsets: Vec<usize> = std::iter::once(0).chain(segments).collect();
    let queries = Segments::from_offsets(&offsets).unwrap_or_else(|| unreachable!("sums of lengths rise"));
    let key_rows = keys.iter().map(|range| range.end).max().unwrap_or(0) + usize::from(keys.len() > 1);
    let (q_dims, kv_dims) = ([queries.rows(), dims.heads * dims.head_dim], [key_rows, dims.kv_heads * dims.head_dim]);
    let mut generator = Generator::new(queries.rows() as u64);
    let inputs = vec![
        generator.normal("q", &q_dims, 1.0),
        generator.normal("k", &kv_dims, 1.0),
        generator.normal("v", &kv_dims, 1.0),
    ];
    let (same_queries, same_keys) = (queries.clone(), keys.clone());
    Case::new(
        name,
        inputs,
        move |tape, v| Ok(vec![attention(tape, &v[0], &v[1], &v[2], &dims, &queries, &keys)?]),
        move |v| vec![reference::attention([&v[0], &v[1], &v[2]], &dims, &same_queries, &same_keys)],
    )
}
