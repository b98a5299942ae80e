use super::{linear, linear_split, reference};
use crate::autograd::check::{Case, Generator};

/// Rows, in, out: empty, one, primes, and sizes that split into several tiles.
const SIZES: [(usize, usize, usize); 6] =
    [(0, 5, 3), (1, 1, 1), (7, 13, 11), (129, 64, 65), (300, 67, 257), (64, 130, 1031)];

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = (SIZES.iter().enumerate())
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
        .collect();
    cases.push(split(33, 19, vec![40, 7, 0, 12]));
    cases
}

fn split(rows: usize, inner: usize, widths: Vec<usize>) -> Case {
    let out: usize = widths.iter().sum();
    let mut generator = Generator::new(99);
    let inputs = vec![generator.normal("x", &[rows, inner], 1.0), generator.normal("weight", &[out, inner], 0.1)];
    let ours = widths.clone();
    Case::new(
        format!("{rows} rows, {inner} → {widths:?}"),
        inputs,
        move |tape, v| linear_split(tape, &v[0], &v[1], &ours),
        move |v| {
            let mut first = 0;
            let part = |width: &usize| {
                let weight = &v[1][first * inner..(first + width) * inner];
                first += width;
                reference::linear(&v[0], weight, inner)
            };
            widths.iter().map(part).collect()
        },
    )
}
