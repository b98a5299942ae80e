//! Where tensors live and which threads compute on them.
//!
//! The CPU is the embedded default: memory comes from [`pool`], work runs on rayon's current thread pool.
//! Results never depend on the number of threads: work is cut at places that depend on shapes alone ([`parallel`]).

mod computed_on;
pub mod cuda;
pub mod gemm;
mod measured_on;
pub mod memory;
mod meter;
pub mod parallel;
mod place;
pub mod pool;

use std::sync::Arc;

use crate::{Error, Result};
pub use computed_on::ComputedOn;
pub use measured_on::MeasuredOn;
pub use meter::{Meter, Moment};
pub use place::{Place, Precision, asked_precision, compute_in, compute_on, current};

/// A place to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    #[default]
    Cpu,
    /// A GPU, by its ordinal.
    Cuda(usize),
    /// The first GPU, or the CPU where there is none.
    Auto,
}

impl Device {
    /// Where models compute with this device; `None` is the CPU. `said` is told where that is not what `auto` looked for first.
    ///
    /// # Errors
    /// [`Error::Cuda`] where the device that was asked for is not there.
    pub fn place(self, precision: Precision, said: impl FnOnce(&str)) -> Result<Option<Place>> {
        let opened = match self {
            Device::Cpu => return Ok(None),
            Device::Cuda(ordinal) => cuda::Cuda::open(ordinal),
            Device::Auto => match cuda::Cuda::open(0) {
                Err(error) if error.is_usage() => {
                    said("--device auto: found no GPU, computing on the CPU");
                    return Ok(None);
                }
                opened => opened,
            },
        };
        Ok(Some(Place { gpu: Arc::new(opened?), precision }))
    }
}

impl std::str::FromStr for Device {
    type Err = Error;

    /// `cpu`, `cuda`, `cuda:N`, `auto`.
    fn from_str(text: &str) -> Result<Device> {
        let ordinal = |n: &str| n.parse().ok().map(Device::Cuda);
        match text {
            "cpu" => Some(Device::Cpu),
            "auto" => Some(Device::Auto),
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
