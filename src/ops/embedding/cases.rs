use super::{embedding, reference};
use crate::autograd::Draws;
use crate::autograd::check::{Case, Generator, MaskSpec};

/// Rows, V, d: none, one, primes, more ids than rows and more rows than ids.
const SIZES: [(usize, usize, usize); 5] = [(0, 3, 4), (1, 1, 1), (13, 101, 7), (331, 17, 33), (64, 5, 256)];

fn ids(rows: usize, vocab: usize) -> Vec<u32> {
    (0..rows).map(|row| (row * row * 31 % vocab) as u32).collect()
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = (SIZES.iter())
        .map(|&(rows, vocab, d)| {
            let ids = ids(rows, vocab);
            let same = ids.clone();
            Case::new(
                format!("{rows} ids of {vocab}, d {d}"),
                vec![Generator::new(rows as u64).normal("table", &[vocab, d], 1.0)],
                move |tape, v| Ok(vec![embedding(tape, &ids, &v[0], None)?]),
                move |v| vec![reference::embedding(&same, &v[0], d, |_, _| 1.0)],
            )
        })
        .collect();
    let sequences = Draws::Sequences { length: 50, of_sequence: [1, 0].as_slice().into() };
    cases.push(with_mask("sequences of two draws", 100, 24, vec![8, 16, 24], 2, sequences));
    cases.push(with_mask("one draw, width 0 allowed", 71, 31, vec![0, 31], 1, Draws::One));
    cases
}

fn with_mask(name: &str, rows: usize, d: usize, ends: Vec<usize>, draws: usize, of_row: Draws) -> Case {
    let vocab = 19;
    let mut generator = Generator::new(rows as u64);
    let spec = MaskSpec { ends, draws: of_row };
    let inputs = vec![generator.normal("table", &[vocab, d], 1.0), generator.keep(draws, spec.ends.len())];
    let (ids, ours) = (ids(rows, vocab), spec.clone());
    let same = ids.clone();
    Case::new(
        name,
        inputs,
        move |tape, v| Ok(vec![embedding(tape, &ids, &v[0], Some(&ours.mask(&v[1])?))?]),
        move |v| vec![reference::embedding(&same, &v[0], d, |row, j| spec.value(&v[1], row, j))],
    )
}
