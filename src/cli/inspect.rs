use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::output;
use crate::Result;
use crate::model::checkpoint::CheckpointInfo;
use crate::model::config::{Config, Layer, LayerKind};

/// Sizes of a model: parameters, tensors, layers, bytes per precision.
#[derive(clap::Args)]
pub struct Args {
    /// A model's folder, or a bare config.json.
    model: PathBuf,
    /// A contract of a deployment with vLLM: what the model takes of its GPU, term by term.
    #[arg(long, value_name = "FILE")]
    contract: Option<PathBuf>,
    /// A cost table of the deployment: what a request takes.
    #[arg(long, value_name = "CSV", requires = "contract")]
    table: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    if let Some(contract) = &args.contract {
        let config = super::contract::config(&args.model)?;
        return super::inspect_memory::run(&config, contract, args.table.as_deref(), args.json);
    }
    let info = CheckpointInfo::read(&args.model)?;
    if args.json { output::json(&as_json(&info)) } else { output::line(&as_text(&info)) }
}

fn as_json(info: &CheckpointInfo) -> Value {
    let (p, t, b) = (&info.parameters, &info.tensors, &info.bytes_at);
    json!({
        "parameters": { "total": p.total, "active": p.active, "mtp": p.mtp },
        "tensors": { "model": t.model, "mtp": t.mtp },
        "hidden_size": info.config.hidden_size,
        "vocab_size": info.config.vocab_size,
        "tie_word_embeddings": info.config.tie_word_embeddings,
        "pattern": info.config.pattern(),
        "layers": info.config.layers.iter().map(layer_json).collect::<Vec<_>>(),
        "bytes": { "f32": b.f32, "bf16": b.bf16, "fp8": b.fp8, "nvfp4": b.nvfp4 },
        "stored": info.stored.as_ref().map(|s| json!({
            "files": s.files, "tensors": s.tensors, "bytes": s.bytes,
            "by_dtype": s.by_dtype.iter().map(|(dtype, (tensors, bytes))| {
                (dtype.clone(), json!({ "tensors": tensors, "bytes": bytes }))
            }).collect::<BTreeMap<_, _>>(),
        })),
    })
}

fn layer_json(layer: &Layer) -> Value {
    match layer {
        Layer::Mamba(m) => json!({ "kind": "mamba", "heads": m.heads, "head_dim": m.head_dim, "groups": m.groups,
            "state": m.state, "conv_kernel": m.conv_kernel, "chunk_size": m.chunk_size }),
        Layer::Moe(m) => json!({ "kind": "moe", "experts": m.experts, "top_k": m.top_k, "intermediate": m.intermediate,
            "shared_intermediate": m.shared_intermediate, "latent": m.latent, "n_group": m.n_group,
            "topk_group": m.topk_group }),
        Layer::Attention(a) => {
            json!({ "kind": "attention", "heads": a.heads, "kv_heads": a.kv_heads, "head_dim": a.head_dim })
        }
        Layer::Mlp(m) => json!({ "kind": "mlp", "intermediate": m.intermediate }),
    }
}

fn as_text(info: &CheckpointInfo) -> String {
    let (p, t, b) = (&info.parameters, &info.tensors, &info.bytes_at);
    let mut lines = vec![
        format!(
            "parameters   {} total ({}), {} active ({})",
            output::count(p.total),
            p.total,
            output::count(p.active),
            p.active
        ),
        format!("tensors      {}", t.model),
        format!("hidden size  {}, vocabulary {}", info.config.hidden_size, info.config.vocab_size),
        format!("layers       {}  {}", info.config.layers.len(), info.config.pattern()),
    ];
    lines.extend(kinds(&info.config));
    if p.mtp > 0 {
        lines.push(format!(
            "MTP head     {} parameters in {} tensors, apart from the above",
            output::count(p.mtp),
            t.mtp
        ));
    }
    lines.push(format!(
        "weights at   f32 {}, bf16 {}, FP8 {}, NVFP4 {}",
        output::bytes(b.f32 as f64),
        output::bytes(b.bf16 as f64),
        output::bytes(b.fp8 as f64),
        output::bytes(b.nvfp4 as f64)
    ));
    if let Some(s) = &info.stored {
        let dtypes: Vec<String> = s
            .by_dtype
            .iter()
            .map(|(d, (n, bytes))| format!("{n} tensors {d} {}", output::bytes(*bytes as f64)))
            .collect();
        lines.push(format!(
            "on disk      {} in {} file(s): {}",
            output::bytes(s.bytes as f64),
            s.files,
            dtypes.join(", ")
        ));
    }
    lines.join("\n")
}

/// One line per kind of layer; where layers of a kind differ, one per distinct size with its count.
fn kinds(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in [LayerKind::Mamba, LayerKind::Moe, LayerKind::Attention, LayerKind::Mlp] {
        let mut sizes: Vec<(String, usize)> = Vec::new();
        for layer in config.layers.iter().filter(|l| l.kind() == kind) {
            let text = layer.sizes_text();
            match sizes.iter_mut().find(|(known, _)| *known == text) {
                Some((_, count)) => *count += 1,
                None => sizes.push((text, 1)),
            }
        }
        lines.extend(sizes.into_iter().map(|(text, count)| format!("  {count:>3} {:<10}{text}", kind.name())));
    }
    lines
}
