use std::sync::Arc;

use super::{grouped_gemm, reference};
use crate::autograd::check::{Case, Generator};

pub fn cases() -> Vec<Case> {
    vec![
        case("uneven groups, some empty", &[16, 0, 257, 44, 0, 8], 0, 24, 40),
        case("no tokens", &[0, 0, 0], 0, 5, 7),
        case("one token", &[0, 1], 0, 1, 1),
        case("padding rows behind the last offset", &[5, 0, 9], 6, 13, 11),
        case("weight gradient in several blocks", &[3, 150], 0, 17, 311),
    ]
}

fn case(name: &str, groups: &[usize], padding: usize, inner: usize, out: usize) -> Case {
    let mut generator = Generator::new(groups.len() as u64);
    let offsets: Arc<[usize]> = std::iter::once(0)
        .chain(groups.iter().scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        }))
        .collect();
    let rows = offsets[groups.len()] + padding;
    let inputs =
        vec![generator.normal("x", &[rows, inner], 1.0), generator.normal("weight", &[groups.len(), out, inner], 0.2)];
    let ours = offsets.clone();
    Case::new(
        name,
        inputs,
        move |tape, v| Ok(vec![grouped_gemm(tape, &v[0], &v[1], &ours)?]),
        move |v| vec![reference::grouped_gemm(&v[0], &v[1], &offsets, inner, out, rows)],
    )
}
