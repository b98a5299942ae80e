//! Warp instructions on the lanes that take part: shuffle, vote, match, reduce. The mask holds exactly the members.

use super::env::lanes;
use super::registers::{LANES, Mask, Reg, Registers};
use crate::decode::inst::{Predicate, ReduceOp, ShuffleMode, VoteMode};

/// The lanes where a predicate holds.
#[inline(always)]
pub fn holds(registers: &Registers, predicate: Predicate) -> Mask {
    registers.predicate(predicate.reg) ^ if predicate.negated { Mask::MAX } else { 0 }
}

/// Operands of a `shfl`.
pub struct Shuffle {
    pub mode: ShuffleMode,
    pub d: Reg,
    pub p: Option<Reg>,
    pub a: Reg,
    pub b: Reg,
    pub c: Reg,
}

/// `shfl.sync`, as the ISA's pseudocode has it. Gives the lanes that read a lane outside `mask`: their value is undefined.
pub fn shuffle(registers: &mut Registers, mask: Mask, shuffle: &Shuffle) -> Mask {
    let (a, b, c) =
        (*registers.get::<u32>(shuffle.a), registers.get::<u32>(shuffle.b), registers.get::<u32>(shuffle.c));
    let (mut out, mut valid, mut strangers) = ([0u32; LANES], 0, 0);
    for lane in 0..LANES {
        let (own, offset) = (lane as i32, (b[lane] & 31) as i32);
        let (clamp, segment) = ((c[lane] & 31) as i32, (c[lane] >> 8 & 31) as i32);
        let lowest = own & segment;
        let highest = lowest | (clamp & !segment);
        let (source, is_valid) = match shuffle.mode {
            ShuffleMode::Up => (own - offset, own - offset >= highest),
            ShuffleMode::Down => (own + offset, own + offset <= highest),
            ShuffleMode::Butterfly => (own ^ offset, own ^ offset <= highest),
            ShuffleMode::Index => (lowest | (offset & !segment), lowest | (offset & !segment) <= highest),
        };
        let source = if is_valid { source as usize & 31 } else { lane };
        valid |= (is_valid as Mask) << lane;
        strangers |= (mask >> source & 1 ^ 1) << lane;
        out[lane] = a[source];
    }
    registers.put(shuffle.d, mask, &out);
    if let Some(p) = shuffle.p {
        registers.put_predicate(p, mask, valid);
    }
    strangers & mask
}

pub fn vote(registers: &mut Registers, mask: Mask, mode: VoteMode, d: Reg, predicate: Predicate) {
    let yes = holds(registers, predicate) & mask;
    let answer = match mode {
        VoteMode::Ballot => return registers.put(d, mask, &[yes; LANES]),
        VoteMode::All => yes == mask,
        VoteMode::Any => yes != 0,
        VoteMode::Uniform => yes == mask || yes == 0,
    };
    registers.put_predicate(d, mask, if answer { Mask::MAX } else { 0 });
}

/// `match.any`: the lanes with the same value. `match.all`: all of them if all have the same, and whether they do.
pub fn matching(registers: &mut Registers, mask: Mask, all: bool, d: Reg, p: Option<Reg>, values: [u64; LANES]) {
    let same = |lane: usize| lanes(mask).filter(|l| values[*l] == values[lane]).fold(0, |m, l| m | 1 << l);
    let mut out = [0; LANES];
    let mut is_all = true;
    for lane in lanes(mask) {
        out[lane] = same(lane);
        is_all &= out[lane] == mask;
    }
    if all && !is_all {
        out = [0; LANES];
    }
    registers.put(d, mask, &out);
    if let Some(p) = p {
        registers.put_predicate(p, mask, if is_all { Mask::MAX } else { 0 });
    }
}

pub fn reduce(registers: &mut Registers, mask: Mask, op: ReduceOp, signed: bool, d: Reg, a: Reg) {
    let a = registers.get::<u32>(a);
    let total = lanes(mask).map(|lane| a[lane]).reduce(|x, y| match op {
        ReduceOp::Add => x.wrapping_add(y),
        ReduceOp::And => x & y,
        ReduceOp::Or => x | y,
        ReduceOp::Xor => x ^ y,
        ReduceOp::Min if signed => (x as i32).min(y as i32) as u32,
        ReduceOp::Max if signed => (x as i32).max(y as i32) as u32,
        ReduceOp::Min => x.min(y),
        ReduceOp::Max => x.max(y),
    });
    registers.put(d, mask, &[total.unwrap_or(0); LANES]);
}
