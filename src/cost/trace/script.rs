//! `run.sh`: serves and traces every model.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::manifest::Manifest;
use crate::cost::contract::{Contract, Format};
use crate::{Error, Result, files};

/// Writes the script; `blocks` are each model's cache blocks.
pub fn write(path: &Path, manifest: &Manifest, contract: &Contract, blocks: &[u64]) -> Result<()> {
    let text = text(manifest, contract, blocks)?;
    files::write_atomic(path, |file| file.write_all(text.as_bytes()))?;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, executable).map_err(Error::io(path, "write"))
}

fn text(manifest: &Manifest, contract: &Contract, blocks: &[u64]) -> Result<String> {
    let (vllm, w) = (contract.vllm()?, &contract.workload);
    let models: Vec<String> =
        manifest.models.iter().zip(blocks).map(|(model, blocks)| format!("{}:{blocks}", model.name)).collect();
    // Ranges exist while a graph is captured, so such a trace begins with the server; an eager one with the profiler.
    let (trace, compilation) = if vllm.cuda_graphs {
        ("--cuda-graph-trace=node", r#"{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}"#)
    } else {
        ("--capture-range=cudaProfilerApi --capture-range-end=repeat", r#"{"mode":0,"cudagraph_mode":"NONE"}"#)
    };
    let kv = if contract.precision.kv_cache == Format::Fp8 { " --kv-cache-dtype fp8" } else { "" };
    let prefix = match w.cached_tokens {
        0 => String::new(),
        n => format!(" --random-prefix-len {n}"),
    };
    let caching = if w.cached_tokens > 0 { "--enable-prefix-caching" } else { "--no-enable-prefix-caching" };
    Ok(format!(
        r#"#!/usr/bin/env bash
# Serves every model of this folder with vLLM {version} under Nsight Systems, and exports the traces.
# What is done is skipped: after a fault, start it again. Needs vllm, nsys, nvidia-smi and curl.
set -euo pipefail
cd "$(dirname "$0")"
export VLLM_MOE_ROUTING_SIMULATION_STRATEGY=uniform_random   # dummy weights route unevenly
port=${{PORT:-8017}}
models=({models})
starts={starts}
mkdir -p traces

serve() {{ # name, blocks, output
    nsys profile --force-overwrite=true --trace=cuda,nvtx --trace-fork-before-exec=true {trace} -o "$3" \
        vllm serve "models/$1" --port "$port" --tensor-parallel-size {tensor_parallel} \
        --max-model-len {length} --max-num-batched-tokens {chunk} --max-num-seqs {sequences} \
        --num-gpu-blocks-override "$2" {caching}{kv} --mamba-ssm-cache-dtype {ssm} \
        $([ -e "models/$1/model.safetensors" ] || echo --load-format dummy) --skip-tokenizer-init \
        --compilation-config '{compilation}' --enable-layerwise-nvtx-tracing --profiler-config.profiler=cuda \
        >"$3.log" 2>&1 &
    server=$!
}}

request() {{ # the contract's workload: a prefill, then {output} decode steps
    vllm bench serve --port "$port" --model "models/$1" --skip-tokenizer-init --dataset-name random --seed 0{prefix} \
        --random-input-len {input} --random-output-len {tokens} --random-range-ratio 0 --ignore-eos \
        --num-prompts {batch} --max-concurrency {batch} >>"$2.log" 2>&1
}}

used() {{ nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0; }}

for entry in "${{models[@]}}"; do
    name=${{entry%%:*}}
    mkdir -p "traces/$name"
    for ((start = 0; start < starts; start++)); do
        out="traces/$name/start-$start"
        if [ -s "$out.sqlite" ] && [ -s "$out.memory.json" ]; then continue; fi
        rm -f "$out".*
        before=$(used)
        serve "$name" "${{entry##*:}}" "$out"
        trap 'kill "$server" 2>/dev/null || true' EXIT
        until curl -sf "localhost:$port/health" >/dev/null; do
            kill -0 "$server" || {{ echo "$name: the server ended, see $out.log" >&2; exit 1; }}
            sleep 1
        done
        request "$name" "$out"                                   # unmeasured; fills the cached prefix
        curl -sf -X POST "localhost:$port/start_profile"
        request "$name" "$out"
        curl -sf -X POST "localhost:$port/stop_profile"
        after=$(used)
        kill -INT "$server"
        wait "$server" || true
        nsys export --type sqlite --force-overwrite=true -o "$out.part" "$out.nsys-rep"
        mv "$out.part" "$out.sqlite"
        printf '{{"before_mib": %s, "used_mib": %s}}\n' "$before" "$after" >"$out.memory.json"
        trap - EXIT
        rm -f "$out.nsys-rep"
        echo "$name, start $start: done"
    done
done
echo "done; now: autocompress profile ingest ."
"#,
        version = vllm.version,
        models = models.join(" "),
        starts = manifest.starts,
        tensor_parallel = vllm.tensor_parallel,
        length = w.capacity() + 1,
        chunk = w.prefill_chunk,
        sequences = vllm.max_num_seqs.unwrap_or(w.batch),
        ssm = if contract.precision.ssm_state == Format::F32 { "float32" } else { "auto" },
        output = w.output_tokens,
        input = w.input_tokens,
        // Prefill gives the first token.
        tokens = w.output_tokens + 1,
        batch = w.batch,
    ))
}
