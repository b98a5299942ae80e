//! How fast kernels are on a device, beside what they must at least move and compute: what `kernels bench` runs.
//!
//! One launch after another takes another set of buffers, so many that the L2 has forgotten a set when its turn comes again.
//! Times are medians over samples; each sample is a round over all sets between two events. On gpusim there are no times:
//! it counts what a kernel asks of the hardware instead ([`Counted`]).

mod against;
mod counted;
mod kernels;
mod power;
mod timed;
mod workload;

use serde::Serialize;

use super::{Cuda, CudaError};
use crate::Error;
use crate::device::memory;

pub use against::cublaslt;
pub use counted::Counted;
pub use power::Power;
pub use timed::{Ceilings, Timed};
use workload::Workload;

/// Of any size: kernels count rows and columns in 32 bits.
const MOST: usize = 1 << 30;

/// An op that has a bench.
pub struct Spec {
    pub op: &'static str,
    /// The letters of its shape (cuda/README.md).
    pub letters: &'static [&'static str],
    /// A layer of the 30B parent over 8192 tokens.
    paper: &'static [&'static [usize]],
    /// What an interpreter can run.
    small: &'static [&'static [usize]],
    make: fn(&[usize]) -> Vec<Workload>,
}

/// The ops, in the order of their names.
pub fn specs() -> &'static [Spec] {
    kernels::SPECS
}

/// One kernel at one shape.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub symbol: String,
    pub shape: String,
    /// That must pass to or from memory at the least: every input once, every output once.
    pub bytes: u64,
    /// Multiplications and additions by the op's formula.
    pub flops: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<Timed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

impl Spec {
    /// The shapes that are measured where none is asked for.
    pub fn default_shapes(&self, cuda: &Cuda) -> &'static [&'static [usize]] {
        if cuda.is_simulated() { self.small } else { self.paper }
    }

    /// Holds a shape against what the op means, and the memory that its buffers take against this machine's.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the letters; [`Error::Memory`].
    pub fn check(&self, shape: &[usize]) -> Result<(), Error> {
        let found: Vec<String> = shape.iter().map(usize::to_string).collect();
        let fault = |expected: &str| Err(Error::Usage(format!("--shape {}: expected {expected}", found.join(","))));
        if shape.len() != self.letters.len() || shape.contains(&0) {
            return fault(&format!("{} of {}, all above 0", self.letters.join(", "), self.op));
        }
        if shape.iter().any(|size| *size > MOST) {
            return fault(&format!("at most {MOST} each"));
        }
        match (self.op, shape) {
            ("attention", [_, queries, keys, _]) if !queries.is_multiple_of(*keys) => fault("Hq a multiple of Hkv"),
            ("moe_route" | "moe_permute" | "moe_combine", [_, experts, chosen, ..]) if chosen > experts => {
                fault("K at most E")
            }
            ("ssd_scan", [_, heads, _, groups, _]) if !heads.is_multiple_of(*groups) => fault("H a multiple of G"),
            _ => {
                // The largest matrix has two of the sizes at the least; what a workload knows exactly is asked for next.
                let mut sizes = shape.to_vec();
                sizes.sort_unstable_by(|a, b| b.cmp(a));
                memory::require(
                    "--shape",
                    sizes.iter().take(2).try_fold(4u64, |bytes, size| bytes.checked_mul(*size as u64)),
                )?;
                let bytes = (self.make)(shape).iter().map(|workload| workload.set_bytes() as u64).max();
                memory::require("--shape", bytes)
            }
        }
    }

    /// Measures every kernel of the op that takes the shape, one number per letter, which must pass [`Spec::check`]; or
    /// those alone whose names end in `dtype`.
    ///
    /// # Errors
    /// [`CudaError`] of the driver or the device.
    pub fn measure(&self, cuda: &Cuda, shape: &[usize], dtype: Option<&str>) -> Result<Vec<Measured>, CudaError> {
        let text: Vec<String> = self.letters.iter().zip(shape).map(|(l, n)| format!("{l} {n}")).collect();
        let text = text.join(", ");
        let is_wanted = |w: &Workload| dtype.is_none_or(|dtype| w.symbol.ends_with(&format!("_{dtype}")));
        let workloads = (self.make)(shape).into_iter().filter(is_wanted);
        workloads.map(|workload| one(cuda, workload, &text)).collect()
    }
}

fn one(cuda: &Cuda, workload: Workload, shape: &str) -> Result<Measured, CudaError> {
    let (timed, counted) = match cuda.is_simulated() {
        true => (None, Some(counted::count(cuda, &workload)?)),
        false => (Some(timed::time(cuda, &workload)?), None),
    };
    let Workload { symbol, bytes, flops, .. } = workload;
    Ok(Measured { symbol, shape: shape.into(), bytes, flops, timed, counted })
}
