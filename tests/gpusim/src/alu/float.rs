//! f32 and f64 arithmetic. A NaN result in f32 is 0x7fffffff, whatever NaN came in.

use super::approx;
use super::lanes::{Compare, Run, compare, lanes};
use super::rounding::{self, Mode};
use crate::decode::words::Words;
use crate::ptx::Type;

/// The NaN that f32 instructions give.
pub const NAN_F32: f32 = f32::from_bits(0x7fff_ffff);

/// On bits: as floats, the compiler may take one NaN for another.
#[inline(always)]
pub fn canonical(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { NAN_F32.to_bits() } else { bits })
}

/// `.ftz`: a subnormal becomes zero of the same sign.
#[inline(always)]
pub fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x }
}

/// `.sat`: into [0, 1], NaN to +0.
#[inline(always)]
pub fn saturate(x: f32) -> f32 {
    if x > 0.0 { if x < 1.0 { x } else { 1.0 } } else { 0.0 }
}

fn saturate_f64(x: f64) -> f64 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// The smaller number; a NaN loses to a number, and −0 is below +0.
#[inline(always)]
pub fn min_f32(a: f32, b: f32) -> f32 {
    let smaller = if a < b { a } else { b };
    let ordered = if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { smaller };
    canonical(if b.is_nan() { a } else { ordered })
}

#[inline(always)]
pub fn max_f32(a: f32, b: f32) -> f32 {
    let larger = if a > b { a } else { b };
    let ordered = if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { larger };
    canonical(if b.is_nan() { a } else { ordered })
}

fn min_f64(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f64::from_bits(a.to_bits() | b.to_bits()),
        _ => a.min(b),
    }
}

fn max_f64(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f64::from_bits(a.to_bits() & b.to_bits()),
        _ => a.max(b),
    }
}

/// Four functions, for `.ftz` and `.sat` or not; `canonical` NaN included. `imm`, where named, is the rounding mode.
macro_rules! f32_lanes {
    ($words:expr, |$($a:ident),*| $body:expr) => { f32_lanes!($words, _mode, |$($a),*| $body) };
    ($words:expr, $imm:ident, |$($a:ident),*| $body:expr) => {
        match ($words.take("ftz"), $words.take("sat")) {
            (false, false) => lanes!(|$imm; $($a: f32),*| -> f32 { canonical($body) }),
            (true, false) => lanes!(|$imm; $($a: f32),*| -> f32 { $(let $a = flush($a);)* flush(canonical($body)) }),
            (false, true) => lanes!(|$imm; $($a: f32),*| -> f32 { saturate($body) }),
            (true, true) => lanes!(|$imm; $($a: f32),*| -> f32 { $(let $a = flush($a);)* flush(saturate($body)) }),
        }
    };
}

/// The rounding modifier, claimed.
pub fn rounding_mode(words: &Words) -> Mode {
    match words.take_one(&["rn", "rz", "rm", "rp", "rna"]) {
        Some("rz") => Mode::Zero,
        Some("rm") => Mode::Down,
        Some("rp") => Mode::Up,
        Some("rna") => Mode::NearestAway,
        _ => Mode::Nearest,
    }
}

/// The function of a floating-point instruction, and its `imm` (the rounding mode).
pub fn select(words: &Words, ty: Type) -> Option<(Run, u32)> {
    let mode = rounding_mode(words);
    let run = match (ty, mode) {
        (Type::F32, Mode::Nearest) => select_f32(words),
        (Type::F32, _) => select_f32_directed(words),
        (Type::F64, Mode::Nearest) => select_f64(words),
        (Type::F64, _) => select_f64_directed(words),
        _ => None,
    }?;
    Some((run, mode as u32))
}

fn select_f32(words: &Words) -> Option<Run> {
    Some(match words.base() {
        "add" => f32_lanes!(words, |a, b| a + b),
        "sub" => f32_lanes!(words, |a, b| a - b),
        "mul" => f32_lanes!(words, |a, b| a * b),
        "fma" | "mad" => f32_lanes!(words, |a, b, c| a.mul_add(b, c)),
        "div" => {
            words.take_one(&["approx", "full"]);
            f32_lanes!(words, |a, b| a / b)
        }
        "rcp" => {
            words.take("approx");
            f32_lanes!(words, |a| 1.0 / a)
        }
        "sqrt" => {
            words.take("approx");
            f32_lanes!(words, |a| a.sqrt())
        }
        "rsqrt" if words.take("approx") => f32_lanes!(words, |a| (1.0 / (a as f64).sqrt()) as f32),
        "ex2" if words.take("approx") => f32_lanes!(words, |a| approx::exp2(a)),
        "lg2" if words.take("approx") => f32_lanes!(words, |a| approx::log2(a)),
        "sin" if words.take("approx") => f32_lanes!(words, |a| (a as f64).sin() as f32),
        "cos" if words.take("approx") => f32_lanes!(words, |a| (a as f64).cos() as f32),
        "tanh" if words.take("approx") => f32_lanes!(words, |a| (a as f64).tanh() as f32),
        "abs" if words.take("ftz") => lanes!(|a: f32| -> f32 { flush(a).abs() }),
        "abs" => lanes!(|a: f32| -> f32 { a.abs() }),
        "neg" if words.take("ftz") => lanes!(|a: f32| -> f32 { -flush(a) }),
        "neg" => lanes!(|a: f32| -> f32 { -a }),
        "copysign" => lanes!(|a: f32, b: f32| -> f32 { b.copysign(a) }),
        "min" | "max" => return select_min_max(words),
        _ => return None,
    })
}

fn select_min_max(words: &Words) -> Option<Run> {
    let is_min = words.base() == "min";
    Some(match (is_min, words.take("NaN")) {
        (true, false) => f32_lanes!(words, |a, b| min_f32(a, b)),
        (false, false) => f32_lanes!(words, |a, b| max_f32(a, b)),
        (true, true) => f32_lanes!(words, |a, b| if a.is_nan() || b.is_nan() { NAN_F32 } else { min_f32(a, b) }),
        (false, true) => f32_lanes!(words, |a, b| if a.is_nan() || b.is_nan() { NAN_F32 } else { max_f32(a, b) }),
    })
}

fn select_f32_directed(words: &Words) -> Option<Run> {
    Some(match words.base() {
        "add" => f32_lanes!(words, imm, |a, b| rounding::add_f32(a, b, Mode::from_imm(imm))),
        "sub" => f32_lanes!(words, imm, |a, b| rounding::add_f32(a, -b, Mode::from_imm(imm))),
        "mul" => f32_lanes!(words, imm, |a, b| rounding::mul_f32(a, b, Mode::from_imm(imm))),
        "fma" | "mad" => f32_lanes!(words, imm, |a, b, c| rounding::fma_f32(a, b, c, Mode::from_imm(imm))),
        "div" => f32_lanes!(words, imm, |a, b| rounding::div_f32(a, b, Mode::from_imm(imm))),
        "rcp" => f32_lanes!(words, imm, |a| rounding::div_f32(1.0, a, Mode::from_imm(imm))),
        "sqrt" => f32_lanes!(words, imm, |a| rounding::sqrt_f32(a, Mode::from_imm(imm))),
        _ => return None,
    })
}

fn select_f64(words: &Words) -> Option<Run> {
    let saturated = words.take("sat");
    Some(match (words.base(), saturated) {
        ("add", false) => lanes!(|a: f64, b: f64| -> f64 { a + b }),
        ("sub", false) => lanes!(|a: f64, b: f64| -> f64 { a - b }),
        ("mul", false) => lanes!(|a: f64, b: f64| -> f64 { a * b }),
        ("fma" | "mad", false) => lanes!(|a: f64, b: f64, c: f64| -> f64 { a.mul_add(b, c) }),
        ("add", true) => lanes!(|a: f64, b: f64| -> f64 { saturate_f64(a + b) }),
        ("mul", true) => lanes!(|a: f64, b: f64| -> f64 { saturate_f64(a * b) }),
        ("div", false) => lanes!(|a: f64, b: f64| -> f64 { a / b }),
        // The approximations keep only the upper 32 bits of their result.
        ("rcp", false) if words.take("approx") => {
            words.take("ftz");
            lanes!(|a: f64| -> f64 { upper_half(1.0 / a) })
        }
        ("rsqrt", false) if words.take("approx") => {
            words.take("ftz");
            lanes!(|a: f64| -> f64 { upper_half(1.0 / a.sqrt()) })
        }
        ("rcp", false) => lanes!(|a: f64| -> f64 { 1.0 / a }),
        ("sqrt", false) => lanes!(|a: f64| -> f64 { a.sqrt() }),
        ("abs", false) => lanes!(|a: f64| -> f64 { a.abs() }),
        ("neg", false) => lanes!(|a: f64| -> f64 { -a }),
        ("copysign", false) => lanes!(|a: f64, b: f64| -> f64 { b.copysign(a) }),
        ("min", false) => lanes!(|a: f64, b: f64| -> f64 { min_f64(a, b) }),
        ("max", false) => lanes!(|a: f64, b: f64| -> f64 { max_f64(a, b) }),
        _ => return None,
    })
}

fn upper_half(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000)
}

fn select_f64_directed(words: &Words) -> Option<Run> {
    Some(match words.base() {
        "add" => lanes!(|imm; a: f64, b: f64| -> f64 { rounding::add_f64(a, b, Mode::from_imm(imm)) }),
        "sub" => lanes!(|imm; a: f64, b: f64| -> f64 { rounding::add_f64(a, -b, Mode::from_imm(imm)) }),
        "mul" => lanes!(|imm; a: f64, b: f64| -> f64 { rounding::mul_f64(a, b, Mode::from_imm(imm)) }),
        "fma" | "mad" => {
            lanes!(|imm; a: f64, b: f64, c: f64| -> f64 { rounding::fma_f64(a, b, c, Mode::from_imm(imm)) })
        }
        "div" => lanes!(|imm; a: f64, b: f64| -> f64 { rounding::div_f64(a, b, Mode::from_imm(imm)) }),
        "rcp" => lanes!(|imm; a: f64| -> f64 { rounding::div_f64(1.0, a, Mode::from_imm(imm)) }),
        "sqrt" => lanes!(|imm; a: f64| -> f64 { rounding::sqrt_f64(a, Mode::from_imm(imm)) }),
        _ => return None,
    })
}

/// `testp`: the class of a number. The second operand is not looked at.
pub fn select_test(words: &Words, ty: Type) -> Option<Compare> {
    let class = words.take_one(&["finite", "infinite", "notanumber", "number", "subnormal", "normal"])?;
    Some(match (class, ty) {
        ("finite", Type::F32) => compare!(|a: f32, _b: f32| a.is_finite()),
        ("infinite", Type::F32) => compare!(|a: f32, _b: f32| a.is_infinite()),
        ("notanumber", Type::F32) => compare!(|a: f32, _b: f32| a.is_nan()),
        ("number", Type::F32) => compare!(|a: f32, _b: f32| !a.is_nan()),
        ("subnormal", Type::F32) => compare!(|a: f32, _b: f32| a.is_subnormal()),
        ("normal", Type::F32) => compare!(|a: f32, _b: f32| a.is_normal()),
        ("finite", Type::F64) => compare!(|a: f64, _b: f64| a.is_finite()),
        ("infinite", Type::F64) => compare!(|a: f64, _b: f64| a.is_infinite()),
        ("notanumber", Type::F64) => compare!(|a: f64, _b: f64| a.is_nan()),
        ("number", Type::F64) => compare!(|a: f64, _b: f64| !a.is_nan()),
        ("subnormal", Type::F64) => compare!(|a: f64, _b: f64| a.is_subnormal()),
        ("normal", Type::F64) => compare!(|a: f64, _b: f64| a.is_normal()),
        _ => return None,
    })
}
