//! The contract: where a model is served, what it is asked, and what it may cost.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::model::MIB;
use crate::engine::profile::Workload;
use crate::{Error, Result, config_file, files};

/// A contract file.
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
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Where it was read from, for error messages.
    #[serde(skip)]
    pub file: PathBuf,
    pub device: Device,
    pub engine: Engine,
    pub precision: Precision,
    /// Of the processor.
    pub threads: usize,
    pub workload: Workload,
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    Cpu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// This crate's own.
    Builtin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    F32,
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
        Contract::from_toml(path, &files::read_text(path)?)
    }

    /// Parses `text`; `file` is for error messages only.
    pub fn from_toml(file: &Path, text: &str) -> Result<Contract> {
        let mut contract: Contract = config_file::parse(file, text, "a contract")?;
        contract.file = file.to_path_buf();
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
        self.size("threads", self.threads, 1, MOST_THREADS)?;
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
