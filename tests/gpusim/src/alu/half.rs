//! f16 and bf16: conversions, and arithmetic on one number or a packed pair.

use super::approx;
use super::float::{flush, max_f32, min_f32, rounding_mode, saturate};
use super::lanes::{Run, lanes};
use super::rounding::{self, Format, Mode};
use crate::decode::words::Words;
use crate::ptx::Type;

/// The NaN that f16 and bf16 instructions give.
const NAN_16: u16 = 0x7fff;

/// A 16-bit float format: its bits to and from f32.
pub trait Half {
    const FORMAT: Format;
    fn to_f32(bits: u16) -> f32;
    /// Rounds to nearest, ties to even.
    fn from_f32(x: f32) -> u16;
    /// A value this format represents exactly.
    fn from_exact(x: f64) -> u16;
}

pub struct F16;
pub struct Bf16;

impl Half for F16 {
    const FORMAT: Format = rounding::F16;

    #[inline(always)]
    fn to_f32(bits: u16) -> f32 {
        let (sign, magnitude) = ((bits as u32 & 0x8000) << 16, bits as u32 & 0x7fff);
        // Shifted into place, the exponent is 112 too low: one product corrects it, subnormals included.
        let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
        let finite = scaled.to_bits();
        let value = if magnitude < 0x7c00 { finite } else { 0x7f80_0000 | magnitude << 13 };
        f32::from_bits(sign | value)
    }

    fn from_f32(x: f32) -> u16 {
        if x.is_nan() { NAN_16 } else { Self::from_exact(rounding::F16.round(x as f64, 0.0, Mode::Nearest)) }
    }

    fn from_exact(x: f64) -> u16 {
        if x.is_nan() {
            return NAN_16;
        }
        let (sign, magnitude) = (if x.is_sign_negative() { 0x8000 } else { 0 }, x.abs());
        let bits = if magnitude.is_infinite() {
            0x7c00
        } else if magnitude < rounding::power_of_two(-14) {
            (magnitude * rounding::power_of_two(24)) as u16
        } else {
            ((magnitude.to_bits() >> 42) - (1008 << 10)) as u16
        };
        sign | bits
    }
}

impl Half for Bf16 {
    const FORMAT: Format = rounding::BF16;

    #[inline(always)]
    fn to_f32(bits: u16) -> f32 {
        f32::from_bits((bits as u32) << 16)
    }

    #[inline(always)]
    fn from_f32(x: f32) -> u16 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        if x.is_nan() { NAN_16 } else { rounded as u16 }
    }

    #[inline(always)]
    fn from_exact(x: f64) -> u16 {
        if x.is_nan() { NAN_16 } else { ((x as f32).to_bits() >> 16) as u16 }
    }
}

/// Rounds to a 16-bit format in any direction.
pub fn round_to<H: Half>(x: f32, mode: Mode) -> u16 {
    if x.is_nan() { NAN_16 } else { H::from_exact(H::FORMAT.round(x as f64, 0.0, mode)) }
}

/// A function applied to both halves of a pair.
#[inline(always)]
fn pair(a: u32, f: impl Fn(u16) -> u16) -> u32 {
    f(a as u16) as u32 | (f((a >> 16) as u16) as u32) << 16
}

#[inline(always)]
fn pair2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    f(a as u16, b as u16) as u32 | (f((a >> 16) as u16, (b >> 16) as u16) as u32) << 16
}

#[inline(always)]
fn pair3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    f(a as u16, b as u16, c as u16) as u32 | (f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16) as u32) << 16
}

/// A sum or product in f32 rounds once more to 16 bits without harm: 24 ≥ 2·11 + 2 bits (Figueroa, 1995).
#[inline(always)]
fn two<H: Half>(a: u16, b: u16, f: impl Fn(f32, f32) -> f32) -> u16 {
    H::from_f32(f(H::to_f32(a), H::to_f32(b)))
}

fn fma<H: Half>(a: u16, b: u16, c: u16) -> u16 {
    let (a, b, c) = (H::to_f32(a) as f64, H::to_f32(b) as f64, H::to_f32(c) as f64);
    H::from_exact(rounding::fma_to(H::FORMAT, a, b, c, Mode::Nearest))
}

fn fma_saturated<H: Half>(a: u16, b: u16, c: u16) -> u16 {
    H::from_f32(saturate(H::to_f32(fma::<H>(a, b, c))))
}

fn fma_relu<H: Half>(a: u16, b: u16, c: u16) -> u16 {
    let result = fma::<H>(a, b, c);
    let value = H::to_f32(result);
    if value.is_nan() {
        NAN_16
    } else if value > 0.0 {
        result
    } else {
        0
    }
}

fn propagate<H: Half>(a: u16, b: u16, f: impl Fn(f32, f32) -> f32) -> u16 {
    if H::to_f32(a).is_nan() || H::to_f32(b).is_nan() { NAN_16 } else { two::<H>(a, b, f) }
}

/// The function of an f16, bf16, f16x2 or bf16x2 instruction.
pub fn select(words: &Words, ty: Type) -> Option<Run> {
    if rounding_mode(words) != Mode::Nearest {
        return None;
    }
    match ty {
        Type::F16 => select_one::<F16>(words),
        Type::Bf16 => select_one::<Bf16>(words),
        Type::F16x2 => select_pair::<F16>(words),
        Type::Bf16x2 => select_pair::<Bf16>(words),
        _ => None,
    }
}

/// `.ftz` on f16: subnormals of f16 itself.
fn flush_f16(bits: u16) -> u16 {
    if bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }
}

macro_rules! half_lanes {
    (one, |$($a:ident),*| $body:expr) => { lanes!(|$($a: u16),*| -> u16 { $body }) };
    (two, |$a:ident| $body:expr) => { lanes!(|$a: u32| -> u32 { pair($a, |$a| $body) }) };
    (two, |$a:ident, $b:ident| $body:expr) => { lanes!(|$a: u32, $b: u32| -> u32 { pair2($a, $b, |$a, $b| $body) }) };
    (two, |$a:ident, $b:ident, $c:ident| $body:expr) =>
        { lanes!(|$a: u32, $b: u32, $c: u32| -> u32 { pair3($a, $b, $c, |$a, $b, $c| $body) }) };
}

macro_rules! select_half {
    ($name:ident, $arity:ident) => {
        fn $name<H: Half>(words: &Words) -> Option<Run> {
            let (ftz, sat, relu, nan) = (words.take("ftz"), words.take("sat"), words.take("relu"), words.take("NaN"));
            Some(match (words.base(), ftz, sat, relu, nan) {
                ("add", false, false, false, false) => half_lanes!($arity, |a, b| two::<H>(a, b, |a, b| a + b)),
                ("sub", false, false, false, false) => half_lanes!($arity, |a, b| two::<H>(a, b, |a, b| a - b)),
                ("mul", false, false, false, false) => half_lanes!($arity, |a, b| two::<H>(a, b, |a, b| a * b)),
                ("add", false, true, false, false) => {
                    half_lanes!($arity, |a, b| two::<H>(a, b, |a, b| saturate(a + b)))
                }
                ("sub", false, true, false, false) => {
                    half_lanes!($arity, |a, b| two::<H>(a, b, |a, b| saturate(a - b)))
                }
                ("mul", false, true, false, false) => {
                    half_lanes!($arity, |a, b| two::<H>(a, b, |a, b| saturate(a * b)))
                }
                ("add", true, false, false, false) => half_lanes!($arity, |a, b| flushed2::<H>(a, b, |a, b| a + b)),
                ("sub", true, false, false, false) => half_lanes!($arity, |a, b| flushed2::<H>(a, b, |a, b| a - b)),
                ("mul", true, false, false, false) => half_lanes!($arity, |a, b| flushed2::<H>(a, b, |a, b| a * b)),
                ("fma", false, false, false, false) => half_lanes!($arity, |a, b, c| fma::<H>(a, b, c)),
                ("fma", false, true, false, false) => half_lanes!($arity, |a, b, c| fma_saturated::<H>(a, b, c)),
                ("fma", false, false, true, false) => half_lanes!($arity, |a, b, c| fma_relu::<H>(a, b, c)),
                ("fma", true, false, false, false) => {
                    half_lanes!($arity, |a, b, c| flush_f16(fma::<H>(flush_f16(a), flush_f16(b), flush_f16(c))))
                }
                ("min", false, false, false, false) => half_lanes!($arity, |a, b| two::<H>(a, b, min_f32)),
                ("max", false, false, false, false) => half_lanes!($arity, |a, b| two::<H>(a, b, max_f32)),
                ("min", false, false, false, true) => half_lanes!($arity, |a, b| propagate::<H>(a, b, min_f32)),
                ("max", false, false, false, true) => half_lanes!($arity, |a, b| propagate::<H>(a, b, max_f32)),
                ("abs", false, false, false, false) => half_lanes!($arity, |a| a & 0x7fff),
                ("neg", false, false, false, false) => half_lanes!($arity, |a| a ^ 0x8000),
                ("ex2", _, false, false, false) if words.take("approx") => {
                    half_lanes!($arity, |a| H::from_f32(approx::exp2(flush(H::to_f32(a)))))
                }
                ("tanh", false, false, false, false) if words.take("approx") => {
                    half_lanes!($arity, |a| H::from_f32((H::to_f32(a) as f64).tanh() as f32))
                }
                _ => return None,
            })
        }
    };
}

select_half!(select_one, one);
select_half!(select_pair, two);

fn flushed2<H: Half>(a: u16, b: u16, f: impl Fn(f32, f32) -> f32) -> u16 {
    flush_f16(two::<H>(flush_f16(a), flush_f16(b), f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_survives_the_way_through_f32() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits);
            let value = F16::to_f32(bits);
            if expected.is_nan() {
                assert!(value.is_nan());
            } else {
                assert_eq!(value, expected.to_f32());
                assert_eq!(F16::from_f32(value), bits);
            }
        }
    }

    #[test]
    fn conversions_agree_with_the_half_crate() {
        let mut state = 7u32;
        for _ in 0..200_000 {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            let x = f32::from_bits(state);
            if !x.is_nan() {
                assert_eq!(F16::from_f32(x), half::f16::from_f32(x).to_bits(), "{x:e}");
                assert_eq!(Bf16::from_f32(x), half::bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
    }
}
