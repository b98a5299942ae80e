use super::{Engine, Sampler};
use crate::model::Lm;
use crate::{Error, Result};

#[derive(Clone, Debug)]
pub struct GenerateOptions {
    pub max_tokens: usize,
    /// 0 is greedy.
    pub temperature: f32,
    pub top_p: f32,
    pub seed: u64,
    /// Generation ends with one of these; it is not part of the result.
    pub stop: Vec<u32>,
    pub prefill_chunk: usize,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions { max_tokens: 64, temperature: 0.0, top_p: 1.0, seed: 0, stop: Vec::new(), prefill_chunk: 512 }
    }
}

/// What came after one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    pub tokens: Vec<u32>,
    /// The stop id that ended it; `None` at the limit.
    pub stopped: Option<u32>,
}

/// Continues every prompt. Sequences that stop leave the decode batch; a sequence's tokens do not depend on the others.
pub fn generate(lm: &Lm, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<Vec<Generation>> {
    let sampler = Sampler::new(options.temperature, options.top_p, options.seed)?;
    let mut generations = vec![Generation { tokens: Vec::new(), stopped: None }; prompts.len()];
    if prompts.is_empty() || options.max_tokens == 0 {
        return Ok(generations);
    }
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let mut engine = Engine::new(lm, prompts.len(), longest.saturating_add(options.max_tokens), options.prefill_chunk)?;
    let mut logits = engine.prefill(prompts)?;
    let mut active: Vec<usize> = (0..prompts.len()).collect();
    let vocab = lm.config.vocab_size;
    loop {
        let mut next = Vec::new();
        let mut going = Vec::new();
        let host = logits.to_host()?;
        for (row, sequence) in host.f32().chunks_exact(vocab).zip(&active) {
            if let Some(bad) = row.iter().find(|z| !z.is_finite()) {
                return Err(Error::contract("generate", "logits", bad, "finite numbers: the weights are too large"));
            }
            let generation = &mut generations[*sequence];
            let token = sampler.next(row, *sequence, generation.tokens.len());
            if options.stop.contains(&token) {
                generation.stopped = Some(token);
                continue;
            }
            generation.tokens.push(token);
            if generation.tokens.len() < options.max_tokens {
                next.push(token);
                going.push(*sequence);
            }
        }
        if going.is_empty() {
            return Ok(generations);
        }
        logits = engine.decode(&next, &going)?;
        active = going;
    }
}
