use super::{reference, rms_norm};
use crate::autograd::Draws;
use crate::autograd::check::{Case, Generator, MaskSpec};

const EPS: f32 = 1e-3;

/// Rows and width.
const SIZES: [(usize, usize); 6] = [(0, 8), (1, 2), (3, 17), (65, 64), (130, 31), (257, 96)];

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = SIZES.iter().map(|&(rows, d)| plain(rows, d)).collect();
    cases.push(with_mask("two draws, one of them narrow", 10, 24, vec![8, 16, 24], 2, &[1, 0]));
    cases.push(with_mask("three draws of blocks", 135, 33, vec![1, 20, 32, 33], 3, &[0, 2, 1]));
    cases
}

fn plain(rows: usize, d: usize) -> Case {
    let mut generator = Generator::new((rows * 1000 + d) as u64);
    let inputs = vec![generator.normal("x", &[rows, d], 2.0), generator.normal("weight", &[d], 1.0)];
    Case::new(
        format!("{rows} rows of {d}"),
        inputs,
        |tape, v| Ok(vec![rms_norm(tape, &v[0], &v[1], EPS, None)?]),
        move |v| vec![reference::rms_norm(&v[0], &v[1], f64::from(EPS), |_| d as f64)],
    )
}

fn with_mask(name: &str, rows: usize, d: usize, ends: Vec<usize>, draws: usize, of_sequence: &[u32]) -> Case {
    let mut generator = Generator::new(rows as u64);
    let length = rows / of_sequence.len();
    let spec = MaskSpec { ends, draws: Draws::Sequences { length, of_sequence: of_sequence.into() } };
    let inputs = vec![
        generator.normal("x", &[rows, d], 2.0),
        generator.normal("weight", &[d], 1.0),
        generator.keep(draws, spec.ends.len()),
    ];
    let ours = spec.clone();
    Case::new(
        name,
        inputs,
        move |tape, v| Ok(vec![rms_norm(tape, &v[0], &v[1], EPS, Some(&ours.mask(&v[2])?))?]),
        move |v| vec![reference::rms_norm(&v[0], &v[1], f64::from(EPS), |row| spec.total(&v[2], row, d))],
    )
}
