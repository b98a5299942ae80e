//! How fast the interpreter is: thread instructions per second, checks on.
//!
//!     cargo run --release -p gpusim --example speed

use std::time::Instant;

use gpusim::device::{Device, LaunchConfig};
use gpusim::exec::grid::Execution;

fn main() {
    let workers = Execution::default().workers;
    println!("{:<16} {:>8} {:>12} {:>10} {:>16}", "kernel", "workers", "instructions", "seconds", "million per s");
    for workers in if workers > 1 { vec![1, workers] } else { vec![1] } {
        vector_add(workers);
        gemm_f32(workers);
        gemm_bf16(workers);
    }
    launches();
}

/// What a launch costs beside its instructions: many of one small block.
fn launches() {
    let device = device(1);
    let module = device.load(include_str!("../tests/ptx/gemm_bf16_mma.ptx")).expect("the fixture is supported");
    let kernel = &module.kernels["gemm_bf16_mma"];
    let (a, b) = (filled(&device, 64 * 32 * 2), filled(&device, 64 * 32 * 2));
    let c = device.allocate(64 * 64 * 4).expect("memory").base;
    let config = LaunchConfig { dynamic_shared: 2 * 2 * 64 * 40 * 2, ..LaunchConfig::new(1, 128) };
    let (bytes, count) = (parameters(&[a, b, c], &[64, 32]), 1000);
    let start = Instant::now();
    for _ in 0..count {
        device.launch(kernel, &config, &bytes).expect("a clean launch");
    }
    println!("a launch of one 64 × 64 × 32 product: {:.0} µs", start.elapsed().as_secs_f64() / count as f64 * 1e6);
}

fn device(workers: usize) -> Device {
    let device = Device::default();
    device.set_execution(Execution { workers, ..Execution::default() });
    device
}

/// Memory of `bytes` bytes, all written.
fn filled(device: &Device, bytes: usize) -> u64 {
    let base = device.allocate(bytes).expect("memory").base;
    device.fill(base, &1.5f32.to_le_bytes(), bytes / 4).expect("in range");
    base
}

fn measure(device: &Device, ptx: &str, name: &str, workers: usize, config: &LaunchConfig, parameters: &[u8]) {
    let module = device.load(ptx).expect("the fixture is supported");
    let kernel = &module.kernels[name];
    let start = Instant::now();
    device.launch(kernel, config, parameters).expect("a clean launch");
    let seconds = start.elapsed().as_secs_f64();
    assert!(device.findings().is_empty(), "{}", device.findings()[0]);
    let count = device.counters(kernel).thread_instructions();
    println!("{name:<16} {workers:>8} {count:>12} {seconds:>10.3} {:>16.0}", count as f64 / seconds / 1e6);
}

fn parameters(pointers: &[u64], numbers: &[i32]) -> Vec<u8> {
    let pointers = pointers.iter().flat_map(|p| p.to_le_bytes());
    pointers.chain(numbers.iter().flat_map(|n| n.to_le_bytes())).collect()
}

fn vector_add(workers: usize) {
    let device = device(workers);
    let n = 4 << 20;
    let (a, b) = (filled(&device, 4 * n), filled(&device, 4 * n));
    let out = device.allocate(4 * n).expect("memory").base;
    let bytes = [parameters(&[a, b, out], &[]), (n as u64).to_le_bytes().to_vec()].concat();
    let config = LaunchConfig::new((n / 256) as u32, 256);
    measure(&device, include_str!("../tests/ptx/vector_add.ptx"), "vector_add", workers, &config, &bytes);
}

fn gemm_f32(workers: usize) {
    let device = device(workers);
    let n = 512usize;
    let (a, b) = (filled(&device, 4 * n * n), filled(&device, 4 * n * n));
    let c = device.allocate(4 * n * n).expect("memory").base;
    let mut bytes = parameters(&[a, b, c], &[n as i32; 3]);
    bytes.resize(40, 0);
    let tiles = (n / 64) as u32;
    let config = LaunchConfig { grid: [tiles, tiles, 1], block: [16, 16, 1], ..LaunchConfig::new(1, 1) };
    measure(&device, include_str!("../tests/ptx/gemm_f32.ptx"), "gemm_f32", workers, &config, &bytes);
}

fn gemm_bf16(workers: usize) {
    let device = device(workers);
    let n = 512usize;
    let (a, b) = (filled(&device, 2 * n * n), filled(&device, 2 * n * n));
    let c = device.allocate(4 * n * n).expect("memory").base;
    let bytes = parameters(&[a, b, c], &[n as i32; 2]);
    let tiles = (n / 64) as u32;
    let config =
        LaunchConfig { grid: [tiles, tiles, 1], dynamic_shared: 2 * 2 * 64 * 40 * 2, ..LaunchConfig::new(1, 128) };
    measure(&device, include_str!("../tests/ptx/gemm_bf16_mma.ptx"), "gemm_bf16_mma", workers, &config, &bytes);
}
