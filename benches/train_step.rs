//! One AdamW next-token training step of a small hybrid model: tokens/s, and the share of the matrix rate that the weight
//! products alone reach. The rate of a 2048³ product is measured between the steps of the same run.
//!
//! cargo bench --bench train_step [-- --steps N --threads 1,2]

use std::time::{Duration, Instant};

use autocompress::autograd::{Gradients, OpTime, Tape};
use autocompress::device::gemm::{Mat, par_matmul};
use autocompress::device::with_threads;
use autocompress::model::{Config, Input, Lm, initialise};
use autocompress::numerics::Philox;
use autocompress::ops::adamw::{self, AdamWOptions, Moments};
use autocompress::ops::cross_entropy::cross_entropy;
use autocompress::tensor::Segments;

const SEQUENCES: usize = 8;
const LENGTH: usize = 256;
/// 3 products (forward, two gradients) × 2 × the weights that one token multiplies.
const FLOPS_PER_TOKEN: usize = 22_781_952;
const SIDE: usize = 2048;

fn config() -> Config {
    let json = serde_json::json!({
        "model_type": "nemotron_h", "vocab_size": 512, "hidden_size": 256,
        "layers_block_type": ["mamba", "moe", "mamba", "moe", "attention", "moe", "mamba", "moe"],
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
        "mamba_num_heads": 16, "mamba_head_dim": 32, "n_groups": 4, "ssm_state_size": 32, "conv_kernel": 4,
        "chunk_size": 64, "use_conv_bias": true, "use_bias": false, "mamba_proj_bias": false, "attention_bias": false,
        "mlp_bias": false, "mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "n_routed_experts": 16,
        "num_experts_per_tok": 2, "moe_intermediate_size": 256, "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 512, "norm_topk_prob": true, "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 2.5, "intermediate_size": 512, "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": false, "initializer_range": 0.02, "time_step_min": 0.001, "time_step_max": 0.1,
        "time_step_floor": 1e-4,
    });
    Config::from_json(std::path::Path::new("train_step"), json).expect("the bench's own configuration")
}

struct Trainer {
    lm: Lm,
    moments: Moments,
    grads: Gradients,
    step: u64,
    times: Vec<OpTime>,
}

impl Trainer {
    fn step(&mut self, profile: bool) -> Duration {
        let noise = Philox::new(1, self.step);
        let tokens: Vec<u32> = (0..(SEQUENCES * LENGTH) as u64).map(|i| noise.words(i)[0] % 512).collect();
        let ends_sequence = |i: usize| (i + 1).is_multiple_of(LENGTH);
        let targets: Vec<u32> =
            (0..tokens.len()).map(|i| if ends_sequence(i) { u32::MAX } else { tokens[i + 1] }).collect();
        let segments = Segments::uniform(SEQUENCES, LENGTH);
        let started = Instant::now();
        let tape = if profile { Tape::profiled() } else { Tape::new() };
        let hidden = self.lm.forward(&tape, &Input::new(&tokens, &segments)).expect("forward").hidden;
        let loss = cross_entropy(&tape, &hidden, &self.lm.head(&tape), &targets).expect("loss");
        assert!(loss.value().item().is_finite());
        self.grads.clear();
        let done = tape.backward(&loss, 1.0, &mut self.grads).expect("backward");
        let optimizer = Instant::now();
        let norm = adamw::global_norm(self.grads.iter()).expect("norm");
        let (params, moments) = (&mut self.lm.params, &mut self.moments);
        adamw::step(params, &self.grads, moments, 1e-3, (norm, 1.0), &AdamWOptions::default()).expect("update");
        if profile {
            self.times = done.op_times().to_vec();
            let (forward, backward) = (optimizer.elapsed(), Duration::ZERO);
            self.times.push(OpTime { op: "adamw and global norm", calls: 1, forward, backward });
        }
        self.step += 1;
        started.elapsed()
    }
}

/// GFLOP/s of one 2048³ product.
fn matrix_rate(a: &[f32], b: &[f32], c: &mut [f32]) -> f64 {
    let started = Instant::now();
    par_matmul(Mat::new(a, SIDE, SIDE), Mat::new(b, SIDE, SIDE), c, SIDE, false);
    2.0 * (SIDE as f64).powi(3) / started.elapsed().as_secs_f64() / 1e9
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(threads: usize, steps: usize) {
    let config = config();
    let params = initialise(&config, 0).expect("initial weights");
    let lm = Lm::new(config, params).expect("model");
    let (moments, grads) = (Moments::new(&lm.params).expect("moments"), Gradients::new(&lm.params));
    let mut trainer = Trainer { lm, moments, grads, step: 0, times: Vec::new() };
    let (a, b) = (vec![0.5f32; SIDE * SIDE], vec![0.25f32; SIDE * SIDE]);
    let mut c = vec![0.0f32; SIDE * SIDE];
    trainer.step(false);
    matrix_rate(&a, &b, &mut c);
    let (mut seconds, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        rates.push(matrix_rate(&a, &b, &mut c));
        seconds.push(trainer.step(false).as_secs_f64());
    }
    let (step, rate) = (median(&mut seconds), median(&mut rates));
    let tokens_per_second = (SEQUENCES * LENGTH) as f64 / step;
    let reached = tokens_per_second * FLOPS_PER_TOKEN as f64 / 1e9;
    println!("{threads} thread(s): {tokens_per_second:.0} tokens/s, {:.1} ms a step", 1e3 * step);
    println!(
        "  weight products {reached:.1} GFLOP/s, {:.1} % of the {rate:.1} of a 2048³ product",
        100.0 * reached / rate
    );
    trainer.step(true);
    let ideal = 1e3 * (SEQUENCES * LENGTH * FLOPS_PER_TOKEN) as f64 / (rate * 1e9);
    println!("  {:<26} {:>6} {:>12} {:>12}", "op", "calls", "forward ms", "backward ms");
    trainer.times.sort_by_key(|t| std::cmp::Reverse(t.forward + t.backward));
    for t in &trainer.times {
        let ms = |d: Duration| 1e3 * d.as_secs_f64();
        println!("  {:<26} {:>6} {:>12.2} {:>12.2}", t.op, t.calls, ms(t.forward), ms(t.backward));
    }
    println!("  the weight products alone, at that rate: {ideal:.1} ms");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let steps = value("--steps").and_then(|s| s.parse().ok()).unwrap_or(15);
    let threads = value("--threads").map_or_else(|| "1,2".to_owned(), Clone::clone);
    for n in threads.split(',').filter_map(|n| n.parse().ok()) {
        with_threads(n, || measure(n, steps)).expect("threads");
    }
}
