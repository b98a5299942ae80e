use super::{reference, residual_add};
use crate::autograd::Draws;
use crate::autograd::check::{Case, Generator, MaskSpec};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, d) in [(0, 3), (1, 1), (131, 37)] {
        let mut generator = Generator::new(rows as u64);
        let inputs = vec![generator.normal("h", &[rows, d], 1.0), generator.normal("x", &[rows, d], 1.0)];
        cases.push(Case::new(
            format!("{rows} rows of {d}"),
            inputs,
            |tape, v| Ok(vec![residual_add(tape, &v[0], &v[1], None, None)?]),
            move |v| vec![reference::residual_add(&v[0], &v[1], d, |_, _| 1.0)],
        ));
    }
    cases.push(masked_case("hidden mask and layer gate", true, true));
    cases.push(masked_case("hidden mask", true, false));
    cases.push(masked_case("layer gate", false, true));
    cases
}

fn masked_case(name: &str, with_hidden: bool, with_gate: bool) -> Case {
    let (rows, d, draws) = (75, 29, 3);
    let mut generator = Generator::new(9);
    let of_row = Draws::Sequences { length: 25, of_sequence: [2, 0, 1].as_slice().into() };
    let hidden = MaskSpec { ends: vec![7, 20, d], draws: of_row.clone() };
    let gate = MaskSpec { ends: vec![d], draws: of_row };
    let mut gate_keep = generator.uniform("layer keep", &[draws, 1], 0.1, 1.0);
    gate_keep.values[1] = 0.0;
    let inputs = vec![
        generator.normal("h", &[rows, d], 1.0),
        generator.normal("x", &[rows, d], 1.0),
        generator.keep(draws, 3),
        gate_keep,
    ];
    let (ours_hidden, ours_gate) = (hidden.clone(), gate.clone());
    Case::new(
        name,
        inputs,
        move |tape, v| {
            let hidden = with_hidden.then(|| ours_hidden.mask(&v[2])).transpose()?;
            let gate = with_gate.then(|| ours_gate.mask(&v[3])).transpose()?;
            Ok(vec![residual_add(tape, &v[0], &v[1], hidden.as_ref(), gate.as_ref())?])
        },
        move |v| {
            vec![reference::residual_add(&v[0], &v[1], d, |row, j| {
                let m = if with_hidden { hidden.value(&v[2], row, j) } else { 1.0 };
                m * if with_gate { gate.value(&v[3], row, j) } else { 1.0 }
            })]
        },
    )
}
