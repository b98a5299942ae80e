//! Where tensors live and which threads compute on them.
//!
//! The CPU is the embedded default: memory comes from [`pool`], work runs on rayon's current thread pool.
//! Results never depend on the number of threads: work is cut at places that depend on shapes alone ([`parallel`]).

pub mod gemm;
pub mod memory;
pub mod parallel;
pub mod pool;

use crate::{Error, Result};

/// A place that can run every op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    #[default]
    Cpu,
}

impl std::str::FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Device> {
        match text {
            "cpu" | "auto" => Ok(Device::Cpu),
            other => Err(Error::Usage(format!("--device {other}: this build computes on the CPU; use --device cpu"))),
        }
    }
}

/// Runs `work` on a pool of exactly `threads` threads.
pub fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| Error::Usage(format!("--threads {threads}: cannot start the thread pool: {e}")))?;
    Ok(pool.install(work))
}
