use super::{AdamWOptions, Update, adamw, reference};
use crate::autograd::Var;
use crate::autograd::check::{Case, Generator, Input};

pub fn cases() -> Vec<Case> {
    [(0, 1, 1.0, true), (1, 1, 0.3, false), (1000, 7, 1.0, true), (70_001, 100_000, 0.01, true)]
        .into_iter()
        .map(|(size, update, scale, decay)| case(size, update, scale, decay))
        .collect()
}

fn case(size: usize, update: u64, scale: f32, decay: bool) -> Case {
    let mut generator = Generator::new(size as u64);
    let inputs = vec![
        generator.normal("value", &[size], 1.0),
        generator.normal("grad", &[size], 1.0),
        generator.normal("first moment", &[size], 0.1),
        generator.uniform("second moment", &[size], 0.0, 0.1),
    ];
    // An update is not differentiated.
    let inputs = inputs.into_iter().map(|input| Input { differentiable: false, ..input }).collect();
    let step = move || Update { learning_rate: 1e-3, scale, update, decay };
    Case::new(
        format!("{size} elements, update {update}"),
        inputs,
        move |_, v| {
            let mut state: Vec<_> = v.iter().map(|v| v.value().clone()).collect();
            let [value, grad, first, second] = &mut state[..] else { unreachable!("four inputs") };
            adamw(value, grad, first, second, &step(), &AdamWOptions::default())?;
            Ok([value, first, second].into_iter().map(|t| Var::constant(t.clone())).collect())
        },
        move |v| reference::adamw(&v[0], &v[1], &v[2], &v[3], &step(), &AdamWOptions::default()).to_vec(),
    )
}
