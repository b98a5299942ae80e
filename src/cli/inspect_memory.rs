//! `inspect --contract`: what a model takes of a GPU under a contract, term by term.

use std::path::Path;

use serde_json::{Value, json};

use super::output;
use crate::Result;
use crate::cost::vllm::Memory;
use crate::cost::{Contract, DeviceSpec, MIB, Origin, RequestTime, Table};
use crate::model::Config;

/// Memory, and the time of a request where there is a table.
pub fn run(config: &Config, contract: &Path, table: Option<&Path>, as_json: bool) -> Result<()> {
    let contract = Contract::from_file(contract)?;
    let memory = Memory::of(config, &contract)?;
    let time = match table {
        Some(path) => {
            let time = RequestTime::of(config, &contract.workload, &Table::from_file(path)?);
            Some((time.map_err(|e| e.within(path))?, Origin::of(path)?.map(|origin| origin.to_string())))
        }
        None => None,
    };
    if as_json {
        return output::json(&json_of(&memory, &contract, time.as_ref()));
    }
    output::line(&text(&memory, &contract, time.as_ref())?)
}

/// A request's time, and the device of the table that it is from.
type Timed = (RequestTime, Option<String>);

fn json_of(memory: &Memory, contract: &Contract, time: Option<&Timed>) -> Value {
    json!({
        "memory": memory,
        "terms": terms(memory).into_iter().map(|(name, bytes, _)| (name.to_owned(), json!(bytes))).collect::<serde_json::Map<_, _>>(),
        "conventional_shortfall": memory.shortfall(),
        "limit_bytes": contract.limits.memory_mib.map(|mib| mib * MIB),
        "request": time.map(|(time, _)| time),
        "table_measured_on": time.and_then(|(_, device)| device.as_ref()),
    })
}

/// Name, bytes, and what it is.
fn terms(m: &Memory) -> Vec<(&'static str, u64, String)> {
    let (w, c, s) = (&m.weights, &m.caches, &m.workspace);
    let layer = |at: Option<usize>| at.map_or(String::new(), |i| format!(", widest: layer {i}"));
    let mut terms = vec![
        ("W", w.total_bytes - w.padding_bytes, "weights".to_owned()),
        ("W padding", w.padding_bytes, "what the kernels' tiles add to weights".to_owned()),
        (
            "C",
            c.total_bytes,
            format!(
                "caches: {} sequence(s) × {} blocks × {} pages of {} B ({} tokens)",
                c.sequences, c.blocks_per_sequence, c.group_layers, c.page_bytes, c.block_tokens
            ),
        ),
        ("P", s.prefill_bytes, "attention's buffers of a prefill chunk".to_owned()),
        ("R MoE", s.moe.total_bytes(), format!("buffers of MoE products{}", layer(s.widest_moe_layer))),
        ("R Mamba", s.mamba.total_bytes(), format!("buffers of projection and scan{}", layer(s.widest_mamba_layer))),
        ("R sampler", s.sampler_bytes, "logits and what is sorted of them".to_owned()),
    ];
    if s.mlp_bytes > 0 {
        terms.push(("R dense", s.mlp_bytes, "buffers of dense layers".to_owned()));
    }
    if let Some(reserve) = m.reserve_bytes {
        terms.push(("ε", reserve, "what a measurement found beyond the rest".to_owned()));
    }
    terms
}

fn text(memory: &Memory, contract: &Contract, time: Option<&Timed>) -> Result<String> {
    let (unit, name) = if memory.total_bytes as f64 >= 1024.0 * MIB { (1024.0 * MIB, "GiB") } else { (MIB, "MiB") };
    let in_unit = |bytes: f64| format!("{:>8.3} {name}", bytes / unit);
    let share = |bytes: f64| format!("{:>5.1} %", 100.0 * bytes / memory.total_bytes as f64);
    let mut lines = vec![format!("{:<12}{:>12}  {:>7}", "weights", "parameters", "")];
    for c in &memory.weights.components {
        let padding = if c.padding_bytes > 0 {
            format!(" + {} padding", output::bytes(c.padding_bytes as f64))
        } else {
            String::new()
        };
        lines.push(format!(
            "  {:<16}{:>9} {:<6}{}{padding}",
            c.component,
            output::count(c.parameters),
            c.format.name(),
            output::bytes(c.bytes as f64)
        ));
    }
    for (name, bytes, what) in terms(memory) {
        lines.push(format!("{name:<12}{} {}  {what}", in_unit(bytes as f64), share(bytes as f64)));
    }
    let missing =
        if memory.reserve_bytes.is_some() { "" } else { "  without ε: measure it, then set engine.reserve_mib" };
    lines.push(format!(
        "{:<12}{} {}{missing}",
        "in all",
        in_unit(memory.total_bytes as f64),
        share(memory.total_bytes as f64)
    ));
    let c = &memory.conventional;
    lines.push(format!(
        "{:<12}{}          weights {}, KV cache {}, states {}, a MoE layer's activations {}",
        "conventional",
        in_unit(c.total_bytes as f64),
        output::bytes(c.weights_bytes as f64),
        output::bytes(c.kv_cache_bytes as f64),
        output::bytes(c.state_bytes as f64),
        output::bytes(c.moe_buffer_bytes as f64)
    ));
    lines.push(format!(
        "{:<12}{} {}",
        "difference",
        in_unit((memory.total_bytes as f64) - c.total_bytes as f64),
        share(memory.total_bytes as f64 - c.total_bytes as f64)
    ));
    if let Some(limit) = contract.limits.memory_mib {
        lines.push(format!(
            "{:<12}{}          ρ {:.4}",
            "limit",
            in_unit(limit * MIB),
            memory.total_bytes as f64 / (limit * MIB)
        ));
    }
    let device = DeviceSpec::of(&contract.device)?;
    lines.push(format!("{:<12}{}          {}", "device", in_unit(device.memory_bytes as f64), device.name));
    if let Some((t, device)) = time {
        let estimate = match t.estimates {
            0 => String::new(),
            n => format!(" (estimate: {n} of {} rows)", t.rows),
        };
        lines.push(format!(
            "request     {:.1} ms: prefill {:.1} ms, {} steps of {:.1} µs; {:.0} tokens per second{estimate}",
            1e3 * t.request_seconds,
            1e3 * t.prefill_seconds,
            contract.workload.output_tokens,
            1e6 * t.decode_step_seconds,
            t.throughput
        ));
        lines.push(match device {
            Some(device) => format!("table       rows of {device}"),
            None => {
                "table       does not tell the device of its rows: the request's time holds for that one".to_owned()
            }
        });
    }
    Ok(lines.join("\n"))
}
