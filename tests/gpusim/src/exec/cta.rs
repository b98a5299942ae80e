//! A CTA: its warps in turn, and the barriers between them.

use super::collective::holds;
use super::env::{Env, Fault, Outcome, lanes};
use super::registers::{LANES, Mask};
use super::warp::{Stop, Warp};
use crate::check::clock::WARPS;
use crate::check::finding::Kind;
use crate::decode::inst::{Barrier, BarrierKind, Op};

/// Instructions a warp runs before the next has its turn.
const TURN: u32 = 256;

/// Hardware barriers of a CTA.
const BARRIERS: usize = 16;

/// Who has arrived at a barrier.
#[derive(Default)]
struct Arrivals {
    /// Lanes that wait, per warp.
    waiting: [Mask; WARPS],
    /// Warps that arrived without waiting (`bar.arrive`), and what they knew.
    passed: Vec<[u32; WARPS]>,
    passed_warps: u32,
    /// Threads expected, where the instruction says so.
    expected: Option<u32>,
    /// Lanes whose predicate held, of `bar.red`.
    yes: u32,
    votes: u32,
}

pub struct Cta {
    warps: Vec<Warp>,
    barriers: [Arrivals; BARRIERS],
    /// Instructions the CTA may still run before the watchdog ends it.
    watchdog: u64,
}

impl Cta {
    pub fn new(env: &Env) -> Self {
        let warps = (0..env.launch.warps_per_block()).map(|index| Warp::new(index, env)).collect();
        Cta { warps, barriers: Default::default(), watchdog: 0 }
    }

    /// Runs the block `env.block` from start to end; `watchdog` is the most warp instructions it may take.
    pub fn run(&mut self, env: &mut Env, watchdog: u64) -> Outcome<()> {
        self.watchdog = watchdog;
        self.barriers = Default::default();
        env.shared.start_cta();
        env.local.start_cta();
        for warp in &mut self.warps {
            warp.start_cta(env);
        }
        env.counters.blocks += 1;
        while self.warps.iter().any(|warp| !warp.is_done()) {
            let moved = self.round(env)?;
            if !moved && !self.release_complete(env)? {
                return self.deadlock(env);
            }
        }
        Ok(())
    }

    /// A turn for each warp; whether any of them ran.
    fn round(&mut self, env: &mut Env) -> Outcome<bool> {
        let mut moved = false;
        for w in 0..self.warps.len() {
            let mut budget = TURN;
            match self.warps[w].run(env, &mut budget)? {
                Stop::Budget => {}
                Stop::Barrier { pc, mask } => self.arrive(env, w, pc, mask)?,
                Stop::Idle => {}
            }
            let spent = (TURN - budget) as u64;
            moved |= spent > 0;
            match self.watchdog.checked_sub(spent) {
                Some(left) => self.watchdog = left,
                None => return self.out_of_time(env, w),
            }
        }
        Ok(moved)
    }

    fn out_of_time(&self, env: &mut Env, warp: usize) -> Outcome<bool> {
        env.note(Kind::Watchdog, 0, warp * LANES, None, 1, || {
            "the block runs more instructions than the watchdog allows".into()
        });
        Err(Fault::Timeout)
    }
}

impl Cta {
    /// Lanes of warp `w` have come to the barrier instruction at `pc`.
    fn arrive(&mut self, env: &mut Env, w: usize, pc: usize, mask: Mask) -> Outcome<()> {
        let Op::Barrier(barrier) = &env.kernel.code[pc].op else { return Ok(()) };
        let first = mask.trailing_zeros() as usize;
        let registers = &self.warps[w].registers;
        let id = registers.get::<u32>(barrier.id)[first] as usize;
        let expected = barrier.count.map(|count| registers.get::<u32>(count)[first]);
        let is_bad_count = expected.is_some_and(|n| n == 0 || !n.is_multiple_of(LANES as u32));
        if id >= BARRIERS || is_bad_count {
            env.note(Kind::BarrierDivergence, pc, w * LANES + first, None, 1, || {
                format!("barrier {id} for {expected:?} threads: there are {BARRIERS}, for multiples of {LANES}")
            });
            return Err(Fault::LaunchFailed);
        }
        let arrivals = &mut self.barriers[id];
        arrivals.expected = expected;
        if barrier.kind == BarrierKind::Arrive {
            env.shared.shadow.make_room();
            arrivals.passed.push(env.shared.shadow.clock.arrive(w));
            arrivals.passed_warps |= 1 << w;
        } else {
            arrivals.waiting[w] |= mask;
            if let Some(predicate) = barrier.predicate {
                arrivals.yes += (holds(&self.warps[w].registers, predicate) & mask).count_ones();
                arrivals.votes += mask.count_ones();
            }
        }
        if self.is_complete(id) {
            self.release(env, id)?;
        }
        Ok(())
    }

    /// Exited threads count as arrived; a warp counts when all of it is there.
    fn is_complete(&self, id: usize) -> bool {
        let arrivals = &self.barriers[id];
        let is_whole = |w: &Warp| arrivals.waiting[w.index] & w.live == w.live;
        let waits = |w: &Warp| arrivals.waiting[w.index] != 0;
        match arrivals.expected {
            None => self.warps.iter().any(waits) && self.warps.iter().all(is_whole),
            Some(expected) => {
                let waiting = self.warps.iter().filter(|w| waits(w) && is_whole(w)).count();
                let is_split = self.warps.iter().any(|w| waits(w) && !is_whole(w));
                !is_split && (waiting + arrivals.passed.len()) * LANES >= expected as usize
            }
        }
    }

    /// Releases barriers that threads' exits have completed; whether there was one.
    fn release_complete(&mut self, env: &mut Env) -> Outcome<bool> {
        for id in 0..BARRIERS {
            let has_waiting = self.barriers[id].waiting.iter().any(|mask| *mask != 0);
            if has_waiting && self.is_complete(id) {
                self.release(env, id)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn release(&mut self, env: &mut Env, id: usize) -> Outcome<()> {
        let arrivals = std::mem::take(&mut self.barriers[id]);
        self.check_alignment(env, &arrivals)?;
        env.shared.shadow.make_room();
        let waiting = (0..WARPS).filter(|w| arrivals.waiting[*w] != 0).fold(0u32, |m, w| m | 1 << w);
        let all = self.warps.iter().filter(|w| !w.is_done()).fold(0u32, |m, w| m | 1 << w.index);
        if waiting & all == all && arrivals.passed.is_empty() {
            env.shared.shadow.clock.synchronize_all();
        } else {
            env.shared.shadow.clock.synchronize(waiting, &arrivals.passed);
        }
        for (w, warp) in self.warps.iter_mut().enumerate() {
            let mask = arrivals.waiting[w];
            for lane in lanes(mask) {
                if let Op::Barrier(barrier) = &env.kernel.code[warp.barrier_pc[lane] as usize].op {
                    write_vote(warp, 1 << lane, barrier, &arrivals);
                }
            }
            warp.release_barrier(mask);
        }
        Ok(())
    }

    /// All threads of a warp must be at the same `bar` (or `.aligned`) instruction.
    fn check_alignment(&self, env: &mut Env, arrivals: &Arrivals) -> Outcome<()> {
        for warp in &self.warps {
            let mask = arrivals.waiting[warp.index];
            let Some(first) = lanes(mask).next() else { continue };
            let pc = warp.barrier_pc[first];
            let is_aligned = matches!(&env.kernel.code[pc as usize].op, Op::Barrier(barrier) if barrier.aligned);
            if let Some(other) = lanes(mask).find(|lane| is_aligned && warp.barrier_pc[*lane] != pc) {
                let elsewhere = env.name_inst(warp.barrier_pc[other] as usize);
                env.note(Kind::BarrierDivergence, pc as usize, warp.index * LANES + first, None, 1, || {
                    format!("lane {other} of the same warp is at another barrier: {elsewhere}")
                });
                return Err(Fault::LaunchFailed);
            }
        }
        Ok(())
    }

    /// Every thread waits: says who waits where.
    fn deadlock(&self, env: &mut Env) -> Outcome<()> {
        let mut waits: Vec<(usize, usize, u32)> = Vec::new(); // instruction, warp, threads
        for warp in &self.warps {
            let at_barrier = lanes(warp.at_barrier).map(|lane| warp.barrier_pc[lane]);
            for pc in at_barrier.chain(warp.waiting_collectives().map(|(_, pc)| pc)) {
                match waits.iter_mut().find(|(p, w, _)| *p == pc as usize && *w == warp.index) {
                    Some((_, _, threads)) => *threads += 1,
                    None => waits.push((pc as usize, warp.index, 1)),
                }
            }
        }
        let (pc, warp, _) = waits.first().copied().unwrap_or_default();
        let exited: u32 = self.warps.iter().map(|w| LANES as u32 - w.live.count_ones()).sum();
        let list: Vec<String> = waits
            .iter()
            .take(8)
            .map(|(pc, warp, threads)| format!("{threads} threads of warp {warp} at {}", env.name_inst(*pc)))
            .collect();
        env.note(Kind::Deadlock, pc, warp * LANES, None, 1, || {
            format!("every thread waits and none can go on: {}; {exited} lanes have exited", list.join(", "))
        });
        Err(Fault::LaunchFailed)
    }
}

/// The result of `bar.red` for the lanes in `mask`.
fn write_vote(warp: &mut Warp, mask: Mask, barrier: &Barrier, arrivals: &Arrivals) {
    let all = |holds: bool| if holds { Mask::MAX } else { 0 };
    match barrier.kind {
        BarrierKind::Popc => warp.registers.put(barrier.d, mask, &[arrivals.yes; LANES]),
        BarrierKind::And => warp.registers.put_predicate(barrier.d, mask, all(arrivals.yes == arrivals.votes)),
        BarrierKind::Or => warp.registers.put_predicate(barrier.d, mask, all(arrivals.yes > 0)),
        BarrierKind::Sync | BarrierKind::Arrive => {}
    }
}
