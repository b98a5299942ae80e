use super::{NOT_COUNTED, cross_entropy, reference};
use crate::autograd::check::{Case, Generator};

/// Rows, V, d, and every how manyth row counts (0: none).
const SIZES: [(usize, usize, usize, usize); 8] = [
    (0, 5, 3, 1),
    (1, 1, 1, 1),
    (7, 13, 5, 0),
    (17, 31, 8, 1),
    (101, 67, 16, 3),
    (33, 129, 17, 1),
    (300, 48, 7, 2),
    (9, 1031, 4, 1),
];

pub fn cases() -> Vec<Case> {
    SIZES
        .iter()
        .map(|&(rows, vocab, d, every)| {
            let mut generator = Generator::new(rows as u64);
            let inputs = vec![generator.normal("hidden", &[rows, d], 1.0), generator.normal("head", &[vocab, d], 0.7)];
            let target = |row: usize| match every {
                0 => NOT_COUNTED,
                n if !row.is_multiple_of(n) => NOT_COUNTED,
                _ => (row * 7919 % vocab) as u32,
            };
            let targets: Vec<u32> = (0..rows).map(target).collect();
            let same = targets.clone();
            let counted = targets.iter().filter(|t| **t != NOT_COUNTED).count();
            Case::new(
                format!("{rows} rows, {counted} counted, V {vocab}, d {d}"),
                inputs,
                move |tape, v| Ok(vec![cross_entropy(tape, &v[0], &v[1], &targets)?]),
                move |v| vec![vec![reference::cross_entropy(&v[0], &v[1], &same, d)]],
            )
        })
        .collect()
}
