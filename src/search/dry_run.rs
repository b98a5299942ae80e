//! A search without a model: what its limits alone make of the router.

use super::job::SearchOptions;
use super::objective::budget_penalty;
use super::router::{Router, argmax, log_probabilities};
use crate::Result;
use crate::autograd::{Gradients, Params, Tape, Var};
use crate::cost::Resource;
use crate::ops::adamw::{self, Moments};
use crate::ops::gumbel_softmax::{gumbel_noise, gumbel_softmax};
use crate::supernet::{Choice, SearchSpace};
use crate::train::Options;

/// What a dry run came to.
#[derive(Clone, Debug)]
pub struct DryRun {
    pub steps: u64,
    /// Cost over limit, per resource: the mean over the draws of the first step, and of the last.
    pub rho: [Vec<f64>; 2],
    /// The largest logit of every gate.
    pub leading: Choice,
    /// Per gate ln softmax(κ·z): what the repair reads.
    pub log_probabilities: Vec<Vec<f64>>,
}

/// Trains the router of a search with the penalty for missing the limits and nothing else, step by step as the search would,
/// draws and learning rates included. Which of the architectures within the limits is good, no limit tells. `done` hears of
/// every step.
///
/// # Errors
/// [`Error::Contract`](crate::Error::Contract) where a resource belongs to another space; [`Error::Usage`](crate::Error::Usage)
/// where an option is out of range.
pub fn dry_run(
    space: &SearchSpace,
    resources: &[Resource],
    options: &SearchOptions,
    training: &Options,
    done: &mut dyn FnMut(u64),
) -> Result<DryRun> {
    options.check()?;
    let candidates: Vec<usize> = space.gates.iter().map(|gate| gate.candidates.len()).collect();
    let mut params = Params::default();
    let router = Router::new(&mut params, &candidates, options.router, training.seed);
    let mut moments = Moments::new(&params)?;
    let mut rho = [Vec::new(), Vec::new()];
    for step in 0..training.steps {
        router.set_rate(&mut params, step);
        let tape = Tape::new();
        let (kappa, tau) = (options.annealing.kappa(step), options.annealing.tau(step));
        let draw = |(gate, count): (usize, &usize)| -> Result<Var> {
            let noise = gumbel_noise(training.seed, step, gate, options.draws, *count);
            gumbel_softmax(&tape, &router.logits(&tape, &params, gate)?, &noise, kappa, tau)
        };
        let y = candidates.iter().enumerate().map(draw).collect::<Result<Vec<Var>>>()?;
        let (loss, penalty) = budget_penalty(&tape, resources, &y, &options.budget)?;
        rho[usize::from(step > 0)] = penalty.rho;
        let mut grads = Gradients::new(&params);
        tape.backward(&loss, 1.0, &mut grads)?;
        let norm = adamw::global_norm(grads.iter())?;
        let rate = training.schedule.at(step);
        adamw::step(&mut params, &grads, &mut moments, rate, (norm, training.max_norm), &training.optimizer)?;
        done(step + 1);
    }
    if training.steps == 1 {
        rho[1] = rho[0].clone();
    }
    let logits = router.values(&params)?;
    let kappa = options.annealing.kappa(training.steps.saturating_sub(1));
    Ok(DryRun {
        steps: training.steps,
        rho,
        leading: Choice(logits.iter().map(|z| argmax(z)).collect()),
        log_probabilities: logits.iter().map(|z| log_probabilities(z, kappa)).collect(),
    })
}
