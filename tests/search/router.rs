//! The router's start, its gradients, and its learning rate.

use autocompress::autograd::{Gradients, Params, Tape};
use autocompress::numerics::Philox;
use autocompress::ops::adamw::{self, AdamWOptions, Moments};
use autocompress::search::{Router, RouterOptions, log_probabilities, probabilities};
use autocompress::tensor::Tensor;

const CANDIDATES: [usize; 3] = [4, 2, 5];

fn router(options: RouterOptions) -> (Params, Router) {
    let mut params = Params::default();
    let router = Router::new(&mut params, &CANDIDATES, options, 3);
    (params, router)
}

#[test]
fn all_candidates_start_equal() {
    let (params, router) = router(RouterOptions::default());
    for (z, c) in router.values(&params).unwrap().iter().zip(CANDIDATES) {
        assert_eq!(*z, vec![0.0; c]);
        assert!(probabilities(z, 7.0).iter().all(|p| (p - 1.0 / c as f64).abs() < 1e-12));
    }
    assert!((0..3).all(|gate| !router.has_moved(&params, gate)));
}

#[test]
fn a_random_start_prefers_some() {
    let (params, router) = router(RouterOptions { output_std: 0.5, ..RouterOptions::default() });
    assert!(router.values(&params).unwrap().iter().all(|z| z.iter().any(|v| *v != z[0])));
}

#[test]
fn log_probabilities_are_those_of_scaled_logits() {
    let p = log_probabilities(&[1.0, -2.0, 500.0], 2.0);
    assert!((p[0] + 998.0).abs() < 1e-9 && (p[1] + 1004.0).abs() < 1e-9 && p[2].abs() < 1e-9);
    let p = probabilities(&[0.0, 1.0], 3.0);
    assert!((p[1] - 1.0 / (1.0 + (-3.0f64).exp())).abs() < 1e-12 && (p[0] + p[1] - 1.0).abs() < 1e-12);
}

/// Derivatives of Σ w·z along random directions of all parameters against differences.
#[test]
fn gradients_are_differences() {
    let (params, router) = router(RouterOptions { output_std: 0.3, ..RouterOptions::default() });
    let weights: Vec<Vec<f32>> =
        (0..3).map(|g| (0..CANDIDATES[g]).map(|c| (g + 2 * c) as f32 - 3.0).collect()).collect();
    let tape = Tape::new();
    let z: Vec<_> = (0..3).map(|g| router.logits(&tape, &params, g).unwrap()).collect();
    let mut grads = Gradients::new(&params);
    let seeds = weights.iter().map(|w| Tensor::from_slice([w.len()], w)).collect();
    tape.backward_from(&z, seeds, &mut grads).unwrap();
    for (id, param) in params.iter() {
        let noise = Philox::new(9, id.0 as u64);
        let direction: Vec<f32> = (0..param.value.numel() as u64).map(|i| noise.normal(i) as f32 / 8.0).collect();
        let along: f64 = grads.get(id).unwrap().f32().iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
        let loss = |by: f32| -> f64 {
            let mut moved = params.clone();
            moved.get_mut(id).value.f32_mut().iter_mut().zip(&direction).for_each(|(v, d)| *v += by * d);
            let z = router.values(&moved).unwrap();
            z.iter().flatten().zip(weights.iter().flatten()).map(|(z, w)| f64::from(*z) * f64::from(*w)).sum()
        };
        let difference = (loss(0.02) - loss(-0.02)) / 0.04;
        assert!((along - difference).abs() < 2e-2 * (1.0 + difference.abs()), "{}: {along} {difference}", param.name);
    }
}

#[test]
fn a_parameter_has_its_own_rate() {
    let (mut params, router) = router(RouterOptions { rate: 4.0, warmup_steps: 2, ..RouterOptions::default() });
    let rates = |params: &Params| params.iter().map(|(_, p)| p.rate).collect::<Vec<f32>>();
    router.set_rate(&mut params, 0);
    assert!(rates(&params).iter().all(|rate| *rate == 2.0));
    router.set_rate(&mut params, 1);
    assert!(rates(&params).iter().all(|rate| *rate == 4.0));
    // The first step of AdamW moves every element with a gradient by the rate itself.
    let tape = Tape::new();
    let z = router.logits(&tape, &params, 1).unwrap();
    let mut grads = Gradients::new(&params);
    tape.backward_from(&[z], vec![Tensor::from_slice([2], &[1.0f32, -1.0])], &mut grads).unwrap();
    let before = params.clone();
    let mut moments = Moments::new(&params).unwrap();
    adamw::step(&mut params, &grads, &mut moments, 1e-3, (1.0, 1.0), &AdamWOptions::default()).unwrap();
    assert_eq!((0..3).map(|gate| router.has_moved(&params, gate)).collect::<Vec<_>>(), [false, true, false]);
    let id = params.find("router.output.1.weight").unwrap();
    let moved = params.get(id).value.f32().iter().zip(before.get(id).value.f32()).map(|(a, b)| (a - b).abs());
    let largest = moved.fold(0.0, f32::max);
    assert!((largest - 4e-3).abs() < 1e-5, "{largest}");
}
