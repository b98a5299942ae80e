//! A warp: 32 lanes, each with its own program counter.
//!
//! The lanes at the lowest program counter run together, until they reach the lanes ahead of them and join. Compilers lay code
//! out so that this reconverges branches where they meet. Lanes that spin do not starve lanes ahead: when their patience has run out
//! the next group gets its turn.

use super::async_copy::{AsyncCopies, CopyOperands, issue};
use super::collective::holds;
use super::env::{Env, Fault, MULTIPROCESSORS, Outcome, lanes};
use super::registers::{LANES, Mask, Reg, Registers};
use super::step;
use crate::check::finding::Kind;
use crate::decode::inst::{Access, BarrierKind, Constant, Inst, Kernel, Op, Special};

/// Backward branches a group may take while other lanes of its warp are ahead; those of a loop with atomics or volatile loads,
/// which may wait for the lanes ahead, count [`SPIN`] times.
const PATIENCE: u32 = 1 << 20;
const SPIN: u32 = 1 << 14;

pub struct Warp {
    pub index: usize,
    pub registers: Registers,
    pub copies: AsyncCopies,
    /// Lanes that exist and have not exited.
    pub live: Mask,
    /// Lanes that wait at a barrier of the CTA, and the instruction each waits at.
    pub at_barrier: Mask,
    pub barrier_pc: [u32; LANES],
    /// Lanes that wait for others at a warp-wide instruction.
    at_collective: Mask,
    pc: [u32; LANES],
    patience: u32,
    /// Whether the group may be waiting for others: it met an atomic or volatile access since its last backward branch.
    may_spin: bool,
    /// The group that ran out of patience: one above it is next.
    yielded: Option<u32>,
}

/// Why a warp stopped running.
pub enum Stop {
    /// Its turn is over.
    Budget,
    /// Lanes arrived at the barrier instruction `pc`.
    Barrier { pc: usize, mask: Mask },
    /// No lane can run: all wait or have exited.
    Idle,
}

/// Lanes that run together, and the lowest program counter of lanes ahead of them.
struct Group {
    pc: u32,
    mask: Mask,
    limit: u32,
}

enum Next {
    Reselect,
    Stop(Stop),
}

impl Warp {
    /// A warp with the launch's constants in place.
    pub fn new(index: usize, env: &Env) -> Self {
        let mut registers = Registers::new(env.kernel.columns);
        for (reg, constant) in &env.kernel.constants {
            match constant {
                Constant::Bits16(bits) => registers.fill(*reg, *bits),
                Constant::Bits32(bits) => registers.fill(*reg, *bits),
                Constant::Bits64(bits) => registers.fill(*reg, *bits),
                Constant::Predicate(value) => {
                    registers.put_predicate(*reg, Mask::MAX, if *value { Mask::MAX } else { 0 })
                }
                Constant::Special(special) => *registers.get_mut(*reg) = special_values(*special, index, env),
            }
        }
        Warp {
            index,
            registers,
            copies: AsyncCopies::default(),
            live: 0,
            at_barrier: 0,
            barrier_pc: [0; LANES],
            at_collective: 0,
            pc: [0; LANES],
            patience: PATIENCE,
            may_spin: false,
            yielded: None,
        }
    }

    /// Back to the kernel's first instruction, for the block `env.block`.
    pub fn start_cta(&mut self, env: &Env) {
        let threads = env.launch.threads_per_block() - self.index * LANES;
        self.live = if threads >= LANES { Mask::MAX } else { (1 << threads) - 1 };
        (self.at_barrier, self.at_collective) = (0, 0);
        self.pc = [0; LANES];
        (self.patience, self.yielded) = (PATIENCE, None);
        self.copies.start_cta();
        for (reg, constant) in &env.kernel.constants {
            if let Constant::Special(special @ (Special::Ctaid(_) | Special::Smid)) = constant {
                *self.registers.get_mut(*reg) = special_values(*special, self.index, env);
            }
        }
        for reg in &env.kernel.read_before_written {
            self.registers.fill(*reg, 0u32);
        }
    }

    pub fn is_done(&self) -> bool {
        self.live == 0
    }

    /// Lanes that wait at a warp-wide instruction, with its place: for the report of a deadlock.
    pub fn waiting_collectives(&self) -> impl Iterator<Item = (usize, u32)> {
        lanes(self.at_collective).map(|lane| (lane, self.pc[lane]))
    }

    pub fn release_barrier(&mut self, mask: Mask) {
        self.at_barrier &= !mask;
    }

    /// Runs until `budget` instructions are spent or nothing more can run.
    pub fn run(&mut self, env: &mut Env, budget: &mut u32) -> Outcome<Stop> {
        while let Some(group) = self.select() {
            match self.run_group(env, group, budget)? {
                Next::Reselect => {}
                Next::Stop(stop) => return Ok(stop),
            }
        }
        Ok(Stop::Idle)
    }

    fn select(&mut self) -> Option<Group> {
        let runnable = self.live & !self.at_barrier & !self.at_collective;
        if runnable == 0 {
            return None;
        }
        let lowest = |above: Option<u32>| {
            lanes(runnable).map(|lane| self.pc[lane]).filter(|pc| above.is_none_or(|above| *pc > above)).min()
        };
        let pc = self.yielded.and_then(|yielded| lowest(Some(yielded))).or_else(|| lowest(None))?;
        let limit = lowest(Some(pc)).unwrap_or(u32::MAX);
        let mask = lanes(runnable).filter(|lane| self.pc[*lane] == pc).fold(0, |mask, lane| mask | 1 << lane);
        (self.yielded, self.patience) = (None, PATIENCE);
        Some(Group { pc, mask, limit })
    }

    fn set_pc(&mut self, mask: Mask, pc: u32) {
        for lane in lanes(mask) {
            self.pc[lane] = pc;
        }
    }

    fn run_group(&mut self, env: &mut Env, group: Group, budget: &mut u32) -> Outcome<Next> {
        let kernel: &Kernel = env.kernel;
        let Group { mut pc, mask, limit } = group;
        loop {
            if *budget == 0 {
                self.set_pc(mask, pc);
                return Ok(Next::Stop(Stop::Budget));
            }
            *budget -= 1;
            env.clock += 1;
            let inst = &kernel.code[pc as usize];
            let active = match inst.guard {
                None => mask,
                Some(predicate) => holds(&self.registers, predicate) & mask,
            };
            let count = &mut env.counters.insts[pc as usize];
            count.threads += active.count_ones() as u64;
            count.warps += (active != 0) as u64;
            match &inst.op {
                Op::Lanes(run, args) => {
                    if active != 0 {
                        run(&mut self.registers, args, active);
                    }
                    pc += 1;
                }
                Op::Branch { target } if active == mask => {
                    if *target <= pc && limit != u32::MAX {
                        let cost = if std::mem::take(&mut self.may_spin) { SPIN } else { 1 };
                        self.patience = self.patience.saturating_sub(cost);
                        if self.patience == 0 {
                            self.yielded = Some(*target);
                            self.set_pc(mask, *target);
                            return Ok(Next::Reselect);
                        }
                    }
                    pc = *target;
                }
                Op::Branch { .. } if active == 0 => pc += 1,
                _ if active == 0 => pc += 1,
                _ => match self.run_other(env, inst, pc, mask, active)? {
                    None => pc += 1,
                    Some(next) => return Ok(next),
                },
            }
            if pc >= limit {
                self.set_pc(mask, pc);
                return Ok(Next::Reselect);
            }
        }
    }

    /// Everything that is not a per-lane function or a branch all lanes take; None: go on with the next instruction.
    fn run_other(&mut self, env: &mut Env, inst: &Inst, pc: u32, mask: Mask, active: Mask) -> Outcome<Option<Next>> {
        self.may_spin |= matches!(&inst.op, Op::Atomic(_) | Op::Load(Access { strong: true, .. }));
        match &inst.op {
            Op::Branch { target } => {
                self.set_pc(active, *target);
                self.set_pc(mask & !active, pc + 1);
                Ok(Some(Next::Reselect))
            }
            Op::BranchTable { index, targets } => {
                let index = *self.registers.get::<u32>(*index);
                for lane in lanes(active) {
                    self.pc[lane] = targets.get(index[lane] as usize).copied().unwrap_or(pc + 1);
                }
                self.set_pc(mask & !active, pc + 1);
                Ok(Some(Next::Reselect))
            }
            Op::Exit => {
                self.live &= !active;
                self.at_collective = 0; // who waited for these lanes looks again
                self.set_pc(mask & !active, pc + 1);
                Ok(Some(Next::Reselect))
            }
            Op::Trap | Op::Assert { .. } => {
                let thread = self.index * LANES + active.trailing_zeros() as usize;
                let (message, fault) = match &inst.op {
                    Op::Assert { message } => (message.to_string(), Fault::Assert),
                    _ => ("the kernel trapped".to_string(), Fault::LaunchFailed),
                };
                env.note(Kind::Trap, pc as usize, thread, None, active.count_ones(), || message);
                Err(fault)
            }
            Op::Barrier(barrier) => {
                self.set_pc(mask, pc + 1);
                if barrier.kind != BarrierKind::Arrive {
                    self.at_barrier |= active;
                    lanes(active).for_each(|lane| self.barrier_pc[lane] = pc);
                }
                Ok(Some(Next::Stop(Stop::Barrier { pc: pc as usize, mask: active })))
            }
            Op::AsyncCopy { to, from, size, source_size, ignore } => {
                let operands =
                    CopyOperands { to, from, size: *size as usize, source_size: *source_size, ignore: *ignore };
                issue(env, &self.registers, &mut self.copies, self.index, pc as usize, active, &operands)?;
                Ok(None)
            }
            Op::AsyncCommit => {
                self.copies.commit(active);
                Ok(None)
            }
            Op::AsyncWait { groups } => {
                self.copies.wait(env, self.index, active, *groups);
                Ok(None)
            }
            op => match step::members(op) {
                None => step::run(env, &mut self.registers, self.index, pc as usize, active, op).map(|()| None),
                Some(members) => self.run_collective(env, op, pc, mask, active, members),
            },
        }
    }

    /// A warp-wide instruction: runs for each set of lanes that is complete, the others wait.
    fn run_collective(
        &mut self,
        env: &mut Env,
        op: &Op,
        pc: u32,
        mask: Mask,
        active: Mask,
        members: Option<Reg>,
    ) -> Outcome<Option<Next>> {
        let named = match members {
            Some(reg) => *self.registers.get::<u32>(reg),
            None => [Mask::MAX; LANES],
        };
        let waiting = lanes(self.at_collective).filter(|lane| self.pc[*lane] == pc).fold(0, |m, lane| m | 1 << lane);
        let mut left = active;
        let mut is_waiting = false;
        while left != 0 {
            let set = named[left.trailing_zeros() as usize];
            let here = lanes(left).filter(|lane| named[*lane] == set).fold(0, |m, lane| m | 1 << lane);
            left &= !here;
            let arrived = here | lanes(waiting).filter(|lane| named[*lane] == set).fold(0, |m, lane| m | 1 << lane);
            if set & self.live & !arrived != 0 {
                self.at_collective |= here;
                self.set_pc(here, pc);
                is_waiting = true;
                continue;
            }
            if arrived & !set != 0 || (members.is_none() && arrived != Mask::MAX) {
                self.note_strangers(env, pc, arrived, set);
            }
            step::run_collective(env, &mut self.registers, self.index, pc as usize, arrived, self.live, op)?;
            self.at_collective &= !arrived;
            self.set_pc(arrived, pc + 1);
            is_waiting |= arrived != here;
        }
        if !is_waiting {
            return Ok(None);
        }
        self.set_pc(mask & !active, pc + 1);
        Ok(Some(Next::Reselect))
    }

    fn note_strangers(&self, env: &mut Env, pc: u32, arrived: Mask, set: Mask) {
        let lane = (arrived & !set).trailing_zeros().min(31) as usize;
        env.note(Kind::BarrierDivergence, pc as usize, self.index * LANES + lane, None, 1, || {
            if arrived & !set != 0 {
                format!("lane {lane} takes part, but the member mask {set:#010x} leaves it out")
            } else {
                format!("the whole warp must take part, only lanes {arrived:#010x} do")
            }
        });
    }
}

/// What a special register holds in each lane of a warp.
fn special_values(special: Special, warp: usize, env: &Env) -> [u32; LANES] {
    let launch = env.launch;
    let block = launch.block_index(env.block);
    let thread = |lane: usize| (warp * LANES + lane) as u64;
    std::array::from_fn(|lane| match special {
        Special::Tid(i) => launch.thread_index(thread(lane))[i as usize],
        Special::Ntid(i) => launch.block[i as usize],
        Special::Ctaid(i) => block[i as usize],
        Special::Nctaid(i) => launch.grid[i as usize],
        Special::Zero => 0,
        Special::One => 1,
        Special::Laneid => lane as u32,
        Special::Warpid => warp as u32,
        Special::Nwarpid => launch.warps_per_block() as u32,
        // By block and not by worker, so that it is the same however many workers there are.
        Special::Smid => (env.block % MULTIPROCESSORS as u64) as u32,
        Special::Nsmid => MULTIPROCESSORS,
        Special::LanemaskEq => 1 << lane,
        Special::LanemaskLe => u32::MAX >> (31 - lane),
        Special::LanemaskLt => !(u32::MAX << lane),
        Special::LanemaskGe => u32::MAX << lane,
        Special::LanemaskGt => (u32::MAX << lane) << 1,
        Special::TotalSharedSize => env.shared.len() as u32,
        Special::DynamicSharedSize => launch.dynamic_shared as u32,
    })
}
