use super::{linear, reference};
use crate::autograd::check::{Case, Generator};

/// Rows, in, out: empty, one, primes, and sizes that split into several tiles.
const SIZES: [(usize, usize, usize); 6] =
    [(0, 5, 3), (1, 1, 1), (7, 13, 11), (129, 64, 65), (300, 67, 257), (64, 130, 1031)];

pub fn cases() -> Vec<Case> {
    SIZES
        .iter()
        .enumerate()
        .map(|(seed, &(rows, inner, out))| {
            let mut generator = Generator::new(seed as u64);
            let inputs =
                vec![generator.normal("x", &[rows, inner], 1.0), generator.normal("weight", &[out, inner], 0.1)];
            Case::new(
                format!("{rows} rows, {inner} → {out}"),
                inputs,
                |tape, v| Ok(vec![linear(tape, &v[0], &v[1])?]),
                move |v| vec![reference::linear(&v[0], &v[1], inner)],
            )
        })
        .collect()
}
