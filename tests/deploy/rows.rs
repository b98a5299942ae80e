use autocompress::cost::{RequestTime, Table};
use autocompress::model::config::Layer;

use super::common::{contract, fixture, parent};

/// The paper's example rows, put together to a request: 23 Mamba layers of 48 heads, 23 MoE layers of 96 experts, 6 attention
/// layers.
#[test]
fn the_papers_rows_give_a_request_time() {
    let table = Table::from_file(&fixture("rtx_5080_rows.csv")).unwrap();
    assert_eq!(table.rows.len(), 14);
    let contract = contract("rtx-5080");
    let mut config = parent("lightning");
    config.hidden_size = 1408;
    for layer in &mut config.layers {
        match layer {
            Layer::Mamba(m) => m.heads = 48,
            Layer::Moe(m) => m.experts = 96,
            _ => {}
        }
    }
    let time = RequestTime::of(&config, &contract.workload, &table).unwrap();
    let prefill = 23.0 * 4.5 + 23.0 * 25.6 + 6.0 * 857.1 + 685.0;
    let step = 23.0 * 31.9 + 23.0 * 51.8 + 6.0 * 213.5 + 262.0;
    assert!((1e3 * time.prefill_seconds - prefill).abs() < 1e-6, "{}", time.prefill_seconds);
    assert!((1e6 * time.decode_step_seconds - step).abs() < 1e-6, "{}", time.decode_step_seconds);
    // 6,519.9 ms + 1,024 · 3,468.1 µs = 10,071 ms, within the contract's 11.5 s.
    let request = prefill + 1024.0 * step / 1e3;
    assert!((1e3 * time.request_seconds - request).abs() < 1e-6 && (request - 10_071.2).abs() < 0.1, "{request}");
    assert!((time.throughput - 1024.0 / (request / 1e3)).abs() < 1e-9);
    // None of these rows was measured by this program.
    assert_eq!(time.estimates, time.rows);
    if let Layer::Moe(m) = &mut config.layers[1] {
        m.experts = 64;
    }
    let error = RequestTime::of(&config, &contract.workload, &table).unwrap_err().to_string();
    assert!(error.contains("moe E64 F1856"), "{error}");
}
