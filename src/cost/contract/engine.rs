//! Where a contract serves: the device and the serving engine.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What computes. The presets are files of `presets/devices`, embedded; any other device is a file of the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    Cpu,
    /// By the name of its preset.
    Gpu(&'static str),
    /// A TOML file; relative to the contract.
    File(PathBuf),
}

/// Presets of GPUs.
pub const GPUS: [&str; 5] = ["rtx-5070", "rtx-5080", "h100", "b200", "gb200"];
const DEVICES: [&str; 7] = ["cpu", "rtx-5070", "rtx-5080", "h100", "b200", "gb200", "FILE.toml"];

impl Device {
    /// As it is written in a contract.
    pub fn name(&self) -> String {
        match self {
            Device::Cpu => "cpu".into(),
            Device::Gpu(name) => (*name).into(),
            Device::File(path) => path.display().to_string(),
        }
    }

    /// The device that `text` names.
    pub fn parse(text: &str) -> Option<Device> {
        match text {
            "cpu" => Some(Device::Cpu),
            _ if text.ends_with(".toml") => Some(Device::File(text.into())),
            _ => GPUS.iter().find(|name| **name == text).map(|name| Device::Gpu(name)),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Device, D::Error> {
        let text = String::deserialize(deserializer)?;
        Device::parse(&text).ok_or_else(|| D::Error::unknown_variant(&text, &DEVICES))
    }
}

/// What serves the model.
#[derive(Clone, Debug, PartialEq)]
pub enum Engine {
    /// This crate's own; written `engine = "builtin"`.
    Builtin,
    /// vLLM; written as a section `[engine]` with `name = "vllm"`.
    Vllm(Vllm),
}

/// How vLLM is started. What a contract's workload says is not repeated: `prefill_chunk` is `max_num_batched_tokens`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Vllm {
    pub version: String,
    pub moe_backend: MoeBackend,
    /// GPUs that share one model. Costs are per GPU, and only 1 is modelled.
    pub tensor_parallel: usize,
    /// Copies of the model, each on its own GPU with its own batch: they change nothing per GPU.
    pub data_parallel: usize,
    /// `max_num_seqs`, which the sampler's buffers are sized by.
    pub max_num_seqs: Option<usize>,
    /// The share of the device's memory that vLLM may take.
    pub gpu_memory_utilization: f64,
    /// Whether decode steps are replayed CUDA graphs.
    pub cuda_graphs: bool,
    /// ε: what the engine takes beyond W + C + P + R, as `profile ingest` measured it. Without it predictions lack it.
    pub reserve_mib: Option<f64>,
}

/// The kernels of the routed experts; they decide how weights are padded and which buffers are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoeBackend {
    /// Triton's grouped product, on weights as they are: BF16 and FP8.
    Triton,
    /// Weights are unpacked to BF16 in registers; products are BF16.
    Marlin,
    /// FlashInfer's CUTLASS kernels: NVFP4 and FP8 products.
    Cutlass,
    /// TensorRT-LLM's kernels.
    Trtllm,
}

impl MoeBackend {
    pub fn name(self) -> &'static str {
        match self {
            MoeBackend::Triton => "triton",
            MoeBackend::Marlin => "marlin",
            MoeBackend::Cutlass => "cutlass",
            MoeBackend::Trtllm => "trtllm",
        }
    }

    /// Multiples that an expert's width F and the width that it reads (d, or the latent) are padded to.
    pub fn tiles(self) -> (usize, usize) {
        match self {
            MoeBackend::Triton => (1, 1),
            MoeBackend::Marlin => (64, 64),
            // Block scales lie in tiles of [128 rows, 4 scales of 16].
            MoeBackend::Cutlass => (128, 64),
            MoeBackend::Trtllm => (128, 256),
        }
    }

    /// Whether only weights are in the low precision: products are in that of the activations.
    pub fn is_weight_only(self) -> bool {
        self == MoeBackend::Marlin
    }
}

/// `[engine]` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[expect(dead_code, reason = "read for its check alone")]
    name: Name,
    version: String,
    moe_backend: MoeBackend,
    #[serde(default = "one")]
    tensor_parallel: usize,
    #[serde(default = "one")]
    data_parallel: usize,
    max_num_seqs: Option<usize>,
    #[serde(default = "utilization")]
    gpu_memory_utilization: f64,
    #[serde(default = "yes")]
    cuda_graphs: bool,
    reserve_mib: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Name {
    Vllm,
}

fn one() -> usize {
    1
}
fn yes() -> bool {
    true
}
/// vLLM's own default.
fn utilization() -> f64 {
    0.92
}

impl Serialize for Engine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Engine::Builtin => serializer.serialize_str("builtin"),
            Engine::Vllm(vllm) => vllm.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Engine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Engine, D::Error> {
        deserializer.deserialize_any(EngineVisitor)
    }
}

struct EngineVisitor;

impl<'de> Visitor<'de> for EngineVisitor {
    type Value = Engine;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"builtin\" or a section [engine]")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Engine, E> {
        match text {
            "builtin" => Ok(Engine::Builtin),
            "vllm" => Err(E::custom("engine \"vllm\", expected a section [engine] with name, version and moe_backend")),
            other => Err(E::unknown_variant(other, &["builtin"])),
        }
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Engine, M::Error> {
        let s = Section::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Engine::Vllm(Vllm {
            version: s.version,
            moe_backend: s.moe_backend,
            tensor_parallel: s.tensor_parallel,
            data_parallel: s.data_parallel,
            max_num_seqs: s.max_num_seqs,
            gpu_memory_utilization: s.gpu_memory_utilization,
            cuda_graphs: s.cuda_graphs,
            reserve_mib: s.reserve_mib,
        }))
    }
}
