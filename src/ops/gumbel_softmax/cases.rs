use super::{gumbel_noise, gumbel_softmax, reference};
use crate::autograd::check::{Case, Generator};

pub fn cases() -> Vec<Case> {
    [(1, 1, 1.0, 1.0), (3, 5, 1.0, 1.0), (4, 2, 10.0, 0.5), (32, 6, 3.0, 0.2), (0, 3, 1.0, 1.0)]
        .into_iter()
        .map(|(draws, candidates, kappa, tau)| {
            let inputs = vec![Generator::new(candidates as u64).normal("logits", &[candidates], 0.3)];
            let noise = gumbel_noise(1, 2, 3, draws, candidates);
            let wide: Vec<f64> = noise.f32().iter().map(|g| f64::from(*g)).collect();
            Case::new(
                format!("{draws} draws of {candidates} candidates, κ {kappa}, τ {tau}"),
                inputs,
                move |tape, v| Ok(vec![gumbel_softmax(tape, &v[0], &noise, kappa, tau)?]),
                move |v| vec![reference::gumbel_softmax(&v[0], &wide, f64::from(kappa), f64::from(tau))],
            )
        })
        .collect()
}
