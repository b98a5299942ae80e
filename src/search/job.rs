//! The search as a training job.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::objective::{Budget, Penalty, budget_penalty};
use super::router::{Router, RouterOptions, argmax, log_probabilities, probabilities};
use super::schedule::Annealing;
use super::state::{GateState, SearchState, axis_norms};
use super::token_share::{TokenShare, token_shares};
use crate::autograd::transfer::to_gpu;
use crate::autograd::{Draws, Gradients, Params, Tape, Var};
use crate::cost::Resource;
use crate::data::Batch;
use crate::device::Place;
use crate::model::{self, ExpertMasking, Lm, Output, Purpose};
use crate::ops::distill_loss::DistillOptions;
use crate::ops::gumbel_softmax::{gumbel_noise, gumbel_softmax};
use crate::supernet::{Axis, Choice, SearchSpace};
use crate::tensor::Tensor;
use crate::train::{Distilled, Job, StepState, Student, distillation};
use crate::{Error, Result};

/// What a search trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trained {
    /// The router and the supernet's weights together.
    #[default]
    Joint,
    /// The router alone: the weights stay the parent's and are held once.
    Router,
}

#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    pub annealing: Annealing,
    pub budget: Budget,
    pub router: RouterOptions,
    /// n, independent draws of a step; divides its sequences.
    pub draws: usize,
    pub train: Trained,
    pub expert_masking: ExpertMasking,
    pub distill: DistillOptions,
    pub recompute: bool,
    /// The leading probability of every gate that ends the search, where the leading architecture costs what the budget
    /// asks for.
    pub converged_at: f64,
    /// Whether each step counts which experts the supernet's tokens go to, for its line of metrics.
    pub token_shares: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        SearchOptions {
            annealing: Annealing::default(),
            budget: Budget::default(),
            router: RouterOptions::default(),
            draws: 32,
            train: Trained::Joint,
            expert_masking: ExpertMasking::Output,
            distill: DistillOptions::default(),
            recompute: false,
            converged_at: 0.95,
            token_shares: false,
        }
    }
}

impl SearchOptions {
    /// Refuses values out of range ([`Error::Usage`], naming the key of a recipe).
    pub fn check(&self) -> Result<()> {
        let fault = |key: &str, found: String, expected: &str| {
            Err(Error::Usage(format!("{key}: found {found}, expected {expected}")))
        };
        let Annealing { kappa, tau, .. } = self.annealing;
        if !kappa.iter().chain(&tau).all(|v| v.is_finite() && *v > 0.0) {
            return fault("kappa, tau", format!("{kappa:?}, {tau:?}"), "finite numbers above 0");
        }
        let Budget { alpha, delta, .. } = self.budget;
        if !(alpha.is_finite() && alpha >= 0.0) {
            return fault("alpha", alpha.to_string(), "a finite number, at least 0");
        }
        if !(0.0..1.0).contains(&delta) {
            return fault("delta", delta.to_string(), "at least 0, below 1");
        }
        let RouterOptions { width, output_std, rate, .. } = self.router;
        if width == 0 || self.draws == 0 {
            return fault("router.width, draws", format!("{width}, {}", self.draws), "at least 1");
        }
        if !(output_std.is_finite() && output_std >= 0.0 && rate.is_finite() && rate >= 0.0) {
            return fault(
                "router.output_std, router.rate",
                format!("{output_std}, {rate}"),
                "finite numbers, at least 0",
            );
        }
        if !(self.converged_at > 0.5 && self.converged_at < 1.0) {
            return fault("converged_at", self.converged_at.to_string(), "above 0.5 and below 1");
        }
        self.distill.check()
    }
}

/// Searches for the architecture of `space` whose masked supernet stays closest to its parent within the limits.
///
/// The step's sequence s belongs to draw s mod n, so that micro-batches of any size give the step of one batch.
pub struct Search<'p> {
    /// The sorted parent, frozen: the teacher.
    parent: &'p Lm,
    space: &'p SearchSpace,
    resources: &'p [Resource],
    options: SearchOptions,
    /// The parent's weights, its own once they are trained.
    supernet: Lm,
    router: Router,
    /// The router's parameters where they are trained alone; else they are among the supernet's.
    alone: Option<Params>,
    step: Option<StepSums>,
    state: Option<SearchState>,
    /// The parent on the GPU that the supernet is on. The router, whose results every step looks at, stays on the host.
    placed: Option<(Place, Lm)>,
}

/// What is the same for all micro-batches of a step, and what adds up over them.
struct StepSums {
    step: u64,
    /// Per gate [draws, C].
    noise: Vec<Tensor>,
    penalty: Penalty,
    /// Per gate, of the budget penalty by the logits.
    budget: Vec<Tensor>,
    /// Per gate, of the distillation loss by the logits, and that loss.
    distillation: Vec<Vec<f64>>,
    loss: f64,
    /// Per micro-batch, the supernet's [`Output::loads`]; none unless they are asked for.
    loads: Vec<Vec<Tensor>>,
}

impl<'p> Search<'p> {
    /// `parent` is sorted and has the space's parent's configuration; `seed` is of the router's first weights.
    ///
    /// # Errors
    /// [`Error::Contract`] where a resource belongs to another space; [`Error::Usage`] where an option is out of range.
    pub fn new(
        parent: &'p Lm,
        space: &'p SearchSpace,
        resources: &'p [Resource],
        options: SearchOptions,
        seed: u64,
    ) -> Result<Search<'p>> {
        let candidates: Vec<usize> = space.gates.iter().map(|gate| gate.candidates.len()).collect();
        for resource in resources {
            resource_fits(resource, &candidates)?;
        }
        options.check()?;
        let joint = options.train == Trained::Joint;
        let mut params = shared(&parent.params, joint);
        let mut alone = Params::default();
        let store = if joint { &mut params } else { &mut alone };
        let router = Router::new(store, &candidates, options.router, seed);
        let supernet = Lm::new(parent.config.clone(), params)?;
        let alone = (!joint).then_some(alone);
        Ok(Search { parent, space, resources, options, supernet, router, alone, step: None, state: None, placed: None })
    }

    /// The state after the last step of this process.
    pub fn state(&self) -> Option<&SearchState> {
        self.state.as_ref()
    }

    /// The masked model as it is trained.
    pub fn supernet(&self) -> &Lm {
        &self.supernet
    }

    /// Every gate's logits.
    pub fn logits(&self) -> Result<Vec<Vec<f32>>> {
        self.router.values(self.params())
    }

    /// The largest logit of every gate: the architecture before repair.
    pub fn choice(&self) -> Result<Choice> {
        Ok(Choice(self.logits()?.iter().map(|z| argmax(z)).collect()))
    }

    /// Per gate ln softmax(κ·z) at the κ of `step`, counted from 0: what the repair reads.
    pub fn log_probabilities(&self, step: u64) -> Result<Vec<Vec<f64>>> {
        let kappa = self.options.annealing.kappa(step);
        Ok(self.logits()?.iter().map(|z| log_probabilities(z, kappa)).collect())
    }

    fn sharpness(&self, step: u64) -> (f32, f32) {
        (self.options.annealing.kappa(step), self.options.annealing.tau(step))
    }

    /// The draws of the step, per gate [draws, C], from leaves on `tape` that stand for the logits.
    fn draws(&self, tape: &Tape<'_>, noise: &[Tensor], step: u64) -> Result<(Vec<Var>, Vec<Var>)> {
        let (kappa, tau) = self.sharpness(step);
        let logits: Vec<Var> = self.logits()?.iter().map(|z| tape.leaf(Tensor::from_slice([z.len()], z))).collect();
        let y = logits.iter().zip(noise).map(|(z, noise)| gumbel_softmax(tape, z, noise, kappa, tau));
        let y = y.collect::<Result<_>>()?;
        Ok((logits, y))
    }

    /// The step's noise and its penalty, once for all micro-batches.
    fn begin(&mut self, state: &StepState) -> Result<()> {
        let draws = self.options.draws;
        if !state.sequences.is_multiple_of(draws) {
            return Err(Error::contract(
                "search",
                "sequences",
                state.sequences,
                format!("a multiple of {draws} draws"),
            ));
        }
        let params = self.alone.as_mut().unwrap_or(&mut self.supernet.params);
        self.router.set_rate(params, state.step);
        let gates = self.space.gates.iter().enumerate();
        let noise: Vec<Tensor> =
            gates.map(|(g, gate)| gumbel_noise(state.seed, state.step, g, draws, gate.candidates.len())).collect();
        let tape = Tape::new();
        let (logits, y) = self.draws(&tape, &noise, state.step)?;
        let (loss, penalty) = budget_penalty(&tape, self.resources, &y, &self.options.budget)?;
        let grads = tape.backward(&loss, 1.0, &mut ())?;
        let budget = logits.iter().map(|z| grads.take(z).unwrap_or_else(|| Tensor::zeros(z.shape().clone())));
        let budget = budget.collect();
        let distillation = logits.iter().map(|z| vec![0.0; z.dims()[0]]).collect();
        let (loss, loads) = (0.0, Vec::new());
        self.step = Some(StepSums { step: state.step, noise, penalty, budget, distillation, loss, loads });
        Ok(())
    }

    /// The distillation loss of a micro-batch, its gradient by the logits, times `share`, and where its tokens went. The
    /// weights' gradient goes to `grads`.
    fn distill(
        &self,
        batch: &Batch,
        share: f32,
        state: &StepState,
        noise: &[Tensor],
        grads: &mut Gradients,
    ) -> Result<(f64, Vec<Tensor>, Vec<Tensor>)> {
        let tape = Tape::new();
        let (logits, y) = self.draws(&tape, noise, state.step)?;
        let (y, parent) = match &self.placed {
            Some((place, parent)) => (to_gpu(&tape, &y, &place.gpu)?, parent),
            None => (y, self.parent),
        };
        let of_sequence = (0..batch.sequences).map(|i| ((state.first_sequence + i) % self.options.draws) as u32);
        let draws = Draws::Sequences { length: batch.length, of_sequence: of_sequence.collect() };
        let masks = self.space.masks(&y, &tape, draws, self.options.expert_masking)?;
        let (recompute, products) = (self.options.recompute, state.products_of(batch));
        let student = Student { lm: &self.supernet, masks: Some(&masks), recompute, products };
        let Distilled { loss, loads } = distillation(&tape, parent, student, batch, &self.options.distill)?;
        let leaves = tape.backward(&loss, share, grads)?;
        let value = f64::from(loss.value().read_item()?);
        let dz = logits.iter().map(|z| leaves.take(z).unwrap_or_else(|| Tensor::zeros(z.shape().clone())));
        Ok((value, dz.collect(), loads))
    }

    /// Walks the router backwards from the gradients of its logits.
    fn train_router(&self, dz: Vec<Tensor>, grads: &mut Gradients) -> Result<()> {
        let tape = Tape::new();
        let logits: Vec<Var> =
            (0..self.router.gates()).map(|g| self.router.logits(&tape, self.params(), g)).collect::<Result<_>>()?;
        tape.backward_from(&logits, dz, grads)?;
        Ok(())
    }

    /// Whether every gate has moved and is settled. The number of experts does not matter, and gets no gradient, where the
    /// layer's routed width is settled at 0.
    fn is_settled(&self, gates: &[GateState]) -> bool {
        let settled = |g: usize| gates[g].moved && gates[g].leading() >= self.options.converged_at;
        let no_experts = |g: usize| {
            let gate = &self.space.gates[g];
            let routed = self.space.gate(Axis::Routed, gate.layer).filter(|_| gate.axis == Axis::Experts);
            routed.is_some_and(|f| settled(f) && self.space.gates[f].candidates[argmax(&gates[f].probabilities)] == 0)
        };
        (0..gates.len()).all(|g| settled(g) || no_experts(g))
    }

    /// Of all micro-batches together. They are read here, after the step: on a GPU, once.
    fn token_shares(&self, loads: &[Vec<Tensor>]) -> Result<Vec<(String, TokenShare)>> {
        let layers = loads.first().map_or(0, Vec::len);
        let mut sums = vec![Vec::new(); layers];
        for (i, counts) in Output::counts(&loads.concat())?.into_iter().enumerate() {
            let sum: &mut Vec<u64> = &mut sums[i % layers];
            sum.resize(counts.len(), 0);
            sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += u64::from(n));
        }
        Ok(token_shares(self.space, &sums))
    }

    fn state_after(&self, sums: &StepSums) -> Result<SearchState> {
        let (kappa, tau) = self.sharpness(sums.step);
        let logits = self.logits()?;
        let choice = Choice(logits.iter().map(|z| argmax(z)).collect());
        let gate = |(g, z): (usize, &Vec<f32>)| GateState {
            name: self.space.gates[g].name.clone(),
            probabilities: probabilities(z, kappa),
            moved: self.router.has_moved(self.params(), g),
        };
        let gates: Vec<GateState> = logits.iter().enumerate().map(gate).collect();
        let rho = |((resource, mean), leading): ((&Resource, &f64), &f64)| (resource.name.clone(), *mean, *leading);
        let leading: Vec<f64> = self.resources.iter().map(|resource| resource.rho(&choice.0)).collect();
        // Settled beside its limits, a search goes on: the penalty still pulls.
        let within = self.options.budget.penalty(&leading).0 == 0.0;
        let budget: Vec<Vec<f64>> =
            sums.budget.iter().map(|g| g.f32().iter().map(|g| f64::from(*g)).collect()).collect();
        Ok(SearchState {
            kappa,
            tau,
            distillation: sums.loss,
            penalty: sums.penalty.value,
            rho: self.resources.iter().zip(&sums.penalty.rho).zip(&leading).map(rho).collect(),
            norms: axis_norms(self.space, &sums.distillation, &budget),
            converged: within && self.is_settled(&gates),
            token_shares: self.options.token_shares.then(|| self.token_shares(&sums.loads)).transpose()?,
            gates,
            choice,
        })
    }
}

impl Job for Search<'_> {
    fn params(&self) -> &Params {
        self.alone.as_ref().unwrap_or(&self.supernet.params)
    }

    fn params_mut(&mut self) -> &mut Params {
        self.alone.as_mut().unwrap_or(&mut self.supernet.params)
    }

    fn place(&mut self, place: &Place) -> Result<()> {
        let parent = self.parent.placed(place, Purpose::Inference)?;
        // Weights that are not trained are the parent's own.
        let params = match self.options.train {
            Trained::Joint => model::place(&self.supernet.params, place, Purpose::Training)?,
            Trained::Router => shared(&parent.params, false),
        };
        self.supernet = Lm::new(self.supernet.config.clone(), params)?;
        self.placed = Some((place.clone(), parent));
        Ok(())
    }

    fn micro_batch(&mut self, batch: &Batch, share: f32, state: &StepState, grads: &mut Gradients) -> Result<f64> {
        if state.first_sequence == 0 || self.step.as_ref().is_none_or(|sums| sums.step != state.step) {
            self.begin(state)?;
        }
        let Some(mut sums) = self.step.take() else { unreachable!("begun above") };
        let (loss, mut dz, loads) = self.distill(batch, share, state, &sums.noise, grads)?;
        sums.loads.extend(self.options.token_shares.then_some(loads));
        sums.loss += f64::from(share) * loss;
        for ((dz, budget), sum) in dz.iter_mut().zip(&sums.budget).zip(&mut sums.distillation) {
            let dz = dz.f32_mut().iter_mut();
            for ((dz, budget), sum) in dz.zip(budget.f32()).zip(sum) {
                *sum += f64::from(*dz);
                // The penalty belongs to the step: every micro-batch brings its share of it.
                *dz += share * budget;
            }
        }
        self.train_router(dz, grads)?;
        let penalty = sums.penalty.value;
        self.step = Some(sums);
        Ok(loss + penalty)
    }

    fn after_step(&mut self, _: &StepState) -> Result<()> {
        if let Some(sums) = self.step.take() {
            self.state = Some(self.state_after(&sums)?);
        }
        Ok(())
    }

    fn finished(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.converged)
    }

    fn metrics(&self, line: &mut Map<String, Value>) {
        if let Some(state) = &self.state {
            state.write(line);
        }
    }
}

/// The same tensors under the same names, shared until one is written to. Frozen unless `trained`.
fn shared(params: &Params, trained: bool) -> Params {
    let mut copy = Params::default();
    for (_, param) in params.iter() {
        let mut param = param.clone();
        param.trainable &= trained;
        copy.push(param);
    }
    copy
}

fn resource_fits(resource: &Resource, candidates: &[usize]) -> Result<()> {
    if resource.candidates != candidates {
        let expected = format!("{candidates:?}, the search space's");
        return Err(Error::contract("search", "candidates of a resource", &resource.candidates, expected));
    }
    Ok(())
}
