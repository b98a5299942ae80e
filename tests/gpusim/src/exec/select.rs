//! Selections, packing, and predicate arithmetic: per-lane instructions that predicates take part in.

use super::collective::holds;
use super::registers::{LANES, Mask, Reg, Registers};
use crate::decode::inst::{Element, Logic, Predicate};

/// `d = a` in the lanes of `chosen`, else `b`.
pub fn select(registers: &mut Registers, mask: Mask, d: Reg, a: Reg, b: Reg, chosen: Mask, size: u8) {
    macro_rules! blend {
        ($T:ty) => {{
            let (a, b) = (registers.get::<$T>(a), registers.get::<$T>(b));
            let mut out = [0; LANES];
            for lane in 0..LANES {
                out[lane] = if chosen >> lane & 1 != 0 { a[lane] } else { b[lane] };
            }
            registers.put(d, mask, &out)
        }};
    }
    match size {
        2 => blend!(u16),
        4 => blend!(u32),
        _ => blend!(u64),
    }
}

/// The lanes where `c` ≥ 0; NaN is not, −0 is.
pub fn non_negative(registers: &Registers, c: Reg, is_float: bool) -> Mask {
    (0..LANES).fold(0, |chosen, lane| {
        let holds = if is_float { registers.get::<f32>(c)[lane] >= 0.0 } else { registers.get::<i32>(c)[lane] >= 0 };
        chosen | (holds as Mask) << lane
    })
}

pub fn combine(logic: Logic, a: Mask, b: Mask) -> Mask {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

/// A comparison joined with the third source of `setp` or `set`.
pub fn combined(registers: &Registers, held: Mask, with: Option<(Logic, Predicate)>) -> Mask {
    match with {
        None => held,
        Some((logic, predicate)) => combine(logic, held, holds(registers, predicate)),
    }
}

fn read(registers: &Registers, reg: Reg, size: usize) -> [u64; LANES] {
    match size {
        2 => registers.get::<u16>(reg).map(u64::from),
        4 => registers.get::<u32>(reg).map(u64::from),
        _ => *registers.get::<u64>(reg),
    }
}

fn write(registers: &mut Registers, reg: Reg, size: usize, mask: Mask, values: &[u64; LANES]) {
    match size {
        2 => registers.put(reg, mask, &values.map(|x| x as u16)),
        4 => registers.put(reg, mask, &values.map(|x| x as u32)),
        _ => registers.put(reg, mask, values),
    }
}

/// `mov.b64 d, {a, b}`: equal parts, the first lowest.
pub fn pack(registers: &mut Registers, mask: Mask, d: Reg, size: usize, parts: &[Element]) {
    let bits = 8 * size / parts.len();
    let mut out = [0; LANES];
    for (i, part) in parts.iter().enumerate() {
        let values = read(registers, part.reg, part.width as usize);
        for lane in 0..LANES {
            out[lane] |= (values[lane] & (u64::MAX >> (64 - bits))) << (i * bits);
        }
    }
    write(registers, d, size, mask, &out);
}

/// `mov.b64 {a, b}, s`; parts of width 0 are not wanted.
pub fn unpack(registers: &mut Registers, mask: Mask, s: Reg, size: usize, parts: &[Element]) {
    let bits = 8 * size / parts.len();
    let values = read(registers, s, size);
    for (i, part) in parts.iter().enumerate().filter(|(_, part)| part.width > 0) {
        let out = values.map(|x| x >> (i * bits) & (u64::MAX >> (64 - bits)));
        write(registers, part.reg, part.width as usize, mask, &out);
    }
}
