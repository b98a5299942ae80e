//! Penalties and their gradients.

use autocompress::autograd::{Tape, Var};
use autocompress::cost::Resource;
use autocompress::search::{Budget, Slack, budget_penalty};
use autocompress::supernet::Axis;
use autocompress::tensor::Tensor;

use crate::instances::{Random, bare_space, paged, random_resource};

const EACH: Budget = Budget { alpha: 1.0, delta: 0.02, slack: Slack::Each };
const BINDING: Budget = Budget { slack: Slack::Binding, ..EACH };

#[test]
fn only_the_band_is_free() {
    for (rho, value, slope) in [(0.97, 0.01, -1.0), (0.981, 0.0, 0.0), (1.0, 0.0, 0.0), (1.25, 0.25, 1.0)] {
        for budget in [EACH, BINDING] {
            let (got, slopes) = budget.penalty(&[rho]);
            assert!((got - value).abs() < 1e-12 && slopes == [slope], "ρ {rho}: {got} {slopes:?}");
        }
    }
}

#[test]
fn slack_of_each_limit_or_of_the_one_that_binds() {
    // Latency binds, memory has room.
    let (each, slope) = EACH.penalty(&[0.99, 0.5]);
    assert!((each - 0.48).abs() < 1e-12 && slope == [0.0, -1.0]);
    assert_eq!(BINDING.penalty(&[0.99, 0.5]), (0.0, vec![0.0, 0.0]));
    let (binding, slope) = BINDING.penalty(&[0.9, 0.5]);
    assert!((binding - 0.08).abs() < 1e-12 && slope == [-1.0, 0.0]);
    let (both, slope) = EACH.penalty(&[1.5, 1.25]);
    assert!((both - 0.75).abs() < 1e-12 && slope == [1.0, 1.0]);
    assert_eq!(EACH.penalty(&[]), (0.0, vec![]));
    assert_eq!(BINDING.penalty(&[]), (0.0, vec![]));
}

/// The mean over draws of what the formula says, in f64.
fn reference(resources: &[Resource], y: &[Vec<Vec<f64>>], budget: &Budget) -> f64 {
    let draw = |y: &Vec<Vec<f64>>| {
        let rho: Vec<f64> = resources.iter().map(|r| r.expectation(y).0 / r.limit).collect();
        budget.alpha * budget.penalty(&rho).0
    };
    y.iter().map(draw).sum::<f64>() / y.len() as f64
}

#[test]
fn gradients_are_differences() {
    let layers = [vec![(Axis::Experts, 3), (Axis::Routed, 3), (Axis::Shared, 2)], vec![(Axis::KeepMamba, 2)]];
    let space = bare_space(&[(Axis::Hidden, 3)], &layers, true);
    let mut seen = 0;
    for seed in 0..12 {
        let mut random = Random::new(seed, 4);
        let latency = random_resource(&space, &mut random, 0, true, "a");
        let memory = random_resource(&space, &mut random, 2, false, "b");
        let mut resources = vec![latency, paged(&space, &mut random, memory)];
        for resource in &mut resources {
            resource.limit = resource.cost(&space.parent_choice().0) * (0.3 + 0.6 * random.uniform());
        }
        const DRAWS: usize = 3;
        let y: Vec<Tensor> = (space.gates.iter())
            .map(|gate| {
                let c = gate.candidates.len();
                let mut y: Vec<f32> = (0..DRAWS * c).map(|_| 0.05 + random.uniform() as f32).collect();
                for row in y.chunks_mut(c) {
                    let total: f32 = row.iter().sum();
                    row.iter_mut().for_each(|y| *y /= total);
                }
                Tensor::from_slice([DRAWS, c], &y)
            })
            .collect();
        let exact: Vec<Vec<Vec<f64>>> = (0..DRAWS)
            .map(|draw| {
                let row = |y: &Tensor| {
                    let c = y.dims()[1];
                    y.f32()[draw * c..][..c].iter().map(|y| f64::from(*y)).collect()
                };
                y.iter().map(row).collect()
            })
            .collect();
        for budget in [Budget { alpha: 0.3, ..EACH }, Budget { alpha: 1.7, ..BINDING }] {
            let tape = Tape::new();
            let leaves: Vec<Var> = y.iter().map(|y| tape.leaf(y.clone())).collect();
            let (loss, penalty) = budget_penalty(&tape, &resources, &leaves, &budget).unwrap();
            assert!((penalty.value - reference(&resources, &exact, &budget)).abs() < 1e-12);
            assert!((f64::from(loss.value().item()) - penalty.value).abs() < 1e-6);
            for (r, resource) in resources.iter().enumerate() {
                let mean = exact.iter().map(|y| resource.expectation(y).0 / resource.limit).sum::<f64>() / DRAWS as f64;
                assert!((penalty.rho[r] - mean).abs() < 1e-12);
            }
            // Twice the loss, as a micro-batch's share would scale it.
            let grads = tape.backward(&loss, 2.0, &mut ()).unwrap();
            for (g, leaf) in leaves.iter().enumerate() {
                let c = space.gates[g].candidates.len();
                let got = grads.take(leaf).unwrap();
                for at in 0..DRAWS * c {
                    let moved = |by: f64| {
                        let mut y = exact.clone();
                        y[at / c][g][at % c] += by;
                        reference(&resources, &y, &budget)
                    };
                    let difference = 2.0 * (moved(1e-6) - moved(-1e-6)) / 2e-6;
                    let got = f64::from(got.f32()[at]);
                    assert!((got - difference).abs() < 1e-5 * (1.0 + difference.abs()), "{got} {difference}");
                    seen += usize::from(difference.abs() > 1e-3);
                }
            }
        }
    }
    assert!(seen > 200, "{seen}");
}

#[test]
fn draws_of_another_space_are_refused() {
    let space = bare_space(&[(Axis::Hidden, 3)], &[vec![(Axis::KeepMamba, 2)]], true);
    let mut random = Random::new(1, 4);
    let resource = [random_resource(&space, &mut random, 0, true, "latency")];
    let y = [Var::constant(Tensor::zeros([1, 3])), Var::constant(Tensor::zeros([1, 3]))];
    let error = budget_penalty(&Tape::new(), &resource, &y, &EACH).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("latency"), "{error}");
}
