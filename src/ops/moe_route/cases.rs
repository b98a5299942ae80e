use super::{RouteOptions, moe_route, reference};
use crate::autograd::Draws;
use crate::autograd::check::{Case, Generator, MaskSpec};
use crate::tensor::Tensor;

fn options(top_k: usize, n_group: usize, topk_group: usize, norm_topk_prob: bool) -> RouteOptions {
    RouteOptions { top_k, n_group, topk_group, norm_topk_prob, routed_scaling_factor: 2.5 }
}

pub fn cases() -> Vec<Case> {
    vec![
        case("no rows", 0, 4, options(2, 1, 1, true), None),
        case("one expert", 3, 1, options(1, 1, 1, false), None),
        case("every expert", 5, 7, options(7, 1, 1, true), None),
        case("16 experts, top 2", 130, 16, options(2, 1, 1, true), None),
        case("weights not normalised", 33, 12, options(3, 1, 1, false), None),
        case("two of four groups", 65, 24, options(4, 4, 2, true), None),
        case("score mask, three draws", 60, 16, options(2, 1, 1, true), Some(vec![4, 8, 16])),
        case("score mask within routing groups", 60, 24, options(3, 4, 2, true), Some(vec![2, 4, 6])),
    ]
}

fn case(name: &str, rows: usize, experts: usize, o: RouteOptions, ends: Option<Vec<usize>>) -> Case {
    let mut generator = Generator::new((rows * 100 + experts) as u64);
    let bias = generator.values(experts, |noise, i| 0.2 * noise.normal(i));
    let draws = Draws::Sequences { length: 20, of_sequence: [1, 2, 0].as_slice().into() };
    let spec = ends.map(|ends| MaskSpec { ends, draws });
    let mut inputs = vec![generator.normal("logits", &[rows, experts], 1.0)];
    if let Some(spec) = &spec {
        inputs.push(generator.keep(3, spec.ends.len()));
    }
    let (ours, our_bias) = (spec.clone(), bias.clone());
    Case::new(
        name,
        inputs,
        move |tape, v| {
            let mask = ours.as_ref().map(|spec| spec.mask(&v[1])).transpose()?;
            let bias = Tensor::from_slice([experts], &our_bias);
            Ok(vec![moe_route(tape, &v[0], &bias, o, mask.as_ref())?.weights])
        },
        move |v| {
            let bias: Vec<f64> = bias.iter().map(|b| f64::from(*b)).collect();
            let m = |row, e| spec.as_ref().map_or(1.0, |spec| spec.value(&v[1], row, e));
            vec![reference::moe_route(&v[0], &bias, &o, m).0]
        },
    )
}
