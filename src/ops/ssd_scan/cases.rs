use super::reference::{self, Inputs};
use super::{ScanOptions, ssd_scan};
use crate::autograd::Draws;
use crate::autograd::check::{Case, Generator, MaskSpec};
use crate::tensor::Segments;

struct Spec {
    dims: reference::Dims,
    chunk: usize,
    limit: (f32, f32),
    offsets: Vec<usize>,
    final_state: bool,
    mask: Option<MaskSpec>,
}

pub fn cases() -> Vec<Case> {
    let free = (0.0, f32::INFINITY);
    let plain = |dims, chunk, offsets: &[usize]| Spec {
        dims,
        chunk,
        limit: free,
        offsets: offsets.to_vec(),
        final_state: false,
        mask: None,
    };
    let draws = Draws::Sequences { length: 14, of_sequence: [1, 2, 0].as_slice().into() };
    let mask = MaskSpec { ends: vec![1, 2, 3], draws };
    vec![
        case("no rows", plain((2, 3, 1, 4), 4, &[0, 0])),
        case("one token", plain((1, 1, 1, 1), 4, &[0, 1])),
        case("a chunk and a token", plain((4, 3, 2, 5), 8, &[0, 9])),
        case("packed, one segment empty, one of one token", plain((4, 5, 2, 3), 7, &[0, 13, 13, 14, 40])),
        case("carried state", Spec { final_state: true, ..plain((4, 3, 2, 5), 8, &[0, 5, 22]) }),
        case("clamped time steps", Spec { limit: (0.3, 0.9), ..plain((2, 4, 2, 3), 5, &[0, 17]) }),
        case("head masks", Spec { mask: Some(mask), ..plain((6, 3, 2, 4), 5, &[0, 14, 28, 42]) }),
        case("longer than any block", plain((2, 3, 1, 4), 64, &[0, 131])),
    ]
}

fn case(name: &str, spec: Spec) -> Case {
    let (heads, p, groups, n) = spec.dims;
    let segments = Segments::from_offsets(&spec.offsets).unwrap_or_else(|| unreachable!("offsets of a case"));
    let rows = segments.rows();
    let mut generator = Generator::new((rows + heads) as u64);
    let mut inputs = vec![
        generator.normal("xbc", &[rows, heads * p + 2 * groups * n], 1.0),
        generator.normal("dt", &[rows, heads], 1.0),
        generator.uniform("a_log", &[heads], -1.0, 1.0),
        generator.normal("d", &[heads], 1.0),
        generator.normal("dt_bias", &[heads], 0.5),
        generator.normal("initial", &[segments.count(), heads, p, n], 1.0),
    ];
    if let Some(mask) = &spec.mask {
        inputs.push(generator.keep(3, mask.ends.len()));
    }
    let (our_segments, our_mask) = (segments.clone(), spec.mask.clone());
    Case::new(
        name,
        inputs,
        move |tape, v| {
            let mask = our_mask.as_ref().map(|m| m.mask(&v[6])).transpose()?;
            let options = ScanOptions {
                heads,
                head_dim: p,
                groups,
                state: n,
                chunk: spec.chunk,
                dt_limit: spec.limit,
                segments: &our_segments,
                initial: Some(&v[5]),
                mask: mask.as_ref(),
                final_state: spec.final_state,
            };
            let scan = ssd_scan(tape, &v[0], &v[1], &v[2], &v[3], &v[4], &options)?;
            Ok(std::iter::once(scan.y).chain(scan.final_state).collect())
        },
        move |v| {
            let inputs = Inputs { xbc: &v[0], dt: &v[1], a_log: &v[2], d: &v[3], dt_bias: &v[4], initial: &v[5] };
            let mask = |row, h| spec.mask.as_ref().map_or(1.0, |m| m.value(&v[6], row, h));
            let (y, states) = reference::ssd_scan(&inputs, spec.dims, spec.limit, &segments, mask);
            if spec.final_state { vec![y, states] } else { vec![y] }
        },
    )
}
