//! Logic, shifts and bit fields.

use super::lanes::{Run, lanes};
use crate::decode::words::Words;
use crate::ptx::Type;

macro_rules! by_width {
    ($ty:expr, |$($a:ident),*| $body:expr) => {
        match $ty.size() {
            2 => Some(lanes!(|$($a: u16),*| -> u16 { $body })),
            4 => Some(lanes!(|$($a: u32),*| -> u32 { $body })),
            8 => Some(lanes!(|$($a: u64),*| -> u64 { $body })),
            _ => None,
        }
    };
}

/// The function of a logic or bit-field instruction on type `ty`. `imm` is the table of `lop3` and the mode of `prmt`.
pub fn select(words: &Words, ty: Type) -> Option<Run> {
    match words.base() {
        "and" => by_width!(ty, |a, b| a & b),
        "or" => by_width!(ty, |a, b| a | b),
        "xor" => by_width!(ty, |a, b| a ^ b),
        "not" => by_width!(ty, |a| !a),
        "cnot" => by_width!(ty, |a| (a == 0).into()),
        "shl" => match ty.size() {
            2 => Some(lanes!(|a: u16, n: u32| -> u16 { a.checked_shl(n).unwrap_or(0) })),
            4 => Some(lanes!(|a: u32, n: u32| -> u32 { if n > 31 { 0 } else { a << (n & 31) } })),
            8 => Some(lanes!(|a: u64, n: u32| -> u64 { if n > 63 { 0 } else { a << (n & 63) } })),
            _ => None,
        },
        "shr" => shift_right(ty),
        "shf" => funnel_shift(words),
        "lop3" => Some(lanes!(|imm; a: u32, b: u32, c: u32| -> u32 { lop3(a, b, c, imm) })),
        "prmt" => Some(lanes!(|imm; a: u32, b: u32, c: u32| -> u32 { permute(a, b, c, imm) })),
        "popc" => match ty.size() {
            4 => Some(lanes!(|a: u32| -> u32 { a.count_ones() })),
            _ => Some(lanes!(|a: u64| -> u32 { a.count_ones() })),
        },
        "clz" => match ty.size() {
            4 => Some(lanes!(|a: u32| -> u32 { a.leading_zeros() })),
            _ => Some(lanes!(|a: u64| -> u32 { a.leading_zeros() })),
        },
        "brev" => match ty.size() {
            4 => Some(lanes!(|a: u32| -> u32 { a.reverse_bits() })),
            _ => Some(lanes!(|a: u64| -> u64 { a.reverse_bits() })),
        },
        "bfind" => find_leading_bit(ty, words.take("shiftamt")),
        "fns" => Some(lanes!(|mask: u32, base: u32, offset: i32| -> u32 { find_nth_set(mask, base, offset) })),
        "bfe" => extract(ty),
        "bfi" => match ty.size() {
            4 => Some(lanes!(|a: u32, b: u32, p: u32, n: u32| -> u32 { insert(a as u64, b as u64, p, n, 32) as u32 })),
            _ => Some(lanes!(|a: u64, b: u64, p: u32, n: u32| -> u64 { insert(a, b, p, n, 64) })),
        },
        "dp4a" => dot4(words),
        _ => None,
    }
}

fn shift_right(ty: Type) -> Option<Run> {
    match (ty.size(), ty.is_signed()) {
        (2, false) => Some(lanes!(|a: u16, n: u32| -> u16 { a.checked_shr(n).unwrap_or(0) })),
        (2, true) => Some(lanes!(|a: i16, n: u32| -> i16 { a >> n.min(15) })),
        (4, false) => Some(lanes!(|a: u32, n: u32| -> u32 { if n > 31 { 0 } else { a >> (n & 31) } })),
        (4, true) => Some(lanes!(|a: i32, n: u32| -> i32 { a >> n.min(31) })),
        (8, false) => Some(lanes!(|a: u64, n: u32| -> u64 { if n > 63 { 0 } else { a >> (n & 63) } })),
        (8, true) => Some(lanes!(|a: i64, n: u32| -> i64 { a >> n.min(63) })),
        _ => None,
    }
}

/// `shf`: the 64 bits `b:a` shifted; left keeps the high half, right the low one.
fn funnel_shift(words: &Words) -> Option<Run> {
    let left = words.take("l");
    if !left && !words.take("r") {
        return None;
    }
    match (left, words.take("clamp"), words.take("wrap")) {
        (true, true, false) => Some(lanes!(|a: u32, b: u32, n: u32| -> u32 { (join(a, b) << n.min(32) >> 32) as u32 })),
        (true, false, true) => Some(lanes!(|a: u32, b: u32, n: u32| -> u32 { (join(a, b) << (n & 31) >> 32) as u32 })),
        (false, true, false) => Some(lanes!(|a: u32, b: u32, n: u32| -> u32 { (join(a, b) >> n.min(32)) as u32 })),
        (false, false, true) => Some(lanes!(|a: u32, b: u32, n: u32| -> u32 { (join(a, b) >> (n & 31)) as u32 })),
        _ => None,
    }
}

fn join(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Any function of three bits; bit `4·a + 2·b + c` of the table is its value.
fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut out = 0;
    for row in 0..8 {
        let pick = |x: u32, bit: u32| if row >> bit & 1 != 0 { x } else { !x };
        if table >> row & 1 != 0 {
            out |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    out
}

/// `prmt` modes, in [`super::lanes::Args::imm`].
pub fn permute_mode(words: &Words) -> u32 {
    ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]
        .iter()
        .position(|mode| words.take(mode))
        .map_or(0, |mode| mode as u32 + 1)
}

/// Four bytes chosen from the eight of `b:a`. In the default mode each nibble of `c` selects one, its top bit replicating the sign.
fn permute(a: u32, b: u32, c: u32, mode: u32) -> u32 {
    let bytes = join(a, b).to_le_bytes();
    let n = (c & 3) as usize;
    let pick = |i: usize| bytes[i & 7];
    let out = match mode {
        0 => std::array::from_fn(|i| {
            let nibble = c >> (4 * i) & 15;
            let byte = pick(nibble as usize & 7);
            if nibble & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte }
        }),
        1 => std::array::from_fn(|i| pick(n + i)),
        2 => std::array::from_fn(|i| pick(n + 8 - i)),
        3 => [pick(n); 4],
        4 => std::array::from_fn(|i| pick(i.max(n))),
        5 => std::array::from_fn(|i| pick(i.min(n))),
        _ => std::array::from_fn(|i| pick((n & 1) * 2 + (i & 1))),
    };
    u32::from_le_bytes(out)
}

/// The highest bit that differs from the sign, or all ones if there is none; with `shiftamt`, how far to shift it to the top.
fn find_leading_bit(ty: Type, shift: bool) -> Option<Run> {
    match (ty, shift) {
        (Type::U32, false) => Some(lanes!(|a: u32| -> u32 { leading(a as u64, None) })),
        (Type::U32, true) => Some(lanes!(|a: u32| -> u32 { leading(a as u64, Some(31)) })),
        (Type::S32, false) => Some(lanes!(|a: i32| -> u32 { leading((a ^ a >> 31) as u32 as u64, None) })),
        (Type::S32, true) => Some(lanes!(|a: i32| -> u32 { leading((a ^ a >> 31) as u32 as u64, Some(31)) })),
        (Type::U64, false) => Some(lanes!(|a: u64| -> u32 { leading(a, None) })),
        (Type::U64, true) => Some(lanes!(|a: u64| -> u32 { leading(a, Some(63)) })),
        (Type::S64, false) => Some(lanes!(|a: i64| -> u32 { leading((a ^ a >> 63) as u64, None) })),
        (Type::S64, true) => Some(lanes!(|a: i64| -> u32 { leading((a ^ a >> 63) as u64, Some(63)) })),
        _ => None,
    }
}

/// The highest set bit, or its distance from bit `top`.
fn leading(a: u64, top: Option<u32>) -> u32 {
    match (a.checked_ilog2(), top) {
        (None, _) => u32::MAX,
        (Some(bit), None) => bit,
        (Some(bit), Some(top)) => top - bit,
    }
}

/// `fns`: the position of the |offset|-th set bit from `base`, upwards or downwards.
fn find_nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    if base > 31 {
        return u32::MAX;
    }
    if offset == 0 {
        return if mask >> base & 1 != 0 { base } else { u32::MAX };
    }
    let (mut at, step, mut left) = (base as i32, offset.signum(), offset.unsigned_abs());
    while (0..32).contains(&at) {
        left -= mask >> at & 1;
        if left == 0 {
            return at as u32;
        }
        at += step;
    }
    u32::MAX
}

/// `bfe`: position and length are taken modulo 256; a signed field takes its sign from its top bit (or the register's, if
/// the field reaches past it).
fn extract(ty: Type) -> Option<Run> {
    match ty {
        Type::U32 => {
            Some(lanes!(|a: u32, p: u32, n: u32| -> u32 { field(a as u64, p & 255, n & 255, 32, false) as u32 }))
        }
        Type::S32 => {
            Some(lanes!(|a: u32, p: u32, n: u32| -> u32 { field(a as u64, p & 255, n & 255, 32, true) as u32 }))
        }
        Type::U64 => Some(lanes!(|a: u64, p: u32, n: u32| -> u64 { field(a, p & 255, n & 255, 64, false) })),
        Type::S64 => Some(lanes!(|a: u64, p: u32, n: u32| -> u64 { field(a, p & 255, n & 255, 64, true) })),
        _ => None,
    }
}

fn field(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let bit = |i: u32| a >> i.min(width - 1) & 1;
    let fill = if !signed || length == 0 { 0 } else { bit(position + length - 1) };
    let mut out = 0;
    for i in 0..width {
        let value = if i < length && position + i < width { bit(position + i) } else { fill };
        out |= value << i;
    }
    out
}

/// `bfi`: the low `length` bits of `a` laid over `b` at `position`.
fn insert(a: u64, b: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 255, length & 255);
    if position >= width || length == 0 {
        return b;
    }
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    (b & !(ones << position)) | (a & ones) << position
}

fn dot4(words: &Words) -> Option<Run> {
    match (words.types().first()?, words.types().get(1)?) {
        (Type::U32, Type::U32) => Some(lanes!(|a: u32, b: u32, c: u32| -> u32 { dot_bytes(a, b, c, false, false) })),
        (Type::S32, Type::S32) => Some(lanes!(|a: u32, b: u32, c: u32| -> u32 { dot_bytes(a, b, c, true, true) })),
        (Type::U32, Type::S32) => Some(lanes!(|a: u32, b: u32, c: u32| -> u32 { dot_bytes(a, b, c, false, true) })),
        (Type::S32, Type::U32) => Some(lanes!(|a: u32, b: u32, c: u32| -> u32 { dot_bytes(a, b, c, true, false) })),
        _ => None,
    }
}

fn dot_bytes(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let byte = |x: u32, i: usize, signed: bool| {
        let byte = x.to_le_bytes()[i];
        if signed { byte as i8 as i32 } else { byte as i32 }
    };
    (0..4).fold(c, |sum, i| sum.wrapping_add((byte(a, i, a_signed) * byte(b, i, b_signed)) as u32))
}
