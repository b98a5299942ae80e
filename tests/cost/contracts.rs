use std::path::Path;

use autocompress::cost::Contract;

use super::common::{contract, preset};

fn refused(text: &str) -> String {
    let error = Contract::from_toml(Path::new("c.toml"), text).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

const HEAD: &str = "device = 'cpu'\nengine = 'builtin'\nprecision = 'f32'\nthreads = 2\n";
const WORKLOAD: &str = "[workload]\nbatch = 4\ninput_tokens = 8\noutput_tokens = 16\nprefill_chunk = 8\n";

#[test]
fn the_preset_is_a_contract() {
    let contract = Contract::from_file(&preset("contracts/cpu.toml")).unwrap();
    assert!(contract.limits.latency_ms.is_some() && contract.limits.memory_mib.is_some());
    assert_eq!(contract.workload.capacity(), contract.workload.input_tokens + contract.workload.output_tokens);
}

#[test]
fn throughput_bounds_the_time_of_a_request() {
    // 2 sequences × 8 tokens at 32 tokens per second.
    assert_eq!(contract("throughput = 32").serving_seconds(), Some(0.5));
    assert_eq!(contract("latency_ms = 1").serving_seconds(), None);
}

#[test]
fn faults_are_named() {
    let whole = format!("{HEAD}{WORKLOAD}[limits]\nlatency_ms = 5");
    assert!(Contract::from_toml(Path::new("c.toml"), &whole).is_ok());
    let cases = [
        (whole.replace("'cpu'", "'gpu'"), "line 1", "gpu"),
        (whole.replace("'builtin'", "'other'"), "line 2", "other"),
        (whole.replace("'f32'", "'fp8'"), "line 3", "fp8"),
        (whole.replace("threads = 2", "threads = 0"), "threads", "from 1 to"),
        (whole.replace("batch = 4", "batch = 0"), "workload.batch", "from 1 to"),
        (whole.replace("batch = 4", "batch = -1"), "line", "-1"),
        (whole.replace("batch = 4", "bach = 4"), "line", "bach"),
        (whole.replace("input_tokens = 8", "input_tokens = 0"), "workload.input_tokens", "from 1 to"),
        (whole.replace("input_tokens = 8", "input_tokens = 9000000000000000000"), "workload.input_tokens", "from 1 to"),
        (whole.replace("prefill_chunk = 8", "prefill_chunk = 0"), "workload.prefill_chunk", "from 1 to"),
        (whole.replace("latency_ms = 5", ""), "limits", "at least one of latency_ms"),
        (whole.replace("latency_ms = 5", "latency = 5"), "line", "latency"),
        (whole.replace("latency_ms = 5", "latency_ms = 0"), "limits.latency_ms", "above 0"),
        (whole.replace("latency_ms = 5", "memory_mib = -3.0"), "limits.memory_mib", "above 0"),
        (whole.replace("latency_ms = 5", "throughput = nan"), "limits.throughput", "above 0"),
        (
            whole.replace("output_tokens = 16", "output_tokens = 0").replace("latency_ms", "throughput"),
            "workload.output_tokens",
            "throughput",
        ),
    ];
    for (text, at, of) in cases {
        let error = refused(&text);
        assert!(error.contains("c.toml") && error.contains(at) && error.contains(of), "{error}\n{text}");
    }
}
