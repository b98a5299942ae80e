use autocompress::cost::{Job, TrainedPart, forward_flops};

use super::common::parent;

fn search(trained: TrainedPart) -> Job {
    Job { trained, steps: 250, sequences: 2048, length: 8192, recompute: true, logit_chunk: Some(1024) }
}

/// A parent's sizes, to be counted by hand.
struct ByHand {
    parent: &'static str,
    hidden: f64,
    /// Mamba, MoE and attention layers.
    layers: [f64; 3],
    mamba_heads: f64,
    experts: f64,
    top_k: f64,
    width: f64,
    shared: f64,
    /// Where experts work in a latent space.
    latent: Option<f64>,
}

impl ByHand {
    /// Weights of a Mamba layer's, a MoE layer's (all experts, or a token's) and an attention layer's products.
    fn products(&self, experts: f64) -> [f64; 3] {
        let (d, inner) = (self.hidden, 64.0 * self.mamba_heads);
        let conv = inner + 2.0 * 8.0 * 128.0;
        let mamba = (inner + conv + self.mamba_heads) * d + d * inner + conv * 4.0;
        let routed = experts * 2.0 * self.width * self.latent.unwrap_or(d);
        let moe = self.experts * d + 2.0 * self.shared * d + routed + self.latent.map_or(0.0, |l| 2.0 * l * d);
        [mamba, moe, d * (2.0 * 4096.0 + 2.0 * 256.0)]
    }

    /// Of a token of a sequence of 8,192.
    fn forward(&self) -> f64 {
        let weights = self.products(self.top_k).into_iter().zip(self.layers).map(|(one, count)| one * count);
        let products = weights.sum::<f64>() + 131_072.0 * self.hidden;
        let [mamba, _, attention] = self.layers;
        let inner = 64.0 * self.mamba_heads;
        let scan = 6.0 * inner * 128.0 + 128.0 * (1024.0 + inner);
        2.0 * products + attention * 4.0 * 4096.0 * 8193.0 / 2.0 + mamba * scan
    }

    /// Parameters of a MoE layer, norm and routing bias among them: the widest.
    fn widest(&self) -> f64 {
        self.products(self.experts)[1] + self.experts + self.hidden
    }
}

const NANO: ByHand = ByHand {
    parent: "nano-3-12b",
    hidden: 1920.0,
    layers: [23.0, 23.0, 6.0],
    mamba_heads: 64.0,
    experts: 128.0,
    top_k: 6.0,
    width: 960.0,
    shared: 3712.0,
    latent: None,
};
const LIGHTNING: ByHand = ByHand { parent: "lightning", hidden: 2688.0, width: 1856.0, ..NANO };
const SUPER: ByHand = ByHand {
    parent: "super-120b",
    hidden: 4096.0,
    layers: [40.0, 40.0, 8.0],
    mamba_heads: 128.0,
    experts: 512.0,
    top_k: 22.0,
    width: 2688.0,
    shared: 5376.0,
    latent: Some(1024.0),
};

/// The table of docs/planning.md, and what its section on bytes says of 128 GPUs.
#[test]
fn the_papers_searches_by_hand() {
    // Forward per token in G, operations of a step, hours on H100 and on GB200; sharded GB, parameters of the widest layer in B.
    let told = [
        (NANO, 4.151, 3.482e17, [0.64, 0.25], 1.75, 0.486),
        (LIGHTNING, 6.945, 5.826e17, [1.06, 0.42], 4.44, 1.297),
        (SUPER, 25.30, 2.122e18, [3.88, 1.54], 16.97, 2.873),
    ];
    // As the page rounds: to half of the last digit.
    let near = |what: &str, found: f64, told: f64, last: f64| {
        assert!((found - told).abs() <= 0.5001 * last, "{what}: {found}, told {told}");
    };
    for (by_hand, forward, step, hours, sharded, widest) in told {
        let (name, parent) = (by_hand.parent, parent(by_hand.parent));
        assert!((forward_flops(&parent, 8192) / by_hand.forward() - 1.0).abs() < 1e-12, "{name}");
        near(name, by_hand.forward() / 1e9, forward, if forward < 10.0 { 1e-3 } else { 1e-2 });
        let job = search(TrainedPart::Weights);
        for (rate, hours) in [989.4e12, 2500e12].into_iter().zip(hours) {
            let cost = job.cost(&parent, &parent, 128, rate, 0.3);
            assert!((cost.flops_per_step / (16_777_216.0 * 5.0 * by_hand.forward()) - 1.0).abs() < 1e-12, "{name}");
            near(name, cost.flops_per_step / step, 1.0, 1e-3);
            near(name, cost.hours, hours, 0.01);
            let b = &cost.bytes;
            let each = b.parent + b.weights + b.masters + b.moments + b.gradients;
            assert!((each as f64 / (18.0 * parent.parameters().total as f64 / 128.0) - 1.0).abs() < 1e-6, "{name}");
            near(name, each as f64 / 1e9, sharded, 0.01);
            assert_eq!(b.gathered as f64, 10.0 * by_hand.widest(), "{name}");
            near(name, by_hand.widest() / 1e9, widest, 1e-3);
            assert_eq!(b.logits, 6 * 131_072 * 1024, "{name}");
        }
    }
}

/// The page's own rows: what the test above holds the program to is what is written there.
#[test]
fn the_page_says_what_is_tested() {
    let page = include_str!("../../docs/planning.md");
    for row in [
        "| Nano 3 12B | 4.151 G | 3.482e17 | 0.64 h | 0.25 h |",
        "| Lightning 3.5 | 6.945 G | 5.826e17 | 1.06 h | 0.42 h |",
        "| Super 3.5 120B | 25.30 G | 2.122e18 | 3.88 h | 1.54 h |",
        "1.75 GB (Nano), 4.44 GB (Lightning, 568.4 GB in all) and 16.97 GB",
        "0.486, 1.297 and 2.873 B parameters",
    ] {
        assert!(page.contains(row), "{row}");
    }
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
