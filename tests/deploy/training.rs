use autocompress::cost::{Job, TrainedPart, forward_flops};

use super::common::parent;

fn search(trained: TrainedPart) -> Job {
    Job { trained, steps: 250, sequences: 2048, length: 8192, recompute: true, logit_chunk: Some(1024) }
}

/// The computation by hand of docs/planning.md: Lightning on 128 GPUs.
#[test]
fn lightning_by_hand() {
    let parent = parent("lightning");
    // Products: active parameters without the embedding's rows and 1-D tensors; attention over half of 8,192 tokens; scans.
    let mamba = 10_304.0 * 2688.0 + 2688.0 * 4096.0 + 6144.0 * 4.0;
    let moe = 128.0 * 2688.0 + 2.0 * 3712.0 * 2688.0 + 6.0 * 2.0 * 1856.0 * 2688.0;
    let attention = 2688.0 * (2.0 * 4096.0 + 2.0 * 256.0);
    let products = 23.0 * mamba + 23.0 * moe + 6.0 * attention + 131_072.0 * 2688.0;
    let mixing = 6.0 * 4.0 * 4096.0 * 8193.0 / 2.0 + 23.0 * (6.0 * 4096.0 * 128.0 + 128.0 * (1024.0 + 4096.0));
    let forward = 2.0 * products + mixing;
    assert!((forward_flops(&parent, 8192) / forward - 1.0).abs() < 1e-12);
    let job = search(TrainedPart::Weights);
    // Forward of both, backward twice a forward, recomputation.
    assert!((job.flops_per_token(&parent, &parent) / (5.0 * forward) - 1.0).abs() < 1e-12);
    let cost = job.cost(&parent, &parent, 128, 989.4e12, 0.3);
    assert_eq!((cost.tokens_per_step, cost.micro_batches), (16_777_216, 16));
    let hours = 250.0 * 16_777_216.0 * 5.0 * forward / (128.0 * 989.4e12 * 0.3) / 3600.0;
    assert!((cost.hours / hours - 1.0).abs() < 1e-12, "{}", cost.hours);
    println!("Lightning: {:.3e} operations a step, {:.1} h on 128 H100 at 30 %", cost.flops_per_step, cost.hours);
    // 18 bytes a parameter, as the whole search holds.
    let b = &cost.bytes;
    let sharded = 128 * (b.parent + b.weights + b.masters + b.moments + b.gradients);
    assert!((sharded as f64 / (18.0 * parent.parameters().total as f64) - 1.0).abs() < 1e-6);
    assert!((sharded as f64 / 1e9 - 568.4).abs() < 0.1, "{sharded}");
    assert_eq!(b.logits, 3 * 2 * 1024 * 131_072);
    let of_layer = 128 * 2688 + 128 + 2688 + 2 * 2688 * (3712 + 128 * 1856);
    assert_eq!(b.gathered, 10 * of_layer);
}

#[test]
fn a_router_alone_holds_weights_once() {
    let parent = parent("lightning");
    let cost = search(TrainedPart::Router).cost(&parent, &parent, 1, 1e15, 0.5);
    let b = cost.bytes;
    assert_eq!(b.parent, 2 * parent.parameters().total);
    assert_eq!((b.weights, b.masters, b.moments, b.gradients), (0, 0, 0, 0));
}

#[test]
fn the_published_searches_are_counted() {
    for (steps, billions) in [(170, 2.85), (249, 4.18), (179, 3.00)] {
        let job = Job { steps, ..search(TrainedPart::Weights) };
        let parent = parent("nano-3-12b");
        let tokens = job.cost(&parent, &parent, 128, 1e15, 0.5).tokens as f64 / 1e9;
        assert!((tokens - billions).abs() < 0.005, "{tokens}");
    }
}

#[test]
fn recomputation_trades_memory_for_time() {
    let parent = parent("super-120b");
    let with = search(TrainedPart::Weights).cost(&parent, &parent, 128, 1e15, 0.5);
    let job = Job { recompute: false, logit_chunk: None, ..search(TrainedPart::Weights) };
    let without = job.cost(&parent, &parent, 128, 1e15, 0.5);
    assert!(with.bytes.activations < without.bytes.activations / 10);
    assert!((with.hours / without.hours - 1.25).abs() < 1e-9);
    assert_eq!(without.bytes.logits, 8 * with.bytes.logits);
}
