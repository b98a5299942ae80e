use super::{gated_group_norm, reference};
use crate::autograd::Draws;
use crate::autograd::check::{Case, Generator, MaskSpec};

const EPS: f32 = 1e-3;

pub fn cases() -> Vec<Case> {
    let draws = |length| Draws::Sequences { length, of_sequence: [1, 2, 0].as_slice().into() };
    vec![
        case("no rows", 0, 4, 2, None),
        case("one row of one group", 1, 3, 1, None),
        case("groups of primes", 67, 33, 3, None),
        case("several blocks", 150, 64, 4, None),
        case("head masks", 30, 36, 2, Some((MaskSpec { ends: vec![2, 4, 6], draws: draws(10) }, 3))),
        case("a draw without any head", 75, 24, 4, Some((MaskSpec { ends: vec![3], draws: draws(25) }, 2))),
    ]
}

fn case(name: &str, rows: usize, width: usize, groups: usize, mask: Option<(MaskSpec, usize)>) -> Case {
    let mut generator = Generator::new((rows + width) as u64);
    let mut inputs = vec![
        generator.normal("y", &[rows, width], 1.0),
        generator.normal("z", &[rows, width], 1.0),
        generator.normal("weight", &[width], 1.0),
    ];
    if let Some((spec, _)) = &mask {
        let mut keep = generator.keep(3, spec.ends.len());
        if spec.ends.len() == 1 {
            // At the edge itself the denominator's difference has no two sides.
            keep.values[2] = 0.0;
            keep.differentiable = false;
        }
        inputs.push(keep);
    }
    let ours = mask.clone();
    Case::new(
        name,
        inputs,
        move |tape, v| {
            let built = ours.as_ref().map(|(spec, p)| Ok::<_, crate::Error>((spec.mask(&v[3])?, *p))).transpose()?;
            let mask = built.as_ref().map(|(mask, p)| (mask, *p));
            Ok(vec![gated_group_norm(tape, &v[0], &v[1], &v[2], groups, EPS, mask)?])
        },
        move |v| {
            let n = |row: usize, group: usize| match &mask {
                None => (width / groups) as f64,
                Some((spec, p)) => {
                    let heads = width / groups / p;
                    let of = |h: usize| spec.value(&v[3], row, group * heads + h);
                    *p as f64 * (0..heads).map(of).sum::<f64>()
                }
            };
            vec![reference::gated_group_norm(&v[0], &v[1], &v[2], groups, f64::from(EPS), n)]
        },
    )
}
