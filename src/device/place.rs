//! Where models compute.

use std::str::FromStr;
use std::sync::{Arc, RwLock};

use serde::{Deserialize, Serialize};

use super::cuda::Cuda;
use crate::{Error, Result};

/// What models are trained in. Masters, moments, reductions, scores and losses are f32 in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Everything: what the CPU computes in, and for checking a GPU against it.
    F32,
    /// A GPU's activations, and the copies of the weights that it computes with. The CPU stays with f32.
    #[default]
    Bf16,
    /// The same, where the operands of the layers' matrix products are 8-bit floats, on the CPU too.
    Fp8,
    /// The same with 4-bit floats and their scales.
    Nvfp4,
}

impl Precision {
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::Fp8 => "fp8",
            Precision::Nvfp4 => "nvfp4",
        }
    }

    /// Whether a GPU stores activations in bf16.
    pub fn is_narrow(self) -> bool {
        self != Precision::F32
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Precision> {
        match text {
            "f32" => Ok(Precision::F32),
            "bf16" => Ok(Precision::Bf16),
            "fp8" => Ok(Precision::Fp8),
            "nvfp4" => Ok(Precision::Nvfp4),
            other => Err(Error::Usage(format!("--precision {other}: expected f32, bf16, fp8 or nvfp4"))),
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
static ASKED: RwLock<Option<Precision>> = RwLock::new(None);

/// Where jobs that begin now compute; `None` is the CPU.
pub fn current() -> Option<Place> {
    read(&CURRENT)
}

/// What jobs that begin now are trained in, whatever their recipes say.
pub fn asked_precision() -> Option<Precision> {
    read(&ASKED)
}

fn read<T: Clone>(what: &RwLock<T>) -> T {
    what.read().unwrap_or_else(|e| e.into_inner()).clone()
}

/// Sets what the whole process reads while `work` runs: one at a time.
fn set_while<S: 'static + Send + Sync, T>(what: &'static RwLock<S>, value: S, work: impl FnOnce() -> T) -> T {
    /// Also where `work` panics.
    struct Restore<S: 'static>(&'static RwLock<S>, Option<S>);
    impl<S> Drop for Restore<S> {
        fn drop(&mut self) {
            if let Some(before) = self.1.take() {
                *self.0.write().unwrap_or_else(|e| e.into_inner()) = before;
            }
        }
    }
    let before = std::mem::replace(&mut *what.write().unwrap_or_else(|e| e.into_inner()), value);
    let _restore = Restore(what, Some(before));
    work()
}

/// Lets the jobs that `work` begins compute at `place`: of the whole process, so one at a time.
pub fn compute_on<T>(place: Option<Place>, work: impl FnOnce() -> T) -> T {
    set_while(&CURRENT, place, work)
}

/// Lets the jobs that `work` begins train in `precision`, where it is given, and not in what their recipes say.
pub fn compute_in<T>(precision: Option<Precision>, work: impl FnOnce() -> T) -> T {
    set_while(&ASKED, precision, work)
}
