//! κ and τ over the steps, and the tokens that a search sees.

use autocompress::search::Annealing;

#[test]
fn kappa_rises_linearly_and_tau_falls_geometrically() {
    let annealing = Annealing::default();
    assert_eq!((annealing.kappa(0), annealing.kappa(249)), (1.0, 10.0));
    assert_eq!(annealing.tau(0), 1.0);
    assert!((annealing.tau(249) - 0.05).abs() < 1e-7);
    for step in 0..248 {
        let (a, b, c) = (annealing.kappa(step), annealing.kappa(step + 1), annealing.kappa(step + 2));
        assert!((b - a - (c - b)).abs() < 1e-5 && b > a, "κ at {step}");
        let (a, b, c) = (annealing.tau(step), annealing.tau(step + 1), annealing.tau(step + 2));
        assert!((b / a - c / b).abs() < 1e-5 && b < a, "τ at {step}");
    }
    assert_eq!((annealing.kappa(1000), annealing.tau(1000)), (annealing.kappa(249), annealing.tau(249)));
    let other = Annealing { kappa: [2.0, 3.0], tau: [0.5, 0.125], steps: 3 };
    assert_eq!([0, 1, 2].map(|s| other.kappa(s)), [2.0, 2.5, 3.0]);
    assert_eq!([0, 1, 2].map(|s| other.tau(s)), [0.5, 0.25, 0.125]);
    for steps in [0, 1] {
        let one = Annealing { steps, ..Annealing::default() };
        assert_eq!((one.kappa(0), one.tau(0)), (1.0, 1.0));
    }
}

#[test]
fn the_published_token_counts() {
    for (steps, billions) in [(170u64, 2.85), (249, 4.18), (179, 3.00)] {
        let tokens = (steps * 2_048 * 8_192) as f64 / 1e9;
        assert!((tokens - billions).abs() < 0.005, "{steps} steps: {tokens}");
    }
}
