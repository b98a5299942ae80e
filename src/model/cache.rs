//! What a sequence leaves behind for its next token: attention keys and values, convolution inputs, SSM states.

use std::ops::Range;

use super::config::{Attention, Config, Layer, Mamba};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Keys and values of the sequences of a batch, each in its own run of rows.
#[derive(Clone, Debug)]
pub struct AttentionCache {
    /// [B·capacity, kv_heads·head_dim].
    pub keys: Tensor,
    pub values: Tensor,
    /// Rows per sequence.
    pub capacity: usize,
    /// Filled rows of each sequence, `[B]`.
    pub lengths: Vec<usize>,
}

impl AttentionCache {
    fn new(layer: &Attention, sequences: usize, capacity: usize) -> AttentionCache {
        let width = layer.kv_heads * layer.head_dim;
        AttentionCache {
            keys: Tensor::zeros([sequences * capacity, width]),
            values: Tensor::zeros([sequences * capacity, width]),
            capacity,
            lengths: vec![0; sequences],
        }
    }

    /// Appends the rows of each segment to its sequence; returns the rows that each now holds.
    ///
    /// `sequences[s]` is the sequence that segment s continues.
    pub fn append(
        &mut self,
        keys: &Tensor,
        values: &Tensor,
        segments: &crate::tensor::Segments,
        sequences: &[usize],
    ) -> Result<Vec<Range<usize>>> {
        let width = keys.shape().last();
        for (rows, sequence) in segments.iter().zip(sequences) {
            let filled = self.lengths[*sequence];
            if filled + rows.len() > self.capacity {
                let found = format!("{} tokens", filled + rows.len());
                return Err(Error::contract("cache", "sequence", found, format!("at most {}", self.capacity)));
            }
            let first = (sequence * self.capacity + filled) * width;
            let (from, to) = (rows.start * width..rows.end * width, first..first + rows.len() * width);
            self.keys.f32_mut()[to.clone()].copy_from_slice(&keys.f32()[from.clone()]);
            self.values.f32_mut()[to].copy_from_slice(&values.f32()[from]);
            self.lengths[*sequence] += rows.len();
        }
        Ok(sequences.iter().map(|s| s * self.capacity..s * self.capacity + self.lengths[*s]).collect())
    }
}

/// The state of a Mamba layer for each sequence of a batch.
#[derive(Clone, Debug)]
pub struct MambaCache {
    /// [B, K−1, C]: the convolution's last inputs, oldest first.
    pub conv: Tensor,
    /// [B, H, P, N].
    pub ssm: Tensor,
}

impl MambaCache {
    fn new(layer: &Mamba, sequences: usize) -> MambaCache {
        MambaCache {
            conv: Tensor::zeros([sequences, layer.conv_kernel - 1, layer.conv_channels()]),
            ssm: Tensor::zeros([sequences, layer.heads, layer.head_dim, layer.state]),
        }
    }
}

#[derive(Clone, Debug)]
pub enum LayerCache {
    Attention(AttentionCache),
    Mamba(MambaCache),
    /// Feed-forward layers keep nothing.
    Nothing,
}

impl LayerCache {
    /// For a layer that keeps nothing: refuses the cache of one that does. `op` names the layer's kind.
    pub fn refuse(op: &'static str, cache: Option<&mut LayerCache>) -> Result<()> {
        match cache {
            None | Some(LayerCache::Nothing) => Ok(()),
            Some(_) => Err(Error::contract(op, "cache", "another layer's", "none")),
        }
    }
}

/// The caches of a batch of sequences, layer by layer.
#[derive(Clone, Debug)]
pub struct Cache {
    pub layers: Vec<LayerCache>,
    /// B.
    pub sequences: usize,
}

impl Cache {
    /// Empty caches for `sequences` sequences of at most `capacity` tokens.
    pub fn new(config: &Config, sequences: usize, capacity: usize) -> Cache {
        let layers = (config.layers.iter())
            .map(|layer| match layer {
                Layer::Attention(a) => LayerCache::Attention(AttentionCache::new(a, sequences, capacity)),
                Layer::Mamba(m) => LayerCache::Mamba(MambaCache::new(m, sequences)),
                Layer::Moe(_) | Layer::Mlp(_) => LayerCache::Nothing,
            })
            .collect();
        Cache { layers, sequences }
    }
}

/// The rows of `states` [B, …] that belong to `sequences`, as [S, …]; and back.
pub fn gather(states: &Tensor, sequences: &[usize]) -> Tensor {
    if sequences.iter().copied().eq(0..states.dims()[0]) {
        return states.clone();
    }
    let size = states.numel() / states.dims()[0].max(1);
    let mut dims = states.dims().to_vec();
    dims[0] = sequences.len();
    Tensor::build(dims.as_slice(), |out| {
        for (out, s) in out.chunks_exact_mut(size).zip(sequences) {
            out.copy_from_slice(&states.f32()[s * size..][..size]);
        }
    })
}

/// Writes `rows` [S, …] to the places of `sequences` in `states` [B, …].
pub fn scatter(states: &mut Tensor, rows: &Tensor, sequences: &[usize]) {
    if sequences.iter().copied().eq(0..states.dims()[0]) {
        *states = rows.clone();
        return;
    }
    let size = states.numel() / states.dims()[0].max(1);
    let values = states.f32_mut();
    for (row, s) in rows.f32().chunks_exact(size).zip(sequences) {
        values[s * size..][..size].copy_from_slice(row);
    }
}
