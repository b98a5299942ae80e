//! Integer arithmetic: add, sub, mul, mad, div, rem, abs, neg, min, max, sad, and the carry-free parts of them.

use super::lanes::{Run, lanes};
use crate::decode::words::Words;
use crate::ptx::Type;

/// One arm per width, signedness left out where the bits are the same.
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

/// One arm per width and signedness.
macro_rules! by_type {
    ($ty:expr, |$($a:ident),*| $body:expr) => {
        match $ty {
            Type::U16 => Some(lanes!(|$($a: u16),*| -> u16 { $body })),
            Type::S16 => Some(lanes!(|$($a: i16),*| -> i16 { $body })),
            Type::U32 => Some(lanes!(|$($a: u32),*| -> u32 { $body })),
            Type::S32 => Some(lanes!(|$($a: i32),*| -> i32 { $body })),
            Type::U64 => Some(lanes!(|$($a: u64),*| -> u64 { $body })),
            Type::S64 => Some(lanes!(|$($a: i64),*| -> i64 { $body })),
            _ => None,
        }
    };
}

/// Where the product of two 32-bit numbers is kept: its low half, its high half, or all of it.
#[derive(Clone, Copy, PartialEq)]
enum Half {
    Low,
    High,
    Wide,
}

/// The function of an integer instruction whose operands all have type `ty` (`mul.wide` and `mad.wide` write twice its width).
pub fn select(words: &Words, ty: Type) -> Option<Run> {
    match words.base() {
        "add" if words.take("sat") => {
            (ty == Type::S32).then(|| lanes!(|a: i32, b: i32| -> i32 { a.saturating_add(b) }))
        }
        "sub" if words.take("sat") => {
            (ty == Type::S32).then(|| lanes!(|a: i32, b: i32| -> i32 { a.saturating_sub(b) }))
        }
        "add" => by_width!(ty, |a, b| a.wrapping_add(b)),
        "sub" => by_width!(ty, |a, b| a.wrapping_sub(b)),
        "mul" => multiply(half(words)?, ty),
        "mad" => multiply_add(half(words)?, ty, words.take("sat")),
        "mul24" => multiply24(half(words)?, ty),
        "mad24" => multiply_add24(half(words)?, ty),
        "div" => divide(ty),
        "rem" => remainder(ty),
        "abs" => match ty {
            Type::S16 => Some(lanes!(|a: i16| -> i16 { a.wrapping_abs() })),
            Type::S32 => Some(lanes!(|a: i32| -> i32 { a.wrapping_abs() })),
            Type::S64 => Some(lanes!(|a: i64| -> i64 { a.wrapping_abs() })),
            _ => None,
        },
        "neg" if ty.is_signed() => by_width!(ty, |a| a.wrapping_neg()),
        "min" => by_type!(ty, |a, b| a.min(b)),
        "max" => by_type!(ty, |a, b| a.max(b)),
        "sad" => sum_of_absolute_difference(ty),
        _ => None,
    }
}

fn half(words: &Words) -> Option<Half> {
    match () {
        _ if words.take("lo") => Some(Half::Low),
        _ if words.take("hi") => Some(Half::High),
        _ if words.take("wide") => Some(Half::Wide),
        _ => None,
    }
}

fn multiply(half: Half, ty: Type) -> Option<Run> {
    match (half, ty) {
        (Half::Low, _) => by_width!(ty, |a, b| a.wrapping_mul(b)),
        (Half::High, Type::U16) => Some(lanes!(|a: u16, b: u16| -> u16 { ((a as u32 * b as u32) >> 16) as u16 })),
        (Half::High, Type::S16) => Some(lanes!(|a: i16, b: i16| -> i16 { ((a as i32 * b as i32) >> 16) as i16 })),
        (Half::High, Type::U32) => Some(lanes!(|a: u32, b: u32| -> u32 { high_u32(a, b) })),
        (Half::High, Type::S32) => Some(lanes!(|a: i32, b: i32| -> i32 { high_i32(a, b) })),
        (Half::High, Type::U64) => Some(lanes!(|a: u64, b: u64| -> u64 { high_u64(a, b) })),
        (Half::High, Type::S64) => Some(lanes!(|a: i64, b: i64| -> i64 { high_i64(a, b) })),
        (Half::Wide, Type::U16) => Some(lanes!(|a: u16, b: u16| -> u32 { a as u32 * b as u32 })),
        (Half::Wide, Type::S16) => Some(lanes!(|a: i16, b: i16| -> i32 { a as i32 * b as i32 })),
        (Half::Wide, Type::U32) => Some(lanes!(|a: u32, b: u32| -> u64 { a as u64 * b as u64 })),
        (Half::Wide, Type::S32) => Some(lanes!(|a: i32, b: i32| -> i64 { a as i64 * b as i64 })),
        _ => None,
    }
}

fn multiply_add(half: Half, ty: Type, saturate: bool) -> Option<Run> {
    match (half, ty) {
        (Half::High, Type::S32) if saturate => {
            Some(lanes!(|a: i32, b: i32, c: i32| -> i32 { high_i32(a, b).saturating_add(c) }))
        }
        _ if saturate => None,
        (Half::Low, _) => by_width!(ty, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        (Half::High, Type::U32) => Some(lanes!(|a: u32, b: u32, c: u32| -> u32 { high_u32(a, b).wrapping_add(c) })),
        (Half::High, Type::S32) => Some(lanes!(|a: i32, b: i32, c: i32| -> i32 { high_i32(a, b).wrapping_add(c) })),
        (Half::High, Type::U64) => Some(lanes!(|a: u64, b: u64, c: u64| -> u64 { high_u64(a, b).wrapping_add(c) })),
        (Half::High, Type::S64) => Some(lanes!(|a: i64, b: i64, c: i64| -> i64 { high_i64(a, b).wrapping_add(c) })),
        (Half::Wide, Type::U16) => {
            Some(lanes!(|a: u16, b: u16, c: u32| -> u32 { (a as u32 * b as u32).wrapping_add(c) }))
        }
        (Half::Wide, Type::S16) => {
            Some(lanes!(|a: i16, b: i16, c: i32| -> i32 { (a as i32 * b as i32).wrapping_add(c) }))
        }
        (Half::Wide, Type::U32) => {
            Some(lanes!(|a: u32, b: u32, c: u64| -> u64 { (a as u64 * b as u64).wrapping_add(c) }))
        }
        (Half::Wide, Type::S32) => {
            Some(lanes!(|a: i32, b: i32, c: i64| -> i64 { (a as i64 * b as i64).wrapping_add(c) }))
        }
        _ => None,
    }
}

/// 24-bit factors, a 48-bit product, of which 32 bits are kept: the low ones, or bits 16 to 47.
fn multiply24(half: Half, ty: Type) -> Option<Run> {
    match (half, ty) {
        (Half::Low, Type::U32) => Some(lanes!(|a: u32, b: u32| -> u32 { product_u24(a, b) as u32 })),
        (Half::High, Type::U32) => Some(lanes!(|a: u32, b: u32| -> u32 { (product_u24(a, b) >> 16) as u32 })),
        (Half::Low, Type::S32) => Some(lanes!(|a: i32, b: i32| -> i32 { product_i24(a, b) as i32 })),
        (Half::High, Type::S32) => Some(lanes!(|a: i32, b: i32| -> i32 { (product_i24(a, b) >> 16) as i32 })),
        _ => None,
    }
}

fn multiply_add24(half: Half, ty: Type) -> Option<Run> {
    match (half, ty) {
        (Half::Low, Type::U32) => {
            Some(lanes!(|a: u32, b: u32, c: u32| -> u32 { (product_u24(a, b) as u32).wrapping_add(c) }))
        }
        (Half::Low, Type::S32) => {
            Some(lanes!(|a: i32, b: i32, c: i32| -> i32 { (product_i24(a, b) as i32).wrapping_add(c) }))
        }
        _ => None,
    }
}

/// Division by zero gives all ones, and the smallest number over -1 itself: what NVIDIA's hardware gives where the ISA leaves
/// the value open.
fn divide(ty: Type) -> Option<Run> {
    match ty {
        Type::U16 => Some(lanes!(|a: u16, b: u16| -> u16 { a.checked_div(b).unwrap_or(u16::MAX) })),
        Type::U32 => Some(lanes!(|a: u32, b: u32| -> u32 { a.checked_div(b).unwrap_or(u32::MAX) })),
        Type::U64 => Some(lanes!(|a: u64, b: u64| -> u64 { a.checked_div(b).unwrap_or(u64::MAX) })),
        Type::S16 => Some(lanes!(|a: i16, b: i16| -> i16 { if b == 0 { -1 } else { a.wrapping_div(b) } })),
        Type::S32 => Some(lanes!(|a: i32, b: i32| -> i32 { if b == 0 { -1 } else { a.wrapping_div(b) } })),
        Type::S64 => Some(lanes!(|a: i64, b: i64| -> i64 { if b == 0 { -1 } else { a.wrapping_div(b) } })),
        _ => None,
    }
}

/// The remainder by zero is the dividend.
fn remainder(ty: Type) -> Option<Run> {
    by_type!(ty, |a, b| if b == 0 { a } else { a.wrapping_rem(b) })
}

fn sum_of_absolute_difference(ty: Type) -> Option<Run> {
    match ty {
        Type::U16 => Some(lanes!(|a: u16, b: u16, c: u16| -> u16 { a.abs_diff(b).wrapping_add(c) })),
        Type::S16 => Some(lanes!(|a: i16, b: i16, c: u16| -> u16 { a.abs_diff(b).wrapping_add(c) })),
        Type::U32 => Some(lanes!(|a: u32, b: u32, c: u32| -> u32 { a.abs_diff(b).wrapping_add(c) })),
        Type::S32 => Some(lanes!(|a: i32, b: i32, c: u32| -> u32 { a.abs_diff(b).wrapping_add(c) })),
        Type::U64 => Some(lanes!(|a: u64, b: u64, c: u64| -> u64 { a.abs_diff(b).wrapping_add(c) })),
        Type::S64 => Some(lanes!(|a: i64, b: i64, c: u64| -> u64 { a.abs_diff(b).wrapping_add(c) })),
        _ => None,
    }
}

fn high_u32(a: u32, b: u32) -> u32 {
    ((a as u64 * b as u64) >> 32) as u32
}

fn high_i32(a: i32, b: i32) -> i32 {
    ((a as i64 * b as i64) >> 32) as i32
}

fn high_u64(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> 64) as u64
}

fn high_i64(a: i64, b: i64) -> i64 {
    ((a as i128 * b as i128) >> 64) as i64
}

fn product_u24(a: u32, b: u32) -> u64 {
    (a & 0xff_ffff) as u64 * (b & 0xff_ffff) as u64
}

fn product_i24(a: i32, b: i32) -> i64 {
    (a << 8 >> 8) as i64 * (b << 8 >> 8) as i64
}
