//! Where tensors live and which threads compute on them.
//!
//! The CPU is the embedded default: memory comes from [`pool`], work runs on rayon's current thread pool.
//! Results never depend on the number of threads: work is cut at places that depend on shapes alone ([`parallel`]).

pub mod cuda;
pub mod gemm;
pub mod memory;
pub mod parallel;
pub mod pool;

use crate::{Error, Result};

/// A place to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    #[default]
    Cpu,
    /// A GPU, by its ordinal. Its kernels can be listed and checked; models compute on the CPU so far.
    Cuda(usize),
}

impl std::str::FromStr for Device {
    type Err = Error;

    /// `cpu`, `cuda`, `cuda:N`; `auto` is the CPU until models compute on a GPU.
    fn from_str(text: &str) -> Result<Device> {
        let ordinal = |n: &str| n.parse().ok().map(Device::Cuda);
        match text {
            "cpu" | "auto" => Some(Device::Cpu),
            "cuda" => Some(Device::Cuda(0)),
            other => other.strip_prefix("cuda:").and_then(ordinal),
        }
        .ok_or_else(|| Error::Usage(format!("--device {text}: expected cpu, cuda, cuda:N or auto")))
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
