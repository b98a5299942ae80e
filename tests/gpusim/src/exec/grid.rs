//! A launch: CTAs over the machine's cores. Blocks are handed out in order, or from the last to the first; each worker has
//! registers and shared memory of its own and shares global memory. Nothing a kernel can see depends on the number of workers
//! or the order, unless its blocks race.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::cta::Cta;
use super::env::{Env, Fault, Launch};
use super::heap::{BlockTag, Snapshot};
use super::local::Local;
use super::shared::Shared;
use super::view::GlobalView;
use crate::check::finding::{Finding, Findings};
use crate::count::counters::Counters;
use crate::decode::inst::Kernel;

/// How a launch is executed.
#[derive(Clone, Copy, Debug)]
pub struct Execution {
    /// Threads of this machine that run blocks.
    pub workers: usize,
    /// Most warp instructions of one block.
    pub watchdog: u64,
    /// Whether the last block comes first.
    pub backwards: bool,
    /// So many of the last blocks run, and no others; `None`: all.
    pub last: Option<u64>,
}

impl Default for Execution {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        Execution { workers, watchdog: 4_000_000_000, backwards: false, last: None }
    }
}

/// What came of a launch.
pub struct Report {
    pub fault: Option<Fault>,
    pub findings: Vec<Finding>,
    pub counters: Counters,
}

/// Runs all blocks of a launch. The geometry must be valid (see [`crate::device::Device::launch`]).
pub fn run(kernel: &Kernel, launch: &Launch, memory: Arc<Snapshot>, execution: Execution) -> Report {
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let blocks = launch.blocks().min(execution.last.unwrap_or(u64::MAX));
    let workers = (execution.workers as u64).min(blocks).max(1);
    let work = || run_blocks(kernel, launch, memory.clone(), execution, &next, &is_over);
    let results: Vec<WorkerResult> = if workers == 1 {
        vec![work()]
    } else {
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            let own = work();
            let joined =
                others.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            std::iter::once(own).chain(joined).collect()
        })
    };
    let mut counters = Counters::new(kernel);
    let mut findings = Findings::default();
    let mut fault: Option<(u64, Fault)> = None;
    for result in results {
        counters.add(&result.counters);
        findings.merge(result.findings);
        fault = [fault, result.fault].into_iter().flatten().min_by_key(|(block, _)| *block);
    }
    counters.launches = 1;
    Report { fault: fault.map(|(_, fault)| fault), findings: findings.into_vec(), counters }
}

struct WorkerResult {
    /// The block that faulted, and how.
    fault: Option<(u64, Fault)>,
    findings: Findings,
    counters: Counters,
}

fn run_blocks(
    kernel: &Kernel,
    launch: &Launch,
    memory: Arc<Snapshot>,
    execution: Execution,
    next: &AtomicU64,
    is_over: &AtomicBool,
) -> WorkerResult {
    let mut env = Env {
        kernel,
        launch,
        global: GlobalView::new(memory),
        shared: Shared::new(kernel.static_shared + launch.dynamic_shared, kernel.shared_granule),
        local: Local::new(kernel.local_size, launch.threads_per_block().next_multiple_of(super::registers::LANES)),
        counters: Counters::new(kernel),
        findings: Findings::default(),
        block: 0,
        clock: 0,
    };
    let mut cta = Cta::new(&env);
    let mut fault = None;
    let all = launch.blocks();
    let first = all - all.min(execution.last.unwrap_or(all));
    while !is_over.load(Relaxed) {
        let at = next.fetch_add(1, Relaxed);
        if at >= all - first {
            break;
        }
        let block = if execution.backwards { all - 1 - at } else { first + at };
        (env.block, env.clock) = (block, 0);
        env.global.start_block(BlockTag::new(launch.serial, block, launch.blocks()));
        if let Err(error) = cta.run(&mut env, execution.watchdog) {
            fault = Some((block, error));
            is_over.store(true, Relaxed);
        }
    }
    WorkerResult { fault, findings: env.findings, counters: env.counters }
}
