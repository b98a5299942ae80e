//! What a contract means in words, and where it contradicts itself, its device or its model.

use serde::Serialize;

use super::{Contract, Device, Engine, Format, Vllm, estimate};
use crate::cost::device_spec::DeviceSpec;
use crate::cost::model::MIB;
use crate::cost::vllm::Memory;
use crate::model::Config;
use crate::report;
use crate::supernet::{Axis, SearchSpace};
use crate::{Error, Result};

/// A contract explained.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Sentences, one per line.
    pub words: Vec<String>,
    pub findings: Vec<Finding>,
}

/// Something to know about a contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The key that it is about.
    pub at: String,
    /// Nothing can fulfil the contract as long as this is so.
    pub contradiction: bool,
    /// From times that arithmetic gives, not a measurement.
    pub estimate: bool,
    pub found: String,
    pub expected: String,
}

impl Explanation {
    /// The first contradiction as an error.
    pub fn refuse(&self, contract: &Contract) -> Result<()> {
        match self.findings.iter().find(|finding| finding.contradiction) {
            Some(f) => Err(Error::input(&contract.file, &f.at, &f.found, &f.expected)),
            None => Ok(()),
        }
    }
}

impl Contract {
    /// Explains the contract, and checks it against the device, the parent and the space where these are given: what of it
    /// rests on times says that they are estimates.
    pub fn explain(&self, parent: Option<&Config>, space: Option<&SearchSpace>) -> Result<Explanation> {
        let device = DeviceSpec::of(&self.device)?;
        let mut checks = Checks { contract: self, device: &device, findings: Vec::new() };
        checks.workload(parent);
        if let Engine::Vllm(vllm) = &self.engine {
            checks.formats(vllm);
            checks.engine(vllm);
            if let Some(parent) = parent {
                checks.blocks(parent)?;
                checks.memory(parent, space)?;
            }
        }
        let mut findings = checks.findings;
        // What cannot be anyway needs no estimate.
        let possible = findings.iter().all(|finding| !finding.contradiction);
        if let Some(parent) = parent.filter(|_| possible) {
            findings.extend(estimate::findings(self, parent, space)?);
        }
        Ok(Explanation { words: words(self, &device, parent, space), findings })
    }
}

struct Checks<'c> {
    contract: &'c Contract,
    device: &'c DeviceSpec,
    findings: Vec<Finding>,
}

impl Checks<'_> {
    fn add(&mut self, contradiction: bool, at: &str, found: impl ToString, expected: impl Into<String>) {
        let finding = Finding {
            at: at.into(),
            contradiction,
            estimate: false,
            found: found.to_string(),
            expected: expected.into(),
        };
        self.findings.push(finding);
    }

    fn workload(&mut self, parent: Option<&Config>) {
        let w = &self.contract.workload;
        let longest = parent.and_then(|parent| parent.json.get("max_position_embeddings")?.as_u64());
        if let Some(longest) = longest.filter(|longest| w.capacity() as u64 > *longest) {
            let found = format!("{} tokens with the cached ones and the output", w.capacity());
            let expected = format!("at most {longest}, the parent's max_position_embeddings");
            // The family has no positional embedding: longer texts compute, and were not trained.
            self.add(w.cached_tokens.max(w.input_tokens) as u64 > longest, "workload", found, expected);
        }
        let (latency, serving) = (self.contract.limits.latency_ms, self.contract.serving_seconds());
        if let (Some(latency), Some(serving)) = (latency, serving) {
            let (loose, tight) =
                if latency < 1e3 * serving { ("throughput", "latency_ms") } else { ("latency_ms", "throughput") };
            let found = format!("{latency} ms beside a throughput that allows {:.0} ms", 1e3 * serving);
            self.add(false, &format!("limits.{loose}"), found, format!("{tight} alone: it implies the other"));
        }
    }

    fn formats(&mut self, vllm: &Vllm) {
        for (component, format) in self.contract.precision.weights() {
            if self.device.rate(format).is_some() {
                continue;
            }
            let at = format!("precision.{component}");
            let found = format!("{} on {}, which has no such tensor cores", format.name(), self.device.name);
            let weight_only = component != "experts" || vllm.moe_backend.is_weight_only();
            let expected = if weight_only {
                "that weights are stored so and products emulated in bf16".to_owned()
            } else {
                format!(
                    "bf16 or fp8, or moe_backend = \"marlin\": {} multiplies in {}",
                    vllm.moe_backend.name(),
                    format.name()
                )
            };
            self.add(!weight_only, &at, found, expected);
        }
        if vllm.moe_backend == super::MoeBackend::Triton && self.contract.precision.experts == Format::Nvfp4 {
            let expected = "marlin, cutlass or trtllm, which read NVFP4 experts";
            self.add(true, "engine.moe_backend", "triton", expected);
        }
    }

    fn engine(&mut self, vllm: &Vllm) {
        let w = &self.contract.workload;
        let sequences = vllm.max_num_seqs.unwrap_or(w.batch);
        if w.batch > sequences {
            self.add(true, "engine.max_num_seqs", sequences, format!("at least the batch, {}", w.batch));
        }
        if w.prefill_chunk < sequences {
            let found = format!("{} (max_num_batched_tokens)", w.prefill_chunk);
            self.add(true, "workload.prefill_chunk", found, format!("at least max_num_seqs, {sequences}"));
        }
        let (device, share) = (self.device.memory_bytes as f64, vllm.gpu_memory_utilization);
        if let Some(limit) = self.contract.limits.memory_mib.filter(|limit| limit * MIB > share * device) {
            let found = format!("{limit} MiB");
            let most = share * device / MIB;
            let expected = format!("at most {most:.0} MiB, {share} of the memory of {}", self.device.name);
            // What is over the device's memory, rounding aside, is no limit.
            self.add(limit * MIB > 1.001 * device, "limits.memory_mib", found, expected);
        }
    }

    fn blocks(&mut self, parent: &Config) -> Result<()> {
        let w = &self.contract.workload;
        let caches = Memory::of(parent, self.contract)?.caches;
        if caches.attention_layers == 0 || caches.mamba_layers == 0 {
            return Ok(());
        }
        let block = caches.block_tokens;
        let page = format!("a page of {} tokens, which holds a Mamba layer's {} bytes", block, caches.state_bytes);
        if w.cached_tokens > 0 && (w.prefill_chunk as u64) < block {
            let expected = format!("at least {page}: cached prefixes end at pages");
            self.add(true, "workload.prefill_chunk", w.prefill_chunk, expected);
        }
        if (w.capacity() as u64) < block {
            let found = format!("{} tokens", w.capacity());
            self.add(false, "workload", found, format!("{page}: a sequence takes one whole"));
        }
        Ok(())
    }

    /// Whether anything of the space fits.
    fn memory(&mut self, parent: &Config, space: Option<&SearchSpace>) -> Result<()> {
        let smallest = match space {
            Some(space) => smallest(space)?,
            None => parent.clone(),
        };
        let of = if space.is_some() { "the smallest architecture of the space" } else { "the parent" };
        let memory = Memory::of(&smallest, self.contract)?;
        let weights = memory.weights.total_bytes as f64;
        let (key, limit) = match self.contract.limits.memory_mib {
            Some(limit) => ("limits.memory_mib", limit * MIB),
            None => ("device", self.device.memory_bytes as f64),
        };
        let contradiction = space.is_some();
        if weights > limit {
            let expected = format!("at least {:.0} MiB, the weights alone of {of}", weights / MIB);
            self.add(contradiction, key, format!("{:.0} MiB", limit / MIB), expected);
        } else if memory.total_bytes as f64 > limit {
            let expected = format!(
                "at least {:.0} MiB, what {of} takes: weights {:.0}, caches {:.0}, workspace {:.0}, ε {:.0}",
                memory.total_bytes as f64 / MIB,
                weights / MIB,
                memory.caches.total_bytes as f64 / MIB,
                memory.workspace.total_bytes() as f64 / MIB,
                memory.reserve_bytes.unwrap_or(0) as f64 / MIB,
            );
            self.add(contradiction, key, format!("{:.0} MiB", limit / MIB), expected);
        }
        Ok(())
    }
}

/// The smallest candidate of every gate, and one layer at least.
fn smallest(space: &SearchSpace) -> Result<Config> {
    let mut choice = space.parent_choice();
    choice.0.fill(0);
    let config = space.config_of(&choice);
    if config.is_ok() {
        return config;
    }
    // A space that may remove every layer keeps its first one.
    if let Some(gate) = space.gates.iter().position(|g| matches!(g.axis, Axis::KeepMamba | Axis::Shared)) {
        choice.0[gate] = 1;
    }
    space.config_of(&choice)
}

fn words(
    contract: &Contract,
    device: &DeviceSpec,
    parent: Option<&Config>,
    space: Option<&SearchSpace>,
) -> Vec<String> {
    let w = &contract.workload;
    let mut words = vec![match &contract.engine {
        Engine::Builtin => {
            format!("Served by this program's own engine on {} thread(s) of this machine.", contract.threads)
        }
        Engine::Vllm(v) => format!(
            "Served by vLLM {} on {} ({:.1} GiB), experts by {} kernels{}{}.",
            v.version,
            device.name,
            device.memory_bytes as f64 / MIB / 1024.0,
            v.moe_backend.name(),
            if v.data_parallel > 1 {
                format!(", {} copies on a GPU each; all numbers are per GPU", v.data_parallel)
            } else {
                String::new()
            },
            if v.cuda_graphs { ", decode steps as CUDA graphs" } else { "" },
        ),
    }];
    if contract.device != Device::Cpu {
        let formats = |list: &[(&str, Format)]| {
            list.iter().map(|(name, format)| format!("{name} {}", format.name())).collect::<Vec<_>>().join(", ")
        };
        let p = &contract.precision;
        words.push(format!("Weights: {}. Else: {}.", formats(&p.weights()), formats(&p.states())));
    }
    let cached = if w.cached_tokens > 0 { format!("{} tokens cached, ", w.cached_tokens) } else { String::new() };
    words.push(format!(
        "{} request(s) at once, each with {cached}{} tokens of input and {} of output; prefill in chunks of {}.",
        w.batch, w.input_tokens, w.output_tokens, w.prefill_chunk
    ));
    words.extend(limits(contract));
    if let Some(parent) = parent {
        let p = parent.parameters();
        words.push(format!(
            "Meant for a parent of {} parameters, {} layers.",
            report::count(p.total),
            parent.layers.len()
        ));
    }
    if let Some(space) = space {
        // Beyond the range of floats no space is.
        let count = space.count().to_string().parse::<f64>().unwrap_or(f64::INFINITY);
        words.push(format!("Searched in a space of {count:.2e} architectures, {} gates.", space.gates.len()));
    }
    if let Some(alpha) = contract.search.alpha {
        words.push(format!("Missing a limit weighs α = {alpha}."));
    }
    words
}

fn limits(contract: &Contract) -> Vec<String> {
    let l = &contract.limits;
    let mut words = Vec::new();
    if let Some(ms) = l.latency_ms {
        words.push(format!(
            "A request takes at most {ms} ms: prefill and {} decode steps.",
            contract.workload.output_tokens
        ));
    }
    if let Some(mib) = l.memory_mib {
        let larger = if mib >= 1024.0 { format!(" ({:.2} GiB)", mib / 1024.0) } else { String::new() };
        words.push(format!("It takes at most {mib} MiB{larger} of memory."));
    }
    if let (Some(throughput), Some(seconds)) = (l.throughput, contract.serving_seconds()) {
        words.push(format!(
            "At least {throughput} tokens per second are generated: {} tokens of the batch within {seconds:.1} s.",
            contract.generated_tokens()
        ));
    }
    let shares =
        [("latency", l.latency_of_parent), ("memory", l.memory_of_parent), ("throughput", l.throughput_of_parent)];
    for (name, share) in shares {
        if let Some(share) = share {
            let bound = if name == "throughput" { "least" } else { "most" };
            words.push(format!("Its {name} is at {bound} {share} times the parent's, measured on the same machine."));
        }
    }
    words
}
