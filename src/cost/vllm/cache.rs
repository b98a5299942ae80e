//! C: the paged caches of a hybrid model.
//!
//! vLLM gives attention and Mamba layers pages of one size and puts layers into groups of one size; a block is a page in each
//! layer of a group. A sequence takes blocks for its tokens from each attention group, and one from each Mamba group.

use serde::Serialize;

use crate::cost::contract::Precision;
use crate::engine::profile::Workload;
use crate::model::Config;
use crate::model::config::Layer;

/// Tokens that an attention kernel's block is a multiple of.
const KERNEL_BLOCK: u64 = 16;

/// Pages and blocks of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PagedCaches {
    pub attention_layers: usize,
    pub mamba_layers: usize,
    /// Bytes of a sequence's states in a Mamba layer: convolution and SSM. The page before padding.
    pub state_bytes: u64,
    /// Bytes of a token's keys and values in an attention layer.
    pub token_bytes: u64,
    /// Tokens of a page.
    pub block_tokens: u64,
    /// Bytes of a page, both kinds padded to it.
    pub page_bytes: u64,
    /// Layers of a group; pages of a block.
    pub group_layers: usize,
    pub attention_groups: usize,
    pub mamba_groups: usize,
    /// Pages of a block that no layer uses, over all groups.
    pub padded_layers: usize,
    pub blocks_per_sequence: u64,
    pub sequences: u64,
    pub total_bytes: u64,
}

impl PagedCaches {
    pub fn of(config: &Config, precision: &Precision, workload: &Workload) -> PagedCaches {
        let mut caches = PagedCaches { sequences: workload.batch as u64, ..PagedCaches::default() };
        for layer in &config.layers {
            match layer {
                Layer::Mamba(m) => {
                    let conv = (m.conv_channels() * m.conv_kernel.saturating_sub(1)) as f64;
                    let ssm = (m.heads * m.head_dim * m.state) as f64;
                    let bytes = conv * precision.conv_state.bytes() + ssm * precision.ssm_state.bytes();
                    caches.state_bytes = caches.state_bytes.max(bytes as u64);
                    caches.mamba_layers += 1;
                }
                Layer::Attention(a) => {
                    let values = (2 * a.kv_heads * a.head_dim) as f64;
                    caches.token_bytes = caches.token_bytes.max((values * precision.kv_cache.bytes()) as u64);
                    caches.attention_layers += 1;
                }
                Layer::Moe(_) | Layer::Mlp(_) => {}
            }
        }
        caches.lay_out(workload.capacity() as u64);
        caches
    }

    fn lay_out(&mut self, tokens: u64) {
        let (attention, mamba) = (self.attention_layers, self.mamba_layers);
        let smaller = attention.min(mamba);
        let larger = attention.max(mamba);
        // One kind alone is one group; kinds of nearly equal counts are padded to the larger.
        self.group_layers = if smaller == 0 || 2 * larger < 3 * smaller { larger } else { smaller };
        let groups = |layers: usize| if layers == 0 { 0 } else { layers.div_ceil(self.group_layers) };
        (self.attention_groups, self.mamba_groups) = (groups(attention), groups(mamba));
        self.padded_layers = (self.attention_groups + self.mamba_groups) * self.group_layers - (attention + mamba);
        if attention > 0 {
            let block = self.state_bytes.div_ceil(KERNEL_BLOCK * self.token_bytes).max(1);
            self.block_tokens = KERNEL_BLOCK * block;
            self.page_bytes = self.block_tokens * self.token_bytes;
        } else {
            (self.block_tokens, self.page_bytes) = (tokens.max(1), self.state_bytes);
        }
        let of_attention = self.attention_groups as u64 * tokens.div_ceil(self.block_tokens);
        self.blocks_per_sequence = of_attention + self.mamba_groups as u64;
        self.total_bytes = self.sequences * self.blocks_per_sequence * self.block_bytes();
    }

    /// Bytes of a block: a page in each layer of a group.
    pub fn block_bytes(&self) -> u64 {
        self.group_layers as u64 * self.page_bytes
    }

    /// Blocks of all sequences: `--num-gpu-blocks-override`.
    pub fn blocks(&self) -> u64 {
        self.sequences * self.blocks_per_sequence
    }
}
