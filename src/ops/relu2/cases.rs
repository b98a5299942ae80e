use super::{reference, relu2};
use crate::autograd::Draws;
use crate::autograd::check::{Case, Generator, MaskSpec};

const SIZES: [(usize, usize); 5] = [(0, 4), (1, 1), (5, 31), (67, 33), (300, 64)];

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = (SIZES.iter())
        .map(|&(rows, width)| {
            let inputs = vec![Generator::new(rows as u64).normal("x", &[rows, width], 1.0)];
            Case::new(
                format!("{rows} rows of {width}"),
                inputs,
                |tape, v| Ok(vec![relu2(tape, &v[0], None)?]),
                move |v| vec![reference::relu2(&v[0], width, |_, _| 1.0)],
            )
        })
        .collect();
    let sequences = Draws::Sequences { length: 40, of_sequence: [1, 0, 1].as_slice().into() };
    cases.push(with_mask("sequences of two draws, width 0 allowed", 120, 48, vec![0, 16, 32, 48], 2, sequences));
    let scattered = Draws::Rows((0..97).map(|row| row * 7 % 3).collect());
    cases.push(with_mask("rows of three draws in any order", 97, 19, vec![5, 19], 3, scattered));
    cases
}

fn with_mask(name: &str, rows: usize, width: usize, ends: Vec<usize>, draws: usize, of_row: Draws) -> Case {
    let mut generator = Generator::new(rows as u64);
    let spec = MaskSpec { ends, draws: of_row };
    let inputs = vec![generator.normal("x", &[rows, width], 1.0), generator.keep(draws, spec.ends.len())];
    let ours = spec.clone();
    Case::new(
        name,
        inputs,
        move |tape, v| Ok(vec![relu2(tape, &v[0], Some(&ours.mask(&v[1])?))?]),
        move |v| vec![reference::relu2(&v[0], width, |row, i| spec.value(&v[1], row, i))],
    )
}
