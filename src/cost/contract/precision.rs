//! The number formats that a model is deployed in, component by component.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    F32,
    Bf16,
    /// e4m3, with one f32 scale a tensor.
    Fp8,
    /// e2m1, with an e4m3 scale for every 16 values and an f32 scale a tensor.
    Nvfp4,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::F32 => "f32",
            Format::Bf16 => "bf16",
            Format::Fp8 => "fp8",
            Format::Nvfp4 => "nvfp4",
        }
    }

    /// Bytes of one value, block scales included: 0.5625 for NVFP4.
    pub fn bytes(self) -> f64 {
        match self {
            Format::F32 => 4.0,
            Format::Bf16 => 2.0,
            Format::Fp8 => 1.0,
            Format::Nvfp4 => 0.5625,
        }
    }

    /// Bytes of `values` weights in `tensors` tensors: values, block scales, scales of the tensors.
    pub fn weight_bytes(self, values: u64, tensors: u64) -> u64 {
        match self {
            Format::F32 => 4 * values,
            Format::Bf16 => 2 * values,
            Format::Fp8 => values + 4 * tensors,
            Format::Nvfp4 => values.div_ceil(2) + values.div_ceil(16) + 4 * tensors,
        }
    }
}

/// The format of every component. Written as one name for all (`"f32"`, `"bf16"`) or as a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Up and down projections of routed experts.
    pub experts: Format,
    /// Of shared experts, and of the dense layers that are left of a MoE layer without routed experts.
    pub shared_experts: Format,
    /// in_proj and out_proj of Mamba layers.
    pub mamba: Format,
    pub attention: Format,
    /// The projections into and out of the space that routed experts work in.
    pub latent: Format,
    pub lm_head: Format,
    pub embedding: Format,
    /// The router's weight.
    pub gate: Format,
    /// Norms, convolutions, state-space parameters.
    pub other: Format,
    pub activations: Format,
    pub kv_cache: Format,
    pub conv_state: Format,
    pub ssm_state: Format,
}

impl Precision {
    pub const F32: Precision = Precision::all(Format::F32);

    /// One format everywhere.
    const fn all(format: Format) -> Precision {
        Precision {
            experts: format,
            shared_experts: format,
            mamba: format,
            attention: format,
            latent: format,
            lm_head: format,
            embedding: format,
            gate: format,
            other: format,
            activations: format,
            kv_cache: format,
            conv_state: format,
            ssm_state: format,
        }
    }

    /// BF16 everywhere but in the SSM states, which are summed up over a whole text.
    pub const BF16: Precision = Precision { ssm_state: Format::F32, ..Precision::all(Format::Bf16) };

    /// Components of weights with their keys.
    pub fn weights(&self) -> [(&'static str, Format); 9] {
        [
            ("experts", self.experts),
            ("shared_experts", self.shared_experts),
            ("mamba", self.mamba),
            ("attention", self.attention),
            ("latent", self.latent),
            ("lm_head", self.lm_head),
            ("embedding", self.embedding),
            ("gate", self.gate),
            ("other", self.other),
        ]
    }

    /// What is no weight.
    pub fn states(&self) -> [(&'static str, Format); 4] {
        [
            ("activations", self.activations),
            ("kv_cache", self.kv_cache),
            ("conv_state", self.conv_state),
            ("ssm_state", self.ssm_state),
        ]
    }
}

/// `[precision]` as it is written: what is absent is BF16, the SSM state F32.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    experts: Option<Format>,
    shared_experts: Option<Format>,
    mamba: Option<Format>,
    attention: Option<Format>,
    latent: Option<Format>,
    lm_head: Option<Format>,
    embedding: Option<Format>,
    gate: Option<Format>,
    other: Option<Format>,
    activations: Option<Format>,
    kv_cache: Option<Format>,
    conv_state: Option<Format>,
    ssm_state: Option<Format>,
}

impl Serialize for Precision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Precision::F32 => serializer.serialize_str("f32"),
            Precision::BF16 => serializer.serialize_str("bf16"),
            _ => serializer.collect_map(self.weights().into_iter().chain(self.states())),
        }
    }
}

impl<'de> Deserialize<'de> for Precision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
        deserializer.deserialize_any(PrecisionVisitor)
    }
}

struct PrecisionVisitor;

impl<'de> Visitor<'de> for PrecisionVisitor {
    type Value = Precision;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"f32\", \"bf16\" or a section [precision]")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Precision, E> {
        match text {
            "f32" => Ok(Precision::F32),
            "bf16" => Ok(Precision::BF16),
            other => Err(E::unknown_variant(other, &["f32", "bf16"])),
        }
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Precision, M::Error> {
        let s = Section::deserialize(MapAccessDeserializer::new(map))?;
        let base = Precision::BF16;
        Ok(Precision {
            experts: s.experts.unwrap_or(base.experts),
            shared_experts: s.shared_experts.unwrap_or(base.shared_experts),
            mamba: s.mamba.unwrap_or(base.mamba),
            attention: s.attention.unwrap_or(base.attention),
            latent: s.latent.unwrap_or(base.latent),
            lm_head: s.lm_head.unwrap_or(base.lm_head),
            embedding: s.embedding.unwrap_or(base.embedding),
            gate: s.gate.unwrap_or(base.gate),
            other: s.other.unwrap_or(base.other),
            activations: s.activations.unwrap_or(base.activations),
            kv_cache: s.kv_cache.unwrap_or(base.kv_cache),
            conv_state: s.conv_state.unwrap_or(base.conv_state),
            ssm_state: s.ssm_state.unwrap_or(base.ssm_state),
        })
    }
}
