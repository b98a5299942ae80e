use super::super::moe_permute::{Dispatch, cases::scattered};
use super::{moe_combine, reference};
use crate::autograd::Draws;
use crate::autograd::check::{Case, Generator, MaskSpec};

pub fn cases() -> Vec<Case> {
    vec![
        case("no tokens", 0, 4, (2, 3), 0, None),
        case("one token, one expert", 1, 1, (1, 1), 0, None),
        case("top 2 of 8", 37, 19, (2, 8), 0, None),
        case("dropped pairs", 65, 33, (3, 16), 7, None),
        case("output mask of three draws", 60, 21, (2, 12), 0, Some(vec![4, 8, 12])),
        case("output mask within routing groups, dropped pairs", 60, 10, (3, 12), 11, Some(vec![1, 2, 3])),
    ]
}

fn case(
    name: &str,
    tokens: usize,
    width: usize,
    (top_k, count): (usize, usize),
    drop_every: usize,
    ends: Option<Vec<usize>>,
) -> Case {
    let mut generator = Generator::new((tokens + count) as u64);
    let experts = scattered(tokens, top_k, count, drop_every);
    let rows = experts.iter().filter(|e| **e != u32::MAX).count();
    let draws = Draws::Sequences { length: 20, of_sequence: [1, 2, 0].as_slice().into() };
    let spec = ends.map(|ends| MaskSpec { ends, draws });
    let mut inputs =
        vec![generator.normal("y", &[rows, width], 1.0), generator.uniform("weights", &[tokens, top_k], 0.1, 1.0)];
    if let Some(spec) = &spec {
        inputs.push(generator.keep(3, spec.ends.len()));
    }
    let (ours, our_experts) = (spec.clone(), experts.clone());
    Case::new(
        name,
        inputs,
        move |tape, v| {
            let mask = ours.as_ref().map(|spec| spec.mask(&v[2])).transpose()?;
            let dispatch = Dispatch::new(&our_experts, top_k, count)?;
            Ok(vec![moe_combine(tape, &v[0], &v[1], &dispatch, mask.as_ref())?])
        },
        move |v| {
            let m = |row, e| spec.as_ref().map_or(1.0, |spec| spec.value(&v[2], row, e));
            vec![reference::moe_combine(&v[0], &v[1], width, &experts, top_k, m)]
        },
    )
}
