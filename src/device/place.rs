//! Where models compute.

use std::str::FromStr;
use std::sync::{Arc, RwLock};

use super::cuda::Cuda;
use crate::{Error, Result};

/// What a GPU computes in. Masters, moments, reductions, scores and losses are f32 in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Everything: for checking a GPU against the CPU.
    F32,
    /// Activations, and the copies of the weights that are computed with.
    #[default]
    Bf16,
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Precision> {
        match text {
            "f32" => Ok(Precision::F32),
            "bf16" => Ok(Precision::Bf16),
            other => Err(Error::Usage(format!("--precision {other}: expected f32 or bf16"))),
        }
    }
}

/// A GPU that models compute on.
#[derive(Clone)]
pub struct Place {
    pub gpu: Arc<Cuda>,
    pub precision: Precision,
}

static CURRENT: RwLock<Option<Place>> = RwLock::new(None);

/// Where jobs that begin now compute; `None` is the CPU.
pub fn current() -> Option<Place> {
    CURRENT.read().unwrap_or_else(|e| e.into_inner()).clone()
}

/// Lets the jobs that `work` begins compute at `place`: of the whole process, so one at a time.
pub fn compute_on<T>(place: Option<Place>, work: impl FnOnce() -> T) -> T {
    /// Also where `work` panics.
    struct Restore(Option<Place>);
    impl Drop for Restore {
        fn drop(&mut self) {
            *CURRENT.write().unwrap_or_else(|e| e.into_inner()) = self.0.take();
        }
    }
    let before = std::mem::replace(&mut *CURRENT.write().unwrap_or_else(|e| e.into_inner()), place);
    let _restore = Restore(before);
    work()
}
