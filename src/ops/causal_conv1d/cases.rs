use super::{causal_conv1d, reference};
use crate::autograd::check::{Case, Generator};
use crate::tensor::{Segments, Tensor};

pub fn cases() -> Vec<Case> {
    vec![
        case("no rows", (5, 4), &[0, 0], true, false),
        case("one row", (1, 4), &[0, 1], true, false),
        case("kernel of one", (3, 1), &[0, 5], true, true),
        case("segments shorter than the kernel", (19, 4), &[0, 1, 1, 3, 40], true, false),
        case("carried inputs", (7, 3), &[0, 1, 9], true, true),
        case("no bias, several blocks", (33, 4), &[0, 65, 200], false, false),
    ]
}

fn case(name: &str, (channels, kernel): (usize, usize), offsets: &[usize], with_bias: bool, carried: bool) -> Case {
    let segments = Segments::from_offsets(offsets).unwrap_or_else(|| unreachable!("offsets of a case"));
    let mut generator = Generator::new(segments.rows() as u64);
    let state = [segments.count(), kernel - 1, channels];
    let initial = generator.values(state.iter().product(), |noise, i| noise.normal(i));
    let inputs = vec![
        generator.normal("x", &[segments.rows(), channels], 1.0),
        generator.normal("weight", &[channels, kernel], 0.5),
        generator.normal("bias", &[if with_bias { channels } else { 0 }], 0.5),
    ];
    let (ours, our_initial) = (segments.clone(), Tensor::from_slice(state, &initial));
    Case::new(
        name,
        inputs,
        move |tape, v| {
            let (bias, initial) = (with_bias.then_some(&v[2]), carried.then_some(&our_initial));
            Ok(vec![causal_conv1d(tape, &v[0], &v[1], bias, &ours, initial)?])
        },
        move |v| {
            let initial: Vec<f64> = if carried { initial.iter().map(|x| f64::from(*x)).collect() } else { Vec::new() };
            vec![reference::causal_conv1d(&v[0], &v[1], &v[2], &initial, (channels, kernel), &segments)]
        },
    )
}
