//! `config.json` of a `nemotron_h` model, and of its heterogeneous form `nemotron_h_puzzle`.
//!
//! Every layer carries its own sizes, so the rest of the crate knows one kind of model. The keys and their defaults are
//! those of transformers' `NemotronHConfig`; `block_configs` are those of `NemotronHPuzzleForCausalLM`.

mod keys;
mod parse;
mod tensors;
mod validate;
mod write;

use std::path::Path;

use serde_json::{Map, Value};

pub use tensors::{DiskLayout, Parameters, TensorCount, TensorSpec};

use crate::{Result, files};

/// A Mamba-2 layer's sizes. H heads × P head_dim = d_inner; G groups share B and C of N states each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mamba {
    /// H.
    pub heads: usize,
    /// P.
    pub head_dim: usize,
    /// G; divides H.
    pub groups: usize,
    /// N.
    pub state: usize,
    pub conv_kernel: usize,
    /// Tokens per chunk of the scan: how it is computed, not what.
    pub chunk_size: usize,
    pub conv_bias: bool,
    /// dt is clamped to this range; the upper end may be infinite.
    pub time_step_limit: (f32, f32),
    /// Range of the time step at initialisation only, as are the next two.
    pub time_step_min: f32,
    pub time_step_max: f32,
    pub time_step_floor: f32,
}

impl Mamba {
    /// d_inner = H·P.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels of the convolution: d_inner + 2·G·N, in the order x | B | C.
    pub fn conv_channels(&self) -> usize {
        self.inner() + 2 * self.groups * self.state
    }

    /// Rows of in_proj: 2·d_inner + 2·G·N + H, in the order z | x | B | C | dt.
    pub fn in_proj_rows(&self) -> usize {
        self.inner() + self.conv_channels() + self.heads
    }
}

/// A mixture-of-experts layer's sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moe {
    /// E.
    pub experts: usize,
    /// K.
    pub top_k: usize,
    /// F, the width of a routed expert.
    pub intermediate: usize,
    /// S, the width of the shared expert; 0 where there is none.
    pub shared_intermediate: usize,
    /// L, the width that routed experts read and write; `None`: the hidden size.
    pub latent: Option<usize>,
    pub norm_topk_prob: bool,
    /// Routing groups of E / n_group experts, of which topk_group are open to a token.
    pub n_group: usize,
    pub topk_group: usize,
    pub routed_scaling_factor: f32,
}

/// A grouped-query attention layer's sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    pub heads: usize,
    /// Divides `heads`.
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// A dense ReLU² layer's size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mlp {
    pub intermediate: usize,
}

/// One layer: its kind and all its sizes but the hidden size. No linear layer of the family has a bias.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layer {
    Mamba(Mamba),
    Moe(Moe),
    Attention(Attention),
    Mlp(Mlp),
}

/// What kind of mixer a layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerKind {
    Mamba,
    Moe,
    Attention,
    Mlp,
}

impl LayerKind {
    /// The name in `block_configs` and in most `layers_block_type` lists.
    pub fn name(self) -> &'static str {
        match self {
            LayerKind::Mamba => "mamba",
            LayerKind::Moe => "moe",
            LayerKind::Attention => "attention",
            LayerKind::Mlp => "mlp",
        }
    }

    /// The letter in `hybrid_override_pattern`.
    pub fn letter(self) -> char {
        match self {
            LayerKind::Mamba => 'M',
            LayerKind::Moe => 'E',
            LayerKind::Attention => '*',
            LayerKind::Mlp => '-',
        }
    }
}

impl Layer {
    pub fn kind(&self) -> LayerKind {
        match self {
            Layer::Mamba(_) => LayerKind::Mamba,
            Layer::Moe(_) => LayerKind::Moe,
            Layer::Attention(_) => LayerKind::Attention,
            Layer::Mlp(_) => LayerKind::Mlp,
        }
    }

    /// The layer's sizes in words.
    pub fn sizes_text(&self) -> String {
        match self {
            Layer::Mamba(m) => {
                let Mamba { heads, head_dim, groups, state, conv_kernel, .. } = m;
                format!("{heads} heads × {head_dim}, {groups} groups, state {state}, conv {conv_kernel}")
            }
            Layer::Moe(m) => {
                let latent = m.latent.map_or(String::new(), |l| format!(", latent {l}"));
                let (top_k, shared) = (m.top_k, m.shared_intermediate);
                format!("{} experts top {top_k}, F {}, S {shared}{latent}", m.experts, m.intermediate)
            }
            Layer::Attention(a) => format!("{} query heads, {} KV heads × {}", a.heads, a.kv_heads, a.head_dim),
            Layer::Mlp(m) => format!("width {}", m.intermediate),
        }
    }
}

/// The multi-token prediction head: `steps` copies of `layers`, each with its own weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Mtp {
    /// `num_nextn_predict_layers`, at least 1.
    pub steps: usize,
    /// The layers of one step.
    pub layers: Vec<Layer>,
}

/// A model's architecture.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// V.
    pub vocab_size: usize,
    /// d.
    pub hidden_size: usize,
    pub layers: Vec<Layer>,
    /// The head multiplies by the embedding; there is no `lm_head.weight`.
    pub tie_word_embeddings: bool,
    /// `layer_norm_epsilon`, of every RMS norm.
    pub norm_eps: f32,
    pub bos_token_id: Option<u32>,
    /// Any of these ends a text; may be empty.
    pub eos_token_ids: Vec<u32>,
    pub pad_token_id: Option<u32>,
    /// Standard deviation of initial weights.
    pub initializer_range: f32,
    /// Initial output projections are scaled down by the square root of the layer count.
    pub rescale_prenorm_residual: bool,
    pub mtp: Option<Mtp>,
    /// What `dtype` (or `torch_dtype`) says; the tensors' own headers decide.
    pub dtype: Option<String>,
    /// The keys as they were read, so that saving keeps those that are not interpreted here.
    pub json: Map<String, Value>,
}

impl Config {
    /// Reads `config.json`. Accepts Python's bare `Infinity`.
    ///
    /// Errors name the file, the key, what was found and what was expected.
    pub fn from_file(path: &Path) -> Result<Config> {
        let text = files::read_text(path)?;
        Config::from_json(path, parse::json_of_python(path, &text)?)
    }

    /// Reads a parsed `config.json`; `file` is for error messages only.
    pub fn from_json(file: &Path, json: Value) -> Result<Config> {
        let config = parse::config(file, json)?;
        config.validate(file)?;
        Ok(config)
    }

    /// The JSON to save: plain `nemotron_h` where the layers of each kind are equal, else `nemotron_h_puzzle`.
    ///
    /// Keys that are not interpreted here are kept as they were read. Fails where the architecture has no such form:
    /// Mamba and attention sizes and the routing rules are one set for the whole model.
    pub fn to_json(&self) -> Result<Value> {
        write::json(self)
    }

    /// Checks what the kernels and the format rely on; `file` is for error messages only.
    ///
    /// [`Config::from_json`] has done it; call it on a configuration that was changed in memory.
    pub fn validate(&self, file: &Path) -> Result<()> {
        validate::config(file, self)
    }

    /// How many layers are of `kind`, without the MTP head.
    pub fn count(&self, kind: LayerKind) -> usize {
        self.layers.iter().filter(|layer| layer.kind() == kind).count()
    }

    /// The layers as one letter each, `M` `E` `*` `-`.
    pub fn pattern(&self) -> String {
        self.layers.iter().map(|layer| layer.kind().letter()).collect()
    }
}
