//! Promise: the interpreter runs a hundred million thread instructions a second and more on one core, checks on.
//!
//!     cargo test --release -p gpusim --test speed -- --nocapture

use std::time::{Duration, Instant};

use gpusim::device::{Device, LaunchConfig};
use gpusim::exec::grid::Execution;

/// Thread instructions per second of a core's time.
const LEAST: f64 = 100e6;

#[repr(C)]
#[derive(Default)]
struct TimeSpec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut TimeSpec) -> i32;
}
const PROCESS_CPU_TIME: i32 = 2;

/// What this process has had of all cores: what else runs on them does not count.
fn cpu_time() -> Duration {
    let mut time = TimeSpec::default();
    // SAFETY: the struct is the C library's on 64-bit Linux.
    assert_eq!(unsafe { clock_gettime(PROCESS_CPU_TIME, &mut time) }, 0);
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

#[test]
fn a_hundred_million_thread_instructions_a_second() {
    println!("{:<16} {:>8} {:>12} {:>10} {:>16}", "kernel", "workers", "instructions", "seconds", "million per s");
    let alone = [vector_add(1), gemm_f32(1), gemm_bf16(1)];
    let workers = Execution::default().workers;
    if workers > 1 {
        [vector_add(workers), gemm_f32(workers), gemm_bf16(workers)].iter().for_each(|run| assert!(run.count > 0));
    }
    launches();
    let count: u64 = alone.iter().map(|run| run.count).sum();
    let seconds: f64 = alone.iter().map(|run| run.cpu.as_secs_f64()).sum();
    let speed = count as f64 / seconds;
    println!("one worker, by the core's time: {:.0} million per s", speed / 1e6);
    assert!(cfg!(debug_assertions) || speed >= LEAST, "{speed:.3e} thread instructions a second");
}

/// One launch of a kernel.
struct Run {
    /// Thread instructions.
    count: u64,
    cpu: Duration,
}

/// What a launch costs beside its instructions: many of one small block.
fn launches() {
    let device = device(1);
    let module = device.load(include_str!("ptx/gemm_bf16_mma.ptx")).expect("the fixture is supported");
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

fn measure(device: &Device, ptx: &str, name: &str, workers: usize, config: &LaunchConfig, parameters: &[u8]) -> Run {
    let module = device.load(ptx).expect("the fixture is supported");
    let kernel = &module.kernels[name];
    let (start, cpu) = (Instant::now(), cpu_time());
    device.launch(kernel, config, parameters).expect("a clean launch");
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu);
    assert!(device.findings().is_empty(), "{}", device.findings()[0]);
    let count = device.counters(kernel).thread_instructions();
    println!("{name:<16} {workers:>8} {count:>12} {seconds:>10.3} {:>16.0}", count as f64 / seconds / 1e6);
    Run { count, cpu }
}

fn parameters(pointers: &[u64], numbers: &[i32]) -> Vec<u8> {
    let pointers = pointers.iter().flat_map(|p| p.to_le_bytes());
    pointers.chain(numbers.iter().flat_map(|n| n.to_le_bytes())).collect()
}

fn vector_add(workers: usize) -> Run {
    let device = device(workers);
    let n = 4 << 20;
    let (a, b) = (filled(&device, 4 * n), filled(&device, 4 * n));
    let out = device.allocate(4 * n).expect("memory").base;
    let bytes = [parameters(&[a, b, out], &[]), (n as u64).to_le_bytes().to_vec()].concat();
    let config = LaunchConfig::new((n / 256) as u32, 256);
    measure(&device, include_str!("ptx/vector_add.ptx"), "vector_add", workers, &config, &bytes)
}

fn gemm_f32(workers: usize) -> Run {
    let device = device(workers);
    let n = 512usize;
    let (a, b) = (filled(&device, 4 * n * n), filled(&device, 4 * n * n));
    let c = device.allocate(4 * n * n).expect("memory").base;
    let mut bytes = parameters(&[a, b, c], &[n as i32; 3]);
    bytes.resize(40, 0);
    let tiles = (n / 64) as u32;
    let config = LaunchConfig { grid: [tiles, tiles, 1], block: [16, 16, 1], ..LaunchConfig::new(1, 1) };
    measure(&device, include_str!("ptx/gemm_f32.ptx"), "gemm_f32", workers, &config, &bytes)
}

fn gemm_bf16(workers: usize) -> Run {
    let device = device(workers);
    let n = 512usize;
    let (a, b) = (filled(&device, 2 * n * n), filled(&device, 2 * n * n));
    let c = device.allocate(4 * n * n).expect("memory").base;
    let bytes = parameters(&[a, b, c], &[n as i32; 2]);
    let tiles = (n / 64) as u32;
    let config =
        LaunchConfig { grid: [tiles, tiles, 1], dynamic_shared: 2 * 2 * 64 * 40 * 2, ..LaunchConfig::new(1, 128) };
    measure(&device, include_str!("ptx/gemm_bf16_mma.ptx"), "gemm_bf16_mma", workers, &config, &bytes)
}
