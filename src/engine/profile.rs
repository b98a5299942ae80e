//! A request on this engine, measured where the model is: as a whole, or part by part.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Engine, argmax};
use crate::Result;
use crate::device::{Meter, Moment};
use crate::model::config::Layer;
use crate::model::{Cache, Config, LayerCache, Lm};
use crate::numerics::Philox;
use crate::tensor::Tensor;

/// What a deployment serves: B requests at once, each with the same lengths.
///
/// A request is one prefill of the input and `output_tokens` decode steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// B.
    pub batch: usize,
    /// Tokens of each sequence that the caches hold before the request.
    #[serde(default)]
    pub cached_tokens: usize,
    pub input_tokens: usize,
    pub output_tokens: usize,
    /// Most rows of one forward pass in prefill.
    pub prefill_chunk: usize,
}

impl Workload {
    /// Tokens of one sequence at the end.
    pub fn capacity(&self) -> usize {
        self.cached_tokens + self.input_tokens + self.output_tokens
    }

    /// The contexts (tokens in the cache before a step) at which decode is measured, rising, with weights that sum to 1:
    /// the first step's, the middle one's and the last one's. Σ weight · time is the mean over all steps of the line
    /// through the measured times. Empty where nothing is generated.
    pub fn contexts(&self) -> Vec<(usize, f64)> {
        let Some(last) = self.output_tokens.checked_sub(1) else { return Vec::new() };
        let mut steps = vec![0, last / 2, last];
        steps.dedup();
        let mut weights = vec![0.0; steps.len()];
        for step in 0..=last {
            let right = steps.partition_point(|s| *s < step);
            let share = match right.checked_sub(1) {
                Some(left) => (step - steps[left]) as f64 / (steps[right] - steps[left]) as f64,
                None => 1.0,
            };
            weights[right] += share;
            if share < 1.0 {
                weights[right - 1] += 1.0 - share;
            }
        }
        let first = self.cached_tokens + self.input_tokens;
        steps.iter().zip(weights).map(|(step, w)| (first + step, w / self.output_tokens as f64)).collect()
    }
}

/// One part of a pass: a layer, or all that is not a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartCost {
    pub seconds: f64,
    /// The most bytes in use beyond weights and caches, where the model computes.
    pub workspace: usize,
}

/// A prefill, or a decode step.
#[derive(Clone, Debug, PartialEq)]
pub struct PassCost {
    pub layers: Vec<PartCost>,
    /// Embedding, final norm, head, sampling.
    pub rest: PartCost,
}

impl PassCost {
    /// The part of a layer, or of all that is none.
    fn part(&mut self, layer: Option<usize>) -> &mut PartCost {
        match layer {
            Some(i) => &mut self.layers[i],
            None => &mut self.rest,
        }
    }

    /// Of equal passes: each part's mean time and largest workspace. Means, as they add up to the whole's and medians do not:
    /// what strikes now one part, now another would be missing from every median.
    fn merge(passes: &[PassCost]) -> PassCost {
        let part = |of: &dyn Fn(&PassCost) -> PartCost| PartCost {
            seconds: passes.iter().map(|pass| of(pass).seconds).sum::<f64>() / passes.len().max(1) as f64,
            workspace: passes.iter().map(|pass| of(pass).workspace).max().unwrap_or(0),
        };
        let layers = passes.first().map_or(0, |pass| pass.layers.len());
        PassCost { layers: (0..layers).map(|i| part(&|pass| pass.layers[i])).collect(), rest: part(&|pass| pass.rest) }
    }
}

/// The middle of `values`, or the mean of the two in the middle; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}

/// Reads the clock and the memory's counters where a pass goes from one part to the next.
struct Watch {
    meter: Meter,
    /// Bytes in use before the pass.
    base: usize,
    start: Moment,
    /// The ends of the parts; `None` is what is no layer.
    ends: Vec<(Option<usize>, Moment)>,
    cost: PassCost,
    failed: Result<()>,
}

impl Watch {
    fn start(meter: &Meter, layers: usize, base: usize) -> Result<Watch> {
        let cost = PassCost { layers: vec![PartCost::default(); layers], rest: PartCost::default() };
        let ends = Vec::with_capacity(layers + 4);
        meter.reset_peak();
        Ok(Watch { meter: meter.clone(), base, start: meter.now()?, ends, cost, failed: Ok(()) })
    }

    fn passed(&mut self, layer: Option<usize>) {
        if self.failed.is_ok() {
            self.failed = self.pass(layer);
        }
    }

    fn pass(&mut self, layer: Option<usize>) -> Result<()> {
        self.ends.push((layer, self.meter.now()?));
        let part = self.cost.part(layer);
        part.workspace = part.workspace.max(self.meter.memory().peak.saturating_sub(self.base));
        self.meter.reset_peak();
        Ok(())
    }

    /// What the pass cost, all of which has been waited for then.
    fn finish(mut self) -> Result<PassCost> {
        self.failed?;
        self.meter.wait()?;
        let mut from = &self.start;
        for (layer, end) in &self.ends {
            self.cost.part(*layer).seconds += from.seconds_to(end)?;
            from = end;
        }
        Ok(self.cost)
    }
}

/// All parts of a model under a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelProfile {
    /// Bytes of each layer's caches.
    pub cache_bytes: Vec<usize>,
    /// The whole input of the batch.
    pub prefill: PassCost,
    /// One step at each of [`Workload::contexts`].
    pub decode: Vec<PassCost>,
}

/// A whole request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestCost {
    pub prefill_seconds: f64,
    /// All steps; 0 where nothing is generated.
    pub decode_seconds: f64,
    /// The most bytes in use beyond those before the request, where the model computes: caches and workspace.
    pub peak_bytes: usize,
}

/// Passes of one measurement end after this many seconds, or their largest number.
const ENOUGH_SECONDS: f64 = 0.02;
const FEWEST_STEPS: usize = 3;
const MOST_PASSES: usize = 8;

/// A model with caches as they are when a request comes.
struct Request<'m> {
    engine: Engine<'m>,
    meter: Meter,
    workload: Workload,
    prompts: Vec<Vec<u32>>,
    sequences: Vec<usize>,
    layers: usize,
    vocab: usize,
}

impl<'m> Request<'m> {
    fn new(lm: &'m Lm, workload: &Workload) -> Result<Request<'m>> {
        let mut engine = Engine::new(lm, workload.batch, workload.capacity(), workload.prefill_chunk)?;
        let meter = Meter::of(lm.sample_weight().gpu());
        for layer in &mut engine.cache.layers {
            if let (LayerCache::Attention(cache), Meter::Host) = (layer, &meter) {
                // Memory that was never written is one shared page of zeros, which reads too fast.
                cache.keys.f32_mut().fill(0.01);
                cache.values.f32_mut().fill(0.01);
            }
        }
        let vocab = lm.config.vocab_size;
        let prompt = |sequence: usize| {
            let noise = Philox::new(0, sequence as u64);
            (0..workload.input_tokens as u64).map(|i| (noise.uniform(i) * vocab as f64) as u32).collect()
        };
        Ok(Request {
            engine,
            meter,
            workload: *workload,
            prompts: (0..workload.batch).map(prompt).collect(),
            sequences: (0..workload.batch).collect(),
            layers: lm.config.layers.len(),
            vocab,
        })
    }

    /// As if each sequence had `tokens` tokens in its caches; their contents do not change what a pass costs.
    fn set_context(&mut self, tokens: usize) {
        for layer in &mut self.engine.cache.layers {
            if let LayerCache::Attention(cache) = layer {
                cache.lengths.fill(tokens);
            }
        }
    }

    /// The likeliest tokens, after all that gives them.
    fn next_tokens(&self, logits: &Tensor) -> Result<Vec<u32>> {
        Ok(logits.to_host()?.f32().chunks_exact(self.vocab).map(argmax).collect())
    }

    /// The prompts' logits, and what their parts cost.
    fn prefill(&mut self, base: usize) -> Result<(Tensor, PassCost)> {
        self.set_context(self.workload.cached_tokens);
        let mut watch = Watch::start(&self.meter, self.layers, base)?;
        let logits = self.engine.prefill_watched(&self.prompts, &mut |layer| watch.passed(layer))?;
        self.next_tokens(&logits)?;
        watch.passed(None);
        Ok((logits, watch.finish()?))
    }

    /// One step at `context`. The logits before it live until it ends, as they do in generation.
    fn decode(&mut self, context: usize, logits: &mut Tensor, base: usize) -> Result<PassCost> {
        self.set_context(context);
        let tokens = self.next_tokens(logits)?;
        let mut watch = Watch::start(&self.meter, self.layers, base)?;
        *logits = self.engine.decode_watched(&tokens, &self.sequences, &mut |layer| watch.passed(layer))?;
        self.next_tokens(logits)?;
        watch.passed(None);
        watch.finish()
    }
}

/// Measures every part of a model: prefill and decode, after one unmeasured pass of each.
pub fn profile(lm: &Lm, workload: &Workload) -> Result<ModelProfile> {
    let mut request = Request::new(lm, workload)?;
    let base = request.meter.memory().live;
    let (mut logits, _) = request.prefill(base)?;
    let mut passes = Vec::new();
    let start = Instant::now();
    while passes.is_empty() || (passes.len() < MOST_PASSES && start.elapsed().as_secs_f64() < ENOUGH_SECONDS) {
        drop(logits);
        let cost;
        (logits, cost) = request.prefill(base)?;
        passes.push(cost);
    }
    let prefill = PassCost::merge(&passes);
    let mut decode = Vec::new();
    for (context, _) in workload.contexts() {
        request.decode(context, &mut logits, base)?;
        let mut steps = Vec::new();
        let start = Instant::now();
        while steps.len() < FEWEST_STEPS
            || (steps.len() < MOST_PASSES && start.elapsed().as_secs_f64() < ENOUGH_SECONDS)
        {
            steps.push(request.decode(context, &mut logits, base)?);
        }
        decode.push(PassCost::merge(&steps));
    }
    let meter = request.meter.clone();
    drop(request);
    Ok(ModelProfile { cache_bytes: cache_bytes(lm, workload, &meter)?, prefill, decode })
}

/// What each layer's caches take, allocated one after the other.
fn cache_bytes(lm: &Lm, workload: &Workload, meter: &Meter) -> Result<Vec<usize>> {
    let bytes = |layer: &Layer| {
        let before = meter.memory().live;
        let alone = Config { layers: vec![*layer], ..lm.config.clone() };
        let _cache = Cache::beside(lm.sample_weight(), &alone, workload.batch, workload.capacity())?;
        Ok(meter.memory().live.saturating_sub(before))
    };
    lm.config.layers.iter().map(bytes).collect()
}

/// Serves the workload once, as [`super::generate`] would, greedily and without stop tokens.
pub fn serve(lm: &Lm, workload: &Workload) -> Result<RequestCost> {
    let meter = Meter::of(lm.sample_weight().gpu());
    let before = meter.memory().live;
    meter.reset_peak();
    let mut request = Request::new(lm, workload)?;
    request.set_context(workload.cached_tokens);
    let start = Instant::now();
    // Reading the tokens waits for all that gives them, on a GPU too.
    let mut logits = request.engine.prefill(&request.prompts)?;
    let mut tokens = request.next_tokens(&logits)?;
    let prefill_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for _ in 0..workload.output_tokens {
        logits = request.engine.decode(&tokens, &request.sequences)?;
        tokens = request.next_tokens(&logits)?;
    }
    // Without a step, the clock would tell its own reading time.
    let decode_seconds = if workload.output_tokens == 0 { 0.0 } else { start.elapsed().as_secs_f64() };
    Ok(RequestCost { prefill_seconds, decode_seconds, peak_bytes: meter.memory().peak.saturating_sub(before) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_contexts_give_the_mean_of_a_line() {
        for output in [1, 2, 3, 4, 17, 64] {
            let workload =
                Workload { batch: 1, cached_tokens: 3, input_tokens: 10, output_tokens: output, prefill_chunk: 8 };
            let contexts = workload.contexts();
            assert_eq!((contexts[0].0, contexts[contexts.len() - 1].0), (13, 12 + output));
            let mean = (0..output).map(|i| 5.0 + 0.5 * (13 + i) as f64).sum::<f64>() / output as f64;
            let weighted: f64 = contexts.iter().map(|(c, w)| w * (5.0 + 0.5 * *c as f64)).sum();
            assert!((mean - weighted).abs() < 1e-9, "{output}: {mean} {weighted}");
            assert!((contexts.iter().map(|c| c.1).sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn medians() {
        assert_eq!(
            [median(vec![]), median(vec![3.0]), median(vec![4.0, 1.0]), median(vec![9.0, 1.0, 2.0])],
            [0.0, 3.0, 2.5, 2.0]
        );
    }
}
