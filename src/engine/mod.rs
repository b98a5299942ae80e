//! Inference: caches, chunked prefill, batched decode, generation.

mod generate;
pub mod profile;
mod sample;

pub use generate::{GenerateOptions, Generation, generate};
pub use sample::{Sampler, argmax};

use crate::device::memory;
use crate::model::config::{Config, Layer};
use crate::model::{Cache, Lm};
use crate::tensor::{Segments, Tensor};
use crate::{Error, Result};

/// A model with the caches of a batch of sequences.
pub struct Engine<'m> {
    lm: &'m Lm,
    cache: Cache,
    /// Most rows of one forward pass in prefill.
    prefill_chunk: usize,
}

impl<'m> Engine<'m> {
    /// Empty caches for `sequences` sequences of at most `capacity` tokens each.
    pub fn new(lm: &'m Lm, sequences: usize, capacity: usize, prefill_chunk: usize) -> Result<Engine<'m>> {
        if prefill_chunk == 0 {
            return Err(Error::Usage("a prefill chunk of 0 tokens makes no progress; give at least 1".into()));
        }
        if lm.sample_weight().gpu().is_none() {
            memory::require("caches", cache_bytes(&lm.config, sequences, capacity))?;
        }
        let cache = Cache::beside(lm.sample_weight(), &lm.config, sequences, capacity)?;
        Ok(Engine { lm, cache, prefill_chunk })
    }

    /// Feeds each sequence its prompt, at most `prefill_chunk` tokens a pass; passes hold pieces of one or several prompts.
    /// Returns the logits [B, V] after each prompt's last token.
    pub fn prefill(&mut self, prompts: &[Vec<u32>]) -> Result<Tensor> {
        self.prefill_watched(prompts, &mut |_| {})
    }

    /// [`Engine::prefill`], told to `passed` as [`Lm::forward_watched`] does, and once more (`None`) after the logits.
    fn prefill_watched(&mut self, prompts: &[Vec<u32>], passed: &mut dyn FnMut(Option<usize>)) -> Result<Tensor> {
        if prompts.len() != self.cache.sequences || prompts.iter().any(Vec::is_empty) {
            let expected = format!("{} prompts of at least one token", self.cache.sequences);
            return Err(Error::contract(
                "engine",
                "prompts",
                prompts.iter().map(Vec::len).collect::<Vec<_>>(),
                expected,
            ));
        }
        let d = self.lm.config.hidden_size;
        let weight = self.lm.sample_weight();
        let mut last = Tensor::zeros_beside(weight, weight.dtype(), [prompts.len(), d])?;
        for pass in passes(prompts, self.prefill_chunk) {
            let mut tokens = Vec::new();
            let mut offsets = vec![0];
            for (sequence, range) in &pass {
                tokens.extend_from_slice(&prompts[*sequence][range.clone()]);
                offsets.push(tokens.len());
            }
            let segments = Segments::from_offsets(&offsets).unwrap_or_else(|| unreachable!("offsets rise from 0"));
            let sequences: Vec<usize> = pass.iter().map(|(sequence, _)| *sequence).collect();
            let hidden = self.lm.forward_watched(&tokens, &segments, &mut self.cache, &sequences, passed)?;
            for (i, (sequence, range)) in pass.iter().enumerate() {
                if range.end == prompts[*sequence].len() {
                    let row = (offsets[i + 1] - 1) * d;
                    last.copy_in(sequence * d, &hidden, row, d)?;
                }
            }
        }
        let logits = self.lm.logits(&last)?;
        passed(None);
        Ok(logits)
    }

    /// One token for each of `sequences`: logits [S, V].
    pub fn decode(&mut self, tokens: &[u32], sequences: &[usize]) -> Result<Tensor> {
        self.decode_watched(tokens, sequences, &mut |_| {})
    }

    /// [`Engine::decode`], told to `passed` as [`Engine::prefill_watched`] does.
    fn decode_watched(
        &mut self,
        tokens: &[u32],
        sequences: &[usize],
        passed: &mut dyn FnMut(Option<usize>),
    ) -> Result<Tensor> {
        let segments = Segments::uniform(tokens.len(), 1);
        let hidden = self.lm.forward_watched(tokens, &segments, &mut self.cache, sequences, passed)?;
        let logits = self.lm.logits(&hidden)?;
        passed(None);
        Ok(logits)
    }
}

/// Bytes of [`Cache`] in this machine's memory; `None` where they pass 64 bits.
pub fn cache_bytes(config: &Config, sequences: usize, capacity: usize) -> Option<u64> {
    let each = config.layers.iter().try_fold(0usize, |sum, layer| {
        sum.checked_add(match layer {
            Layer::Attention(a) => capacity.checked_mul(2 * a.kv_heads)?.checked_mul(a.head_dim)?,
            Layer::Mamba(m) => m.inner().checked_mul(m.state)?.checked_add(m.conv_kernel * m.conv_channels())?,
            Layer::Moe(_) | Layer::Mlp(_) => 0,
        })
    })?;
    Some(each.checked_mul(sequences)?.checked_mul(4)? as u64)
}

/// Prompts cut into passes of at most `chunk` rows: (sequence, tokens) pieces in order.
fn passes(prompts: &[Vec<u32>], chunk: usize) -> Vec<Vec<(usize, std::ops::Range<usize>)>> {
    let mut passes = Vec::new();
    let mut pass = Vec::new();
    let mut room = chunk;
    for (sequence, prompt) in prompts.iter().enumerate() {
        let mut start = 0;
        while start < prompt.len() {
            let end = (start + room).min(prompt.len());
            pass.push((sequence, start..end));
            room -= end - start;
            start = end;
            if room == 0 {
                passes.push(std::mem::take(&mut pass));
                room = chunk;
            }
        }
    }
    if !pass.is_empty() {
        passes.push(pass);
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_hold_every_token_once_and_never_more_than_a_chunk() {
        let prompts: Vec<Vec<u32>> = [5, 1, 17, 8, 3].iter().map(|n| vec![0; *n]).collect();
        for chunk in [1, 2, 7, 8, 100] {
            let passes = passes(&prompts, chunk);
            let mut next = vec![0; prompts.len()];
            for pass in &passes {
                assert!(pass.iter().map(|(_, r)| r.len()).sum::<usize>() <= chunk);
                for (sequence, range) in pass {
                    assert_eq!(range.start, next[*sequence]);
                    next[*sequence] = range.end;
                }
            }
            assert_eq!(next, vec![5, 1, 17, 8, 3]);
        }
    }
}
