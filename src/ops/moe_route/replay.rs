//! For tests: the experts that one device chose, chosen again on the CPU. Where two runs round differently, scores that nearly tie
//! send tokens to other experts, and what is compared are two different models.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::Result;
use crate::tensor::Tensor;

/// What becomes of the choices of the process's calls of `moe_route`.
#[derive(Debug, Default)]
pub enum Replay {
    #[default]
    Off,
    /// Keeps them, in the calls' order.
    Record(Vec<Vec<u32>>),
    /// Replaces those of calls on the CPU, which must be as many as these.
    Play(VecDeque<Vec<u32>>),
}

static REPLAY: Mutex<Replay> = Mutex::new(Replay::Off);

/// Sets what happens from now on; returns what was, with what it kept or has left.
pub fn replay(next: Replay) -> Replay {
    std::mem::replace(&mut *REPLAY.lock().unwrap_or_else(|e| e.into_inner()), next)
}

/// Keeps a call's choice [R, K], where choices are kept.
pub(super) fn record(chosen: &Tensor) -> Result<()> {
    let mut replay = REPLAY.lock().unwrap_or_else(|e| e.into_inner());
    if let Replay::Record(calls) = &mut *replay {
        calls.push(chosen.to_host()?.values::<u32>().to_vec());
    }
    Ok(())
}

/// The choice to make instead, where there is one of this size.
pub(super) fn next(len: usize) -> Option<Vec<u32>> {
    let mut replay = REPLAY.lock().unwrap_or_else(|e| e.into_inner());
    let Replay::Play(calls) = &mut *replay else { return None };
    calls.pop_front().filter(|chosen| chosen.len() == len)
}
