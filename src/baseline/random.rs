//! Architectures that chance prefers.

use crate::Result;
use crate::cost::Resource;
use crate::numerics::Philox;
use crate::search::{log_probabilities, repair};
use crate::supernet::{Choice, SearchSpace};

/// Far from the streams of a search's steps with the same seed.
const STREAM: u64 = 1 << 62;

/// The repair of standard normal logits: within every limit and, where an architecture can, with a ρ of 1 − `delta` or more.
/// The same for the same seed.
///
/// # Errors
/// Those of [`repair`](crate::search::repair()): no architecture within the limits, resources of another space.
pub fn random(space: &SearchSpace, resources: &[Resource], delta: f64, seed: u64) -> Result<Choice> {
    let logits = |(g, candidates): (usize, usize)| -> Vec<f32> {
        let noise = Philox::new(seed, STREAM + g as u64);
        (0..candidates as u64).map(|c| noise.normal(c) as f32).collect()
    };
    let gates = space.gates.iter().map(|gate| gate.candidates.len()).enumerate();
    let preferred: Vec<Vec<f64>> = gates.map(|gate| log_probabilities(&logits(gate), 1.0)).collect();
    Ok(repair(space, &preferred, resources, delta)?.choice)
}
