//! What a sequence leaves behind for its next token: attention keys and values, convolution inputs, SSM states.

use std::ops::Range;

use super::config::{Attention, Config, Layer, Mamba};
use crate::tensor::{DType, Tensor};
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
    fn new(layer: &Attention, sequences: usize, capacity: usize, beside: &Tensor) -> Result<AttentionCache> {
        let width = layer.kv_heads * layer.head_dim;
        let zeros = || Tensor::zeros_beside(beside, beside.dtype(), [sequences * capacity, width]);
        Ok(AttentionCache { keys: zeros()?, values: zeros()?, capacity, lengths: vec![0; sequences] })
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
            let (from, count) = (rows.start * width, rows.len() * width);
            self.keys.copy_in(first, keys, from, count)?;
            self.values.copy_in(first, values, from, count)?;
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
    fn new(layer: &Mamba, sequences: usize, beside: &Tensor) -> Result<MambaCache> {
        let (conv, ssm) = (
            [sequences, layer.conv_kernel - 1, layer.conv_channels()],
            [sequences, layer.heads, layer.head_dim, layer.state],
        );
        Ok(MambaCache {
            conv: Tensor::zeros_beside(beside, beside.dtype(), conv)?,
            ssm: Tensor::zeros_beside(beside, DType::F32, ssm)?,
        })
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
        let host = Tensor::zeros([0]);
        Cache::beside(&host, config, sequences, capacity).unwrap_or_else(|_| unreachable!("host memory does not fail"))
    }

    /// [`Cache::new`] where `weight` of the model is, keys and convolution inputs stored as that is.
    ///
    /// # Errors
    /// Where a GPU's memory is too small.
    pub fn beside(weight: &Tensor, config: &Config, sequences: usize, capacity: usize) -> Result<Cache> {
        let of = |layer: &Layer| {
            Ok(match layer {
                Layer::Attention(a) => LayerCache::Attention(AttentionCache::new(a, sequences, capacity, weight)?),
                Layer::Mamba(m) => LayerCache::Mamba(MambaCache::new(m, sequences, weight)?),
                Layer::Moe(_) | Layer::Mlp(_) => LayerCache::Nothing,
            })
        };
        Ok(Cache { layers: config.layers.iter().map(of).collect::<Result<_>>()?, sequences })
    }
}

/// The rows of `states` [B, …] that belong to `sequences`, as [S, …]; and back.
pub fn gather(states: &Tensor, sequences: &[usize]) -> Result<Tensor> {
    if sequences.iter().copied().eq(0..states.dims()[0]) {
        return Ok(states.clone());
    }
    let size = states.numel() / states.dims()[0].max(1);
    let mut dims = states.dims().to_vec();
    dims[0] = sequences.len();
    let mut out = match states.gpu() {
        Some(gpu) => Tensor::unwritten_on(gpu, states.dtype(), dims.as_slice())?,
        None => Tensor::build(dims.as_slice(), |_| {}),
    };
    for (row, s) in sequences.iter().enumerate() {
        out.copy_in(row * size, states, s * size, size)?;
    }
    Ok(out)
}

/// Writes `rows` [S, …] to the places of `sequences` in `states` [B, …].
pub fn scatter(states: &mut Tensor, rows: &Tensor, sequences: &[usize]) -> Result<()> {
    if sequences.iter().copied().eq(0..states.dims()[0]) {
        *states = rows.clone();
        return Ok(());
    }
    let size = states.numel() / states.dims()[0].max(1);
    for (row, s) in sequences.iter().enumerate() {
        states.copy_in(s * size, rows, row * size, size)?;
    }
    Ok(())
}
