//! `setp` and `set`: comparisons of every type.

use super::float::flush;
use super::half::{Bf16, F16, Half};
use super::lanes::{Compare, compare};
use crate::decode::words::Words;
use crate::ptx::Type;

/// The comparison modifiers of PTX; the second half of the list is for floats: `u` ones hold when an operand is NaN.
const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

macro_rules! integers {
    ($name:expr, $T:ty) => {
        match $name {
            "eq" => Some(compare!(|a: $T, b: $T| a == b)),
            "ne" => Some(compare!(|a: $T, b: $T| a != b)),
            "lt" | "lo" => Some(compare!(|a: $T, b: $T| a < b)),
            "le" | "ls" => Some(compare!(|a: $T, b: $T| a <= b)),
            "gt" | "hi" => Some(compare!(|a: $T, b: $T| a > b)),
            "ge" | "hs" => Some(compare!(|a: $T, b: $T| a >= b)),
            _ => None,
        }
    };
}

/// Whether a number is missing for a comparison.
#[inline(always)]
fn are_unordered(a: f64, b: f64) -> bool {
    a.is_nan() || b.is_nan()
}

macro_rules! floats {
    ($name:expr, $T:ty, |$x:ident| $value:expr) => {{
        #[inline(always)]
        fn value($x: $T) -> f64 {
            ($value) as f64
        }
        match $name {
            "eq" => Some(compare!(|a: $T, b: $T| value(a) == value(b))),
            "ne" => Some(compare!(|a: $T, b: $T| value(a) < value(b) || value(a) > value(b))),
            "lt" => Some(compare!(|a: $T, b: $T| value(a) < value(b))),
            "le" => Some(compare!(|a: $T, b: $T| value(a) <= value(b))),
            "gt" => Some(compare!(|a: $T, b: $T| value(a) > value(b))),
            "ge" => Some(compare!(|a: $T, b: $T| value(a) >= value(b))),
            "equ" => Some(compare!(|a: $T, b: $T| are_unordered(value(a), value(b)) || value(a) == value(b))),
            "neu" => Some(compare!(|a: $T, b: $T| value(a) != value(b))),
            "ltu" => Some(compare!(|a: $T, b: $T| are_unordered(value(a), value(b)) || value(a) < value(b))),
            "leu" => Some(compare!(|a: $T, b: $T| are_unordered(value(a), value(b)) || value(a) <= value(b))),
            "gtu" => Some(compare!(|a: $T, b: $T| are_unordered(value(a), value(b)) || value(a) > value(b))),
            "geu" => Some(compare!(|a: $T, b: $T| are_unordered(value(a), value(b)) || value(a) >= value(b))),
            "num" => Some(compare!(|a: $T, b: $T| !are_unordered(value(a), value(b)))),
            "nan" => Some(compare!(|a: $T, b: $T| are_unordered(value(a), value(b)))),
            _ => None,
        }
    }};
}

/// The comparison that the modifiers of `setp` or `set` name, on operands of type `ty`.
pub fn select(words: &Words, ty: Type) -> Option<Compare> {
    let name = words.take_one(&COMPARISONS)?;
    match ty {
        Type::B16 | Type::U16 => integers!(name, u16),
        Type::B32 | Type::U32 => integers!(name, u32),
        Type::B64 | Type::U64 => integers!(name, u64),
        Type::S16 => integers!(name, i16),
        Type::S32 => integers!(name, i32),
        Type::S64 => integers!(name, i64),
        Type::F32 if words.take("ftz") => floats!(name, f32, |x| flush(x)),
        Type::F32 => floats!(name, f32, |x| x),
        Type::F64 => floats!(name, f64, |x| x),
        Type::F16 => floats!(name, u16, |x| F16::to_f32(x)),
        Type::Bf16 => floats!(name, u16, |x| Bf16::to_f32(x)),
        _ => None,
    }
}
