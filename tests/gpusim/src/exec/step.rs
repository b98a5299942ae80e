//! Instructions that touch more than registers lane by lane, and need no change of control.

use super::access::{load_access, store_access};
use super::collective::{self, Shuffle};
use super::env::{Env, Outcome};
use super::registers::{LANES, Mask, Reg, Registers};
use super::{atomic, matrix, mma, select};
use crate::check::finding::Kind;
use crate::decode::inst::{Clock, Op};

/// For a warp-wide instruction, the register that names its members (None inside: the whole warp).
pub fn members(op: &Op) -> Option<Option<Reg>> {
    match op {
        Op::WarpBarrier { members }
        | Op::Shuffle { members, .. }
        | Op::Vote { members, .. }
        | Op::Match { members, .. }
        | Op::Reduce { members, .. }
        | Op::Elect { members, .. } => Some(Some(*members)),
        Op::MatrixLoad { .. } | Op::Mma(_) => Some(None),
        _ => None,
    }
}

/// Runs an instruction for the lanes in `mask`, which is not empty.
pub fn run(env: &mut Env, registers: &mut Registers, warp: usize, pc: usize, mask: Mask, op: &Op) -> Outcome<()> {
    match op {
        Op::Lanes(run, args) => run(registers, args, mask),
        Op::Convert { conversion, d, target_size, s, source_size } => {
            conversion.run(registers, *d, *target_size as usize, *s, *source_size as usize, mask);
        }
        Op::SetPredicate { compare, a, b, combine, p, q } => {
            let held = compare(registers, *a, *b);
            let (yes, no) = (select::combined(registers, held, *combine), select::combined(registers, !held, *combine));
            if let Some(p) = p {
                registers.put_predicate(*p, mask, yes);
            }
            if let Some(q) = q {
                registers.put_predicate(*q, mask, no);
            }
        }
        Op::Set { compare, a, b, combine, d, ones } => {
            let held = select::combined(registers, compare(registers, *a, *b), *combine);
            let values: [u32; LANES] = std::array::from_fn(|lane| if held >> lane & 1 != 0 { *ones } else { 0 });
            registers.put(*d, mask, &values);
        }
        Op::PredicateLogic { logic, d, a, b } => {
            let value = select::combine(*logic, collective::holds(registers, *a), collective::holds(registers, *b));
            registers.put_predicate(*d, mask, value);
        }
        Op::Select { d, a, b, predicate, size } => {
            let chosen = collective::holds(registers, *predicate);
            select::select(registers, mask, *d, *a, *b, chosen, *size);
        }
        Op::SelectSign { d, a, b, c, is_float, size } => {
            let chosen = select::non_negative(registers, *c, *is_float);
            select::select(registers, mask, *d, *a, *b, chosen, *size);
        }
        Op::Pack { d, size, parts } => select::pack(registers, mask, *d, *size as usize, parts),
        Op::Unpack { s, size, parts } => select::unpack(registers, mask, *s, *size as usize, parts),
        Op::Clock { d, clock } => read_clock(env, registers, mask, *d, *clock),
        Op::ActiveMask { d } => registers.put(*d, mask, &[mask; LANES]),
        Op::Nop => {}
        Op::Fence => env.shared.shadow.clock.fence(warp),
        Op::Load(access) => load_access(env, registers, warp, pc, mask, access)?,
        Op::Store(access) => store_access(env, registers, warp, pc, mask, access)?,
        Op::Atomic(atomic) => atomic::run(env, registers, warp, pc, mask, atomic)?,
        _ => unreachable!("control flow and warp-wide instructions are the warp's own"),
    }
    Ok(())
}

fn read_clock(env: &Env, registers: &mut Registers, mask: Mask, d: Reg, clock: Clock) {
    match clock {
        Clock::Low32 => registers.put(d, mask, &[env.clock as u32; LANES]),
        Clock::High32 => registers.put(d, mask, &[(env.clock >> 32) as u32; LANES]),
        // As if an instruction took a nanosecond: the same in every run.
        Clock::Wide | Clock::GlobalTimer => registers.put(d, mask, &[env.clock; LANES]),
    }
}

/// Runs a warp-wide instruction for its members, all of which are here.
pub fn run_collective(
    env: &mut Env,
    registers: &mut Registers,
    warp: usize,
    pc: usize,
    mask: Mask,
    live: Mask,
    op: &Op,
) -> Outcome<()> {
    match op {
        Op::WarpBarrier { .. } => {
            env.shared.shadow.make_room();
            env.shared.shadow.clock.synchronize_warp(warp, mask, live);
        }
        Op::Shuffle { mode, d, p, a, b, c, .. } => {
            let operands = Shuffle { mode: *mode, d: *d, p: *p, a: *a, b: *b, c: *c };
            let strangers = collective::shuffle(registers, mask, &operands);
            if strangers != 0 {
                let lane = strangers.trailing_zeros() as usize;
                env.note(Kind::Uninitialized, pc, warp * LANES + lane, None, strangers.count_ones(), || {
                    format!("lane {lane} reads a register of a lane that does not take part")
                });
            }
        }
        Op::Vote { mode, d, predicate, .. } => collective::vote(registers, mask, *mode, *d, *predicate),
        Op::Match { all, d, p, a, size, .. } => {
            let values = if *size == 4 { registers.get::<u32>(*a).map(u64::from) } else { *registers.get::<u64>(*a) };
            collective::matching(registers, mask, *all, *d, *p, values);
        }
        Op::Reduce { op, signed, d, a, .. } => collective::reduce(registers, mask, *op, *signed, *d, *a),
        Op::Elect { d, p, .. } => {
            let leader = mask.trailing_zeros();
            registers.put_predicate(*p, mask, 1 << leader);
            if let Some(d) = d {
                registers.put(*d, mask, &[leader; LANES]);
            }
        }
        Op::MatrixLoad { address, count, transposed, d } => {
            matrix::load(env, registers, warp, pc, address, *transposed, &d[..*count as usize])?;
        }
        Op::Mma(mma) => {
            let k = mma.kind.k() as u64;
            env.counters.tensor_multiply_adds += 16 * 8 * k;
            mma::run(registers, mma);
        }
        _ => unreachable!("not a warp-wide instruction"),
    }
    Ok(())
}
