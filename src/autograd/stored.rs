//! For tests of a GPU that computes in bf16: the CPU stores what the GPU stores.
//!
//! Rounding each value where the GPU rounds it is not enough to compare whole steps. Sums differ in their last bits, which
//! now and then sends a value to its other neighbour, and some ops later all values are rounded independently. So the CPU can
//! also be given the GPU's own values, one after the other as ops give them: its ops then see the same inputs, and each
//! one's result is held against the GPU's before that takes its place.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::tensor::{DType, Tensor};

/// Ops whose results a GPU keeps in f32 while it computes in bf16: probabilities, weights of experts, losses.
const WIDE: [&str; 7] =
    ["budget_penalty", "cross_entropy", "distill_loss", "gumbel_softmax", "mask_keep", "moe_route", "to_gpu"];
/// Its result is f32 there, its gradient is not.
pub(crate) const WIDE_PRODUCT: &str = "linear_wide";

/// What the process stores of what ops give, and of the gradients of that. Weights are the caller's.
#[derive(Debug, Default)]
pub enum Stored {
    /// What ops give.
    #[default]
    Own,
    /// On the CPU: the nearest of bf16, where a GPU stores bf16.
    Nearest,
    /// On a GPU: what ops give; all that is bf16 is kept.
    Keep(Vec<Tensor>),
    /// On the CPU: what a GPU kept, which must be as many.
    Play(Play),
}

/// Values that take the place of the CPU's own.
#[derive(Debug)]
pub struct Play {
    left: VecDeque<Tensor>,
    /// By op: how far the CPU's own result was off, at the most, over the norm of what took its place. Gradients are those
    /// of the op's results.
    pub furthest: BTreeMap<String, f64>,
    /// The first value that no kept one fits.
    pub fault: Option<String>,
}

impl Play {
    pub fn new(kept: Vec<Tensor>) -> Play {
        Play { left: kept.into(), furthest: BTreeMap::new(), fault: None }
    }

    /// Values that were not asked for.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    fn next(&mut self, what: Narrow, own: Tensor) -> Tensor {
        let Some(kept) = self.left.pop_front().filter(|kept| kept.numel() == own.numel()) else {
            self.fault.get_or_insert_with(|| format!("{what} {:?} has no counterpart", own.dims()));
            return own;
        };
        let square = |v: f64| v * v;
        let pairs = || own.f32().iter().zip(kept.f32()).map(|(a, b)| (f64::from(*a), f64::from(*b)));
        let (off, norm) = pairs().fold((0.0, 0.0), |(off, norm), (a, b)| (off + square(a - b), norm + square(b)));
        let off = if off == 0.0 { 0.0 } else { (off / norm).sqrt() };
        // NaN is as far as can be.
        let off = if off.is_nan() { f64::INFINITY } else { off };
        let furthest = self.furthest.entry(what.to_string()).or_insert(0.0);
        *furthest = furthest.max(off);
        kept.reshape(own.shape().clone())
    }
}

static STORED: Mutex<Stored> = Mutex::new(Stored::Own);
/// Whether that is [`Stored::Own`]: all that ops look at outside of tests.
static IS_OWN: AtomicBool = AtomicBool::new(true);

/// Sets what is stored from now on; returns what was, with what it kept or has left.
pub fn store(next: Stored) -> Stored {
    IS_OWN.store(matches!(next, Stored::Own), Ordering::Relaxed);
    std::mem::replace(&mut *STORED.lock().unwrap_or_else(|e| e.into_inner()), next)
}

thread_local! {
    static ON_HOST: Cell<bool> = const { Cell::new(false) };
}

/// What `work` records stays on the host, in f32, where the rest is computed on a GPU: nothing of it is rounded.
pub(crate) fn on_host<T>(work: impl FnOnce() -> T) -> T {
    let before = ON_HOST.replace(true);
    let done = work();
    ON_HOST.set(before);
    done
}

/// What a GPU stores in bf16.
#[derive(Clone, Copy)]
pub(super) enum Narrow {
    /// What the op gives.
    Result(&'static str),
    /// The gradient of that.
    Gradient(&'static str),
}

impl Narrow {
    /// What an op gives that is recorded now, unless it is f32.
    pub fn result(op: &'static str) -> Option<Narrow> {
        Narrow::gradient(op).filter(|_| op != WIDE_PRODUCT).map(|_| Narrow::Result(op))
    }

    /// The gradient of what an op gives that is recorded now, unless it is f32.
    pub fn gradient(op: &'static str) -> Option<Narrow> {
        (!ON_HOST.get() && !WIDE.contains(&op)).then_some(Narrow::Gradient(op))
    }
}

impl fmt::Display for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Narrow::Result(op) => f.write_str(op),
            Narrow::Gradient(op) => write!(f, "gradient of {op}"),
        }
    }
}

/// What is stored of `own`.
pub(super) fn stored(what: Option<Narrow>, own: Tensor) -> Tensor {
    if IS_OWN.load(Ordering::Relaxed) {
        return own;
    }
    let mut stored = STORED.lock().unwrap_or_else(|e| e.into_inner());
    let what = what.filter(|_| own.gpu().is_none() && own.dtype() == DType::F32);
    match (&mut *stored, what) {
        (Stored::Nearest, Some(_)) => rounded(&own),
        (Stored::Play(play), Some(what)) => play.next(what, rounded(&own)),
        (Stored::Keep(kept), _) if own.gpu().is_some() && own.dtype() == DType::Bf16 => {
            // What cannot be read is missed when it is played.
            kept.extend(own.to_host().map(|host| host.cast(DType::F32)));
            own
        }
        _ => own,
    }
}

/// Rounds what a GPU stores inside an op.
pub(crate) fn round_stored(values: &mut [f32]) {
    if IS_OWN.load(Ordering::Relaxed) {
        return;
    }
    if matches!(*STORED.lock().unwrap_or_else(|e| e.into_inner()), Stored::Nearest | Stored::Play(_)) {
        values.iter_mut().for_each(|v| *v = half::bf16::from_f32(*v).to_f32());
    }
}

/// Each number the nearest of bf16, in f32.
fn rounded(tensor: &Tensor) -> Tensor {
    tensor.cast(DType::Bf16).cast(DType::F32)
}
