use super::{DistillOptions, Head, TeacherHead, distill_loss, reference};
use crate::autograd::check::{Case, Generator};

struct Size {
    rows: usize,
    vocab: usize,
    d: (usize, usize),
    chunk: usize,
    temperature: f32,
    /// Every how manyth row is valid; 0: none.
    every: usize,
}

const fn size(rows: usize, vocab: usize, d: (usize, usize), chunk: usize, temperature: f32, every: usize) -> Size {
    Size { rows, vocab, d, chunk, temperature, every }
}

const SIZES: [Size; 9] = [
    size(0, 3, (2, 4), 8, 1.0, 1),
    size(1, 1, (1, 1), 1, 1.0, 1),
    size(5, 11, (3, 4), 4, 1.0, 0),
    size(13, 37, (5, 8), 37, 1.0, 1),
    size(13, 37, (5, 8), 36, 1.0, 1),
    size(31, 101, (8, 3), 1000, 0.5, 2),
    size(31, 101, (8, 3), 17, 0.5, 3),
    size(150, 67, (6, 7), 32, 2.0, 1),
    size(11, 1031, (4, 6), 1030, 1.3, 1),
];

pub fn cases() -> Vec<Case> {
    SIZES.iter().enumerate().map(|(seed, size)| case(seed as u64, size)).collect()
}

fn case(seed: u64, size: &Size) -> Case {
    let &Size { rows, vocab, d, chunk, temperature, every } = size;
    let mut generator = Generator::new(seed);
    let mut inputs = vec![
        generator.normal("student hidden", &[rows, d.0], 1.0),
        generator.normal("student weight", &[vocab, d.0], 0.7),
        generator.normal("teacher hidden", &[rows, d.1], 1.0),
        generator.normal("teacher weight", &[vocab, d.1], 0.7),
    ];
    inputs[2..].iter_mut().for_each(|input| input.differentiable = false);
    let valid: Vec<bool> = (0..rows).map(|row| every > 0 && row % every == 0).collect();
    let options = DistillOptions { temperature, vocab_chunk: chunk, ..DistillOptions::default() };
    let same = valid.clone();
    Case::new(
        format!("{rows} rows, every {every}th valid, V {vocab} by {chunk}, d {d:?}, temperature {temperature}"),
        inputs,
        move |tape, v| {
            let student = Head { hidden: &v[0], weight: &v[1] };
            let teacher = TeacherHead { hidden: v[2].value(), weight: v[3].value() };
            Ok(vec![distill_loss(tape, student, teacher, &valid, &options)?])
        },
        move |v| {
            let student = reference::Logits { hidden: &v[0], weight: &v[1], d: d.0 };
            let teacher = reference::Logits { hidden: &v[2], weight: &v[3], d: d.1 };
            vec![vec![reference::distill_loss(student, teacher, &same, f64::from(temperature))]]
        },
    )
}
