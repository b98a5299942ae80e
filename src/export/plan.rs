//! Which tensor is exported in which format.

use std::collections::{BTreeMap, BTreeSet};

use super::encode::BLOCK;
use crate::cost::vllm::component;
use crate::cost::{Format, Precision};
use crate::model::checkpoint::{DiskDtype, StoredTensor};
use crate::model::config::{Config, TensorSpec};

/// What a tensor becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain(DiskDtype),
    Fp8,
    Nvfp4,
}

impl Form {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Form::Plain(DiskDtype::F32) => "f32",
            Form::Plain(DiskDtype::BF16) => "bf16",
            Form::Plain(DiskDtype::F16) => "f16",
            Form::Fp8 => "fp8",
            Form::Nvfp4 => "nvfp4",
        }
    }

    pub fn is_quantised(self) -> bool {
        !matches!(self, Form::Plain(_))
    }
}

/// A tensor's format.
#[derive(Clone, Debug)]
pub struct Planned {
    /// See [`component`].
    pub component: &'static str,
    pub form: Form,
    /// Why it is not in the format that was asked for.
    pub kept_because: Option<String>,
    /// Tensors with the same name here are one product in serving engines, and share the tensor's scale.
    pub fused: Option<String>,
}

/// The format of each of `tensors`, in their order.
pub fn plan(config: &Config, tensors: &[StoredTensor<'_>], precision: &Precision) -> Vec<Planned> {
    let specs = config.tensors();
    let formats: BTreeMap<&str, Format> = precision.weights().into_iter().collect();
    let narrow = narrow_experts(&specs);
    let one = |tensor: &StoredTensor<'_>| {
        let spec = &specs[tensor.spec];
        let tied = is_tied_head(config, tensor);
        let component = if tied { "lm_head" } else { component(spec) };
        let asked = formats.get(component).copied().unwrap_or(Format::Bf16);
        let kept_because = if is_low(asked) { refusal(config, spec, tensor, asked, &narrow) } else { None };
        let form = match asked {
            // The same bytes as the embedding's.
            _ if tied => plain(formats.get("embedding").copied().unwrap_or(Format::Bf16), tensor.dtype),
            _ if kept_because.is_some() => Form::Plain(tensor.dtype),
            Format::Fp8 => Form::Fp8,
            Format::Nvfp4 => Form::Nvfp4,
            // Small, and in serving engines of their own precision: gates, norms, state-space parameters.
            _ if ["gate", "other"].contains(&component) => Form::Plain(tensor.dtype),
            _ => plain(asked, tensor.dtype),
        };
        Planned { component, form, kept_because, fused: fused(&spec.name) }
    };
    tensors.iter().map(one).collect()
}

/// Of what is not quantised: a wider format than it has would hold the same numbers.
fn plain(asked: Format, stored: DiskDtype) -> Form {
    Form::Plain(if asked == Format::Bf16 && stored == DiskDtype::F32 { DiskDtype::BF16 } else { stored })
}

/// The copy of the embedding under the head's name.
fn is_tied_head(config: &Config, tensor: &StoredTensor<'_>) -> bool {
    config.tie_word_embeddings && tensor.name == "lm_head.weight"
}

fn is_low(format: Format) -> bool {
    matches!(format, Format::Fp8 | Format::Nvfp4)
}

/// Why a tensor cannot be in a low format.
fn refusal(
    config: &Config,
    spec: &TensorSpec,
    tensor: &StoredTensor<'_>,
    asked: Format,
    narrow: &BTreeSet<String>,
) -> Option<String> {
    if is_tied_head(config, tensor) {
        return Some("tied to the embedding".into());
    }
    let width = tensor.shape.last().copied().unwrap_or(0);
    if asked == Format::Nvfp4 && !width.is_multiple_of(BLOCK) {
        return Some(format!("rows of {width} values, no multiple of {BLOCK}"));
    }
    let layer = spec.name.split(".mixer.").next().unwrap_or_default();
    let together = asked == Format::Nvfp4 && component(spec) == "experts" && narrow.contains(layer);
    together.then(|| format!("its layer's other projection has rows of no multiple of {BLOCK}"))
}

/// Layers with a projection of routed experts that NVFP4 does not fit: kernels take both projections in one format.
fn narrow_experts(specs: &[TensorSpec]) -> BTreeSet<String> {
    let narrow = |spec: &&TensorSpec| spec.shape.last().is_some_and(|width| !width.is_multiple_of(BLOCK));
    let experts = specs.iter().filter(|spec| component(spec) == "experts").filter(narrow);
    experts.filter_map(|spec| Some(spec.name.split_once(".mixer.")?.0.to_owned())).collect()
}

/// Queries, keys and values are one product in serving engines.
fn fused(name: &str) -> Option<String> {
    let (layer, projection) = name.split_once(".mixer.")?;
    ["q_proj.weight", "k_proj.weight", "v_proj.weight"].contains(&projection).then(|| format!("{layer}.mixer.qkv_proj"))
}
