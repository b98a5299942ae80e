//! The contract: where a model is served, what it is asked, and what it may cost.

mod check;
mod engine;
mod estimate;
mod precision;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use check::{Explanation, Finding};
pub use engine::{Device, Engine, GPUS, MoeBackend, Vllm};
pub use precision::{Format, Precision};

use super::model::MIB;
use crate::engine::profile::Workload;
use crate::{Error, Result, config_file, files};

/// A contract file. With this crate's own engine, which `--device cuda` puts on a GPU, whatever device and precision are here:
///
/// ```toml
/// device = "cpu"
/// engine = "builtin"
/// precision = "f32"
/// threads = 2
///
/// [workload]
/// batch = 4
/// cached_tokens = 0          # in the caches before the request
/// input_tokens = 256
/// output_tokens = 32
/// prefill_chunk = 256
///
/// [limits]                   # at least one
/// latency_ms = 150           # of a request: prefill and all decode steps
/// memory_mib = 4             # at its peak
/// throughput = 900           # generated tokens per second, at least
/// ```
///
/// A limit may also be a share of what the parent takes, measured on the same machine: `latency_of_parent = 0.5`,
/// `memory_of_parent = 0.5`, `throughput_of_parent = 2.0`.
///
/// Of a deployment with vLLM:
///
/// ```toml
/// device = "rtx-5070"        # a preset of presets/devices, or a file
///
/// [engine]
/// name = "vllm"
/// version = "0.27.1"
/// moe_backend = "cutlass"
///
/// [precision]                # what is absent is bf16, the SSM state f32
/// experts = "nvfp4"
/// kv_cache = "fp8"
///
/// [workload]
/// batch = 1                  # per GPU
/// input_tokens = 2048
/// output_tokens = 256
/// prefill_chunk = 2048       # max_num_batched_tokens
///
/// [limits]
/// latency_ms = 750
///
/// [search]                   # what it is meant for; all optional
/// parent = "../parents/nano-3-12b.json"
/// space = "../spaces/nano-3-12b.toml"
/// alpha = 1.0
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Where it was read from, for error messages.
    #[serde(skip)]
    pub file: PathBuf,
    pub device: Device,
    pub engine: Engine,
    pub precision: Precision,
    /// Of the processor, for this crate's own engine; else 0.
    #[serde(default)]
    pub threads: usize,
    pub workload: Workload,
    pub limits: Limits,
    #[serde(default)]
    pub search: Intended,
}

/// What a contract is meant for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intended {
    /// A model's folder or its `config.json`; relative to the contract.
    pub parent: Option<PathBuf>,
    pub space: Option<PathBuf>,
    /// Weight of the penalty for missing the limits.
    pub alpha: Option<f64>,
}

/// What must hold; each above 0, each quantity at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Of a request, at most.
    pub latency_ms: Option<f64>,
    /// Peak, at most.
    pub memory_mib: Option<f64>,
    /// Generated tokens of the whole batch per second, at least.
    pub throughput: Option<f64>,
    /// The same as shares of the parent's, as it is measured.
    pub latency_of_parent: Option<f64>,
    pub memory_of_parent: Option<f64>,
    pub throughput_of_parent: Option<f64>,
}

/// More is a slip of the pen: sizes up to here cannot overflow.
const MOST_TOKENS: usize = 1 << 24;
const MOST_SEQUENCES: usize = 1 << 16;
const MOST_THREADS: usize = 1 << 12;

impl Contract {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`Error::Input`] naming the file and the key: an unknown key, a size of 0, a limit that is no positive number, no
    /// limit at all, or a throughput limit where nothing is generated.
    pub fn from_file(path: &Path) -> Result<Contract> {
        Contract::from_toml(path, &files::read_input_text(path)?)
    }

    /// One that another file names: a regular file.
    pub fn from_named_file(path: &Path) -> Result<Contract> {
        Contract::from_toml(path, &files::read_text(path)?)
    }

    /// Parses `text`; `file` is for error messages only.
    pub fn from_toml(file: &Path, text: &str) -> Result<Contract> {
        let mut contract: Contract = config_file::parse(file, text, "a contract")?;
        contract.file = file.to_path_buf();
        let folder = files::parent(file);
        let Intended { parent, space, .. } = &mut contract.search;
        for path in [parent, space].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        if let Device::File(path) = &mut contract.device {
            *path = folder.join(&*path);
        }
        contract.check()?;
        Ok(contract)
    }

    /// The same contract with every share of the parent's cost as a number, where the parent's request takes `seconds` and
    /// its peak is `bytes`.
    pub fn resolve(&self, seconds: f64, bytes: f64) -> Contract {
        let of = |limit: Option<f64>, share: Option<f64>, cost: f64| limit.or(share.map(|share| share * cost));
        let l = self.limits;
        let limits = Limits {
            latency_ms: of(l.latency_ms, l.latency_of_parent, 1e3 * seconds),
            memory_mib: of(l.memory_mib, l.memory_of_parent, bytes / MIB),
            throughput: of(l.throughput, l.throughput_of_parent, self.generated_tokens() / seconds),
            ..Limits::default()
        };
        Contract { limits, ..self.clone() }
    }

    /// Of the whole batch in a request.
    pub fn generated_tokens(&self) -> f64 {
        (self.workload.batch * self.workload.output_tokens) as f64
    }

    /// The most seconds a request may take for the throughput limit: generated tokens of the batch over the limit.
    pub fn serving_seconds(&self) -> Option<f64> {
        self.limits.throughput.map(|limit| self.generated_tokens() / limit)
    }

    fn check(&self) -> Result<()> {
        let w = &self.workload;
        self.check_engine()?;
        self.size("workload.batch", w.batch, 1, MOST_SEQUENCES)?;
        self.size("workload.cached_tokens", w.cached_tokens, 0, MOST_TOKENS)?;
        self.size("workload.input_tokens", w.input_tokens, 1, MOST_TOKENS)?;
        self.size("workload.output_tokens", w.output_tokens, 0, MOST_TOKENS)?;
        self.size("workload.prefill_chunk", w.prefill_chunk, 1, MOST_TOKENS)?;
        let l = &self.limits;
        let limits = [
            ("latency_ms", l.latency_ms, "latency_of_parent", l.latency_of_parent),
            ("memory_mib", l.memory_mib, "memory_of_parent", l.memory_of_parent),
            ("throughput", l.throughput, "throughput_of_parent", l.throughput_of_parent),
        ];
        for (key, limit, share_key, share) in limits {
            for (key, limit) in [(key, limit), (share_key, share)] {
                if let Some(limit) = limit.filter(|limit| !(limit.is_finite() && *limit > 0.0)) {
                    return self.fault(&format!("limits.{key}"), limit, "a number above 0");
                }
            }
            if limit.is_some() && share.is_some() {
                return self.fault(&format!("limits.{key}"), format!("{share_key} beside it"), "one of the two");
            }
        }
        if limits.iter().all(|(_, limit, _, share)| limit.is_none() && share.is_none()) {
            let expected = "at least one of latency_ms, memory_mib, throughput, or a share of the parent's";
            return self.fault("limits", "no limit", expected);
        }
        let throughput = l.throughput.or(l.throughput_of_parent);
        if throughput.is_some() && w.output_tokens == 0 {
            return self.fault("workload.output_tokens", 0, "at least 1 where throughput is limited");
        }
        Ok(())
    }

    fn check_engine(&self) -> Result<()> {
        let Engine::Vllm(vllm) = &self.engine else {
            if self.device != Device::Cpu {
                return self.fault("device", self.device.name(), "cpu, where this crate's own engine serves");
            }
            if self.precision != Precision::F32 {
                return self.fault("precision", "another one", "f32, which this crate's own engine computes in");
            }
            return self.size("threads", self.threads, 1, MOST_THREADS);
        };
        if self.threads > 0 {
            return self.fault("threads", self.threads, "no such key: it is for engine = \"builtin\"");
        }
        if self.device == Device::Cpu {
            return self.fault("device", "cpu", "a GPU, where vLLM serves");
        }
        if vllm.tensor_parallel != 1 {
            let expected = "1: a model on several GPUs is not modelled";
            return self.fault("engine.tensor_parallel", vllm.tensor_parallel, expected);
        }
        self.size("engine.data_parallel", vllm.data_parallel, 1, MOST_SEQUENCES)?;
        self.size("engine.max_num_seqs", vllm.max_num_seqs.unwrap_or(1), 1, MOST_SEQUENCES)?;
        let share = vllm.gpu_memory_utilization;
        if !(share > 0.0 && share <= 1.0) {
            return self.fault("engine.gpu_memory_utilization", share, "above 0 and at most 1");
        }
        if let Some(reserve) = vllm.reserve_mib.filter(|reserve| !(reserve.is_finite() && *reserve >= 0.0)) {
            return self.fault("engine.reserve_mib", reserve, "a number of at least 0");
        }
        if let Some(alpha) = self.search.alpha.filter(|alpha| !(alpha.is_finite() && *alpha >= 0.0)) {
            return self.fault("search.alpha", alpha, "a number of at least 0");
        }
        self.check_formats()
    }

    /// Formats that vLLM has for a component.
    fn check_formats(&self) -> Result<()> {
        use Format::{Bf16, F32, Fp8, Nvfp4};
        let all = self.precision.weights().into_iter().chain(self.precision.states());
        for (component, format) in all {
            let allowed: &[Format] = match component {
                "embedding" | "gate" | "other" | "activations" | "conv_state" | "ssm_state" => &[F32, Bf16],
                "kv_cache" => &[Bf16, Fp8],
                _ => &[F32, Bf16, Fp8, Nvfp4],
            };
            if !allowed.contains(&format) {
                let names: Vec<&str> = allowed.iter().map(|format| format.name()).collect();
                return self.fault(&format!("precision.{component}"), format.name(), &names.join(" or "));
            }
        }
        Ok(())
    }

    /// Whether this program serves models as the contract asks, so that they can be measured where it runs.
    pub fn is_served_here(&self) -> bool {
        self.engine == Engine::Builtin
    }

    /// Refuses what this machine cannot measure.
    ///
    /// # Errors
    /// [`Error::Input`] where another engine than this crate's own serves.
    pub fn measured_here(&self) -> Result<()> {
        match self.engine {
            Engine::Builtin => Ok(()),
            Engine::Vllm(_) => {
                let expected = "\"builtin\", which this program measures; of vLLM, `profile plan` and `profile ingest` make a \
                                table, by which `run` goes as far as `evaluate`";
                self.fault("engine", "vllm", expected)
            }
        }
    }

    /// How vLLM is started.
    ///
    /// # Errors
    /// [`Error::Input`] where this crate's own engine serves.
    pub fn vllm(&self) -> Result<&Vllm> {
        match &self.engine {
            Engine::Vllm(vllm) => Ok(vllm),
            Engine::Builtin => self.fault("engine", "builtin", "a section [engine] with name = \"vllm\""),
        }
    }

    fn size(&self, key: &str, found: usize, least: usize, most: usize) -> Result<()> {
        if (least..=most).contains(&found) {
            return Ok(());
        }
        self.fault(key, found, &format!("from {least} to {most}"))
    }

    fn fault<T>(&self, key: &str, found: impl ToString, expected: &str) -> Result<T> {
        Err(Error::input(&self.file, key, found.to_string(), expected))
    }
}
