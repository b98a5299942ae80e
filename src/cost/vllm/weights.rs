//! W: bytes of weights by component, as the engine's kernels hold them.

use serde::Serialize;

use crate::cost::contract::{Format, MoeBackend, Precision};
use crate::model::Config;
use crate::model::config::{DiskLayout, TensorSpec};

/// All weights of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Weights {
    /// In the order of [`Precision::weights`], without those that the model lacks.
    pub components: Vec<ComponentWeights>,
    /// Of this, what only pads tiles.
    pub padding_bytes: u64,
    pub total_bytes: u64,
}

/// The weights of one component.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComponentWeights {
    pub component: &'static str,
    pub format: Format,
    pub parameters: u64,
    /// Values, block scales and scales of tensors, unpadded.
    pub bytes: u64,
    /// What the kernels' tiles add.
    pub padding_bytes: u64,
}

/// The component of [`Precision`] that a tensor belongs to, by its name in memory.
pub fn component(spec: &TensorSpec) -> &'static str {
    let name = spec.name.as_str();
    let ends = |end: &str| name.ends_with(end);
    match name {
        "backbone.embeddings.weight" => "embedding",
        "lm_head.weight" => "lm_head",
        _ if spec.shape.len() < 2 || ends("conv1d.weight") => "other",
        _ if ends("gate.weight") => "gate",
        _ if name.contains(".experts.") => "experts",
        _ if ends("in_proj.weight") || ends("out_proj.weight") => "mamba",
        _ if name.contains("_latent_proj.") => "latent",
        _ if ["q_proj", "k_proj", "v_proj", "o_proj"].iter().any(|p| ends(&format!("{p}.weight"))) => "attention",
        // A shared expert, or the dense layer that one became.
        _ => "shared_experts",
    }
}

impl Weights {
    /// Of the whole model without its multi-token prediction head.
    pub fn of(config: &Config, precision: &Precision, backend: MoeBackend) -> Weights {
        Weights::of_tensors(&config.tensors(), precision, backend)
    }

    /// Of some of a model's tensors.
    pub fn of_tensors(tensors: &[TensorSpec], precision: &Precision, backend: MoeBackend) -> Weights {
        let formats = precision.weights();
        let mut components: Vec<ComponentWeights> = formats
            .iter()
            .map(|(component, format)| ComponentWeights {
                component,
                format: *format,
                parameters: 0,
                bytes: 0,
                padding_bytes: 0,
            })
            .collect();
        for spec in tensors {
            let name = component(spec);
            if let Some(sum) = components.iter_mut().find(|c| c.component == name) {
                let bytes = sum.format.weight_bytes(spec.elements() as u64, spec.disk_count() as u64);
                sum.parameters += spec.elements() as u64;
                sum.bytes += bytes;
                sum.padding_bytes += padded(spec, name, sum.format, backend).saturating_sub(bytes);
            }
        }
        components.retain(|c| c.parameters > 0);
        let padding_bytes = components.iter().map(|c| c.padding_bytes).sum();
        let total_bytes = padding_bytes + components.iter().map(|c| c.bytes).sum::<u64>();
        Weights { components, padding_bytes, total_bytes }
    }
}

/// Bytes of a tensor whose shape is rounded up to tiles: of routed experts, both widths to the backend's; of other NVFP4
/// products, the block scales to tiles of 128 × 4.
fn padded(spec: &TensorSpec, component: &str, format: Format, backend: MoeBackend) -> u64 {
    let elements = |rows: usize, columns: usize| rows as u64 * columns as u64;
    match (&spec.disk, component, format) {
        (DiskLayout::PerExpert { after, .. }, "experts", _) => {
            let (width, read) = backend.tiles();
            let (rows, columns) = if after.starts_with("up_proj") { (width, read) } else { (read, width) };
            let rows = spec.shape[1].next_multiple_of(rows);
            let columns = spec.shape[2].next_multiple_of(columns);
            let experts = spec.shape[0] as u64;
            format.weight_bytes(experts * elements(rows, columns), experts)
        }
        (_, _, Format::Nvfp4) if spec.shape.len() == 2 => {
            let (rows, columns) = (spec.shape[0], spec.shape[1]);
            let scales = elements(rows.next_multiple_of(128), columns.div_ceil(16).next_multiple_of(4));
            elements(rows, columns).div_ceil(2) + scales + 4
        }
        _ => 0,
    }
}
