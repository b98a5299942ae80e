use half::{bf16, f16};

use super::harness::{check, check_rows, f32, inputs};

/// A sum, difference or product of halves is exact in f64; the `half` crate rounds it once.
macro_rules! arithmetic {
    ($ty:literal, $pair:literal, $T:ty) => {{
        let value = |bits: u64| <$T>::from_bits(bits as u16).to_f64();
        let result = |x: f64| if x.is_nan() { 0x7fff } else { round::<$T>(x) };
        let operations: [(&str, fn(f64, f64) -> f64); 3] =
            [("add", sum_to_odd), ("sub", |a, b| sum_to_odd(a, -b)), ("mul", |a, b| a * b)];
        let both = |x: &[u64], f: &dyn Fn(&[u64]) -> u64| {
            let low: Vec<u64> = x.iter().map(|x| x & 0xffff).collect();
            let high: Vec<u64> = x.iter().map(|x| x >> 16 & 0xffff).collect();
            f(&low) | f(&high) << 16
        };
        for (name, f) in operations {
            let one = |x: &[u64]| result(f(value(x[0]), value(x[1])));
            check(&format!("{name}.rn.{} %d, %a, %b;", $ty), $ty, &[$ty, $ty], one);
            check(&format!("{name}.{} %d, %a, %b;", $pair), $pair, &["b32", "b32"], |x| both(x, &one));
        }
        // The product is exact in f64.
        let fused = |x: &[u64]| result(sum_to_odd(value(x[0]) * value(x[1]), value(x[2])));
        let rows: Vec<Vec<u64>> = inputs(&[$ty, $ty, $ty]);
        check_rows(&format!("fma.rn.{} %d, %a, %b, %c;", $ty), $ty, &[$ty; 3], &rows, fused);
        check(&format!("fma.rn.{} %d, %a, %b, %c;", $pair), $pair, &["b32"; 3], |x| both(x, &fused));
        check(&format!("fma.rn.relu.{} %d, %a, %b, %c;", $ty), $ty, &[$ty; 3], |x| {
            let plain = fused(x);
            if plain == 0x7fff || plain & 0x8000 == 0 { plain } else { 0 }
        });
        let minimum = |x: &[u64]| extreme(x[0], x[1], value(x[0]), value(x[1]), true);
        let maximum = |x: &[u64]| extreme(x[0], x[1], value(x[0]), value(x[1]), false);
        check(&format!("min.{} %d, %a, %b;", $ty), $ty, &[$ty, $ty], minimum);
        check(&format!("max.{} %d, %a, %b;", $ty), $ty, &[$ty, $ty], maximum);
        check(&format!("max.{} %d, %a, %b;", $pair), $pair, &["b32", "b32"], |x| both(x, &maximum));
        check(&format!("max.NaN.{} %d, %a, %b;", $ty), $ty, &[$ty, $ty], |x| {
            if value(x[0]).is_nan() || value(x[1]).is_nan() { 0x7fff } else { maximum(x) }
        });
        check(&format!("neg.{} %d, %a;", $ty), $ty, &[$ty], |x| x[0] ^ 0x8000);
        check(&format!("abs.{} %d, %a;", $pair), $pair, &["b32"], |x| x[0] & 0x7fff_7fff);
        check(&format!("ex2.approx{}.{} %d, %a;", if $ty == "bf16" { ".ftz" } else { "" }, $ty), $ty, &[$ty], |x| {
            let input = value(x[0]);
            let is_flushed = input.abs() < f32::MIN_POSITIVE as f64;
            result(if is_flushed { 1.0 } else { (input.exp2() as f32) as f64 })
        });
    }};
}

trait FromF64 {
    fn bits_of(x: f64) -> u64;
}
impl FromF64 for f16 {
    fn bits_of(x: f64) -> u64 {
        f16::from_f32(to_odd(x)).to_bits() as u64
    }
}
impl FromF64 for bf16 {
    fn bits_of(x: f64) -> u64 {
        bf16::from_f32(to_odd(x)).to_bits() as u64
    }
}

/// To f32, rounding to odd: an inexact result has its last bit set, so that rounding again, to fewer bits, is rounding once.
fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if nearest as f64 == x || x.is_nan() {
        return nearest;
    }
    let is_past = (nearest as f64).abs() > x.abs();
    f32::from_bits((nearest.to_bits() - is_past as u32) | 1)
}

/// `a + b` in f64, rounded to odd.
fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    if error == 0.0 || !error.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    if (error > 0.0) == (sum > 0.0) { f64::from_bits(sum.to_bits() + 1) } else { f64::from_bits(sum.to_bits() - 1) }
}

fn round<T: FromF64>(x: f64) -> u64 {
    T::bits_of(x)
}

fn extreme(a_bits: u64, b_bits: u64, a: f64, b: f64, is_min: bool) -> u64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0x7fff,
        (true, false) => b_bits,
        (false, true) => a_bits,
        _ if a == b => {
            if is_min {
                a_bits | b_bits
            } else {
                a_bits & b_bits
            }
        }
        _ => {
            if (a < b) == is_min {
                a_bits
            } else {
                b_bits
            }
        }
    }
}

#[test]
fn f16_arithmetic() {
    arithmetic!("f16", "f16x2", f16);
}

#[test]
fn bf16_arithmetic() {
    arithmetic!("bf16", "bf16x2", bf16);
}

#[test]
fn fused_means_rounded_once() {
    // In bf16 the product, 1.98046875 · 2¹¹¹, lies half way between two numbers: the tiny third term decides, which rounding
    // twice would lose.
    let rows: [(&[u64], u64); 3] =
        [(&[0x44a9, 0xf240, 0x0a46], 0xf77d), (&[0x44a9, 0xf240, 0x8a46], 0xf77e), (&[0x44a9, 0xf240, 0x0000], 0xf77e)];
    super::harness::table("fma.rn.bf16 %d, %a, %b, %c;", "bf16", &["bf16"; 3], &rows);
}

#[test]
fn packed_conversions() {
    check("cvt.rn.bf16x2.f32 %d, %a, %b;", "b32", &["f32", "f32"], |x| {
        let half = |x: u64| if f32(x).is_nan() { 0x7fff } else { bf16::from_f32(f32(x)).to_bits() as u64 };
        half(x[0]) << 16 | half(x[1])
    });
    check("cvt.rn.f16x2.f32 %d, %a, %b;", "b32", &["f32", "f32"], |x| {
        let half = |x: u64| if f32(x).is_nan() { 0x7fff } else { f16::from_f32(f32(x)).to_bits() as u64 };
        half(x[0]) << 16 | half(x[1])
    });
    check("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", "b32", &["f32", "f32"], |x| {
        let half =
            |x: u64| if f32(x).is_nan() { 0x7fff } else { bf16::from_f32(f32(x).max(0.0)).to_bits() as u64 & 0x7fff };
        half(x[0]) << 16 | half(x[1])
    });
    // Towards zero, bf16 is the upper half of f32.
    check("cvt.rz.bf16x2.f32 %d, %a, %b;", "b32", &["f32", "f32"], |x| {
        let half = |x: u64| if f32(x).is_nan() { 0x7fff } else { x >> 16 };
        half(x[0]) << 16 | half(x[1])
    });
}

/// Every value of e4m3 and e5m2, by their definition.
#[test]
fn fp8() {
    let decode = |byte: u32, mantissa_bits: u32, bias: i32| {
        let (sign, rest) = (byte >> 7, byte & 0x7f);
        let (exponent, mantissa) = ((rest >> mantissa_bits) as i32, (rest & ((1 << mantissa_bits) - 1)) as f64);
        let scale = 2f64.powi(exponent.max(1) - bias - mantissa_bits as i32);
        let magnitude = (if exponent == 0 { mantissa } else { mantissa + (1 << mantissa_bits) as f64 }) * scale;
        if sign == 1 { -magnitude } else { magnitude }
    };
    let nearest = |x: f32, mantissa_bits: u32, bias: i32, largest: u32| -> u64 {
        if x.is_nan() {
            return 0x7f;
        }
        let clamped = (x as f64).abs().min(decode(largest, mantissa_bits, bias));
        // The closest code; of two equally close, the even one.
        let best = (0..=largest).min_by(|a, b| {
            let distance = |code: u32| (decode(code, mantissa_bits, bias) - clamped).abs();
            distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1)))
        });
        best.unwrap() as u64 | (x.is_sign_negative() as u64) << 7
    };
    check("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", "b16", &["f32", "f32"], |x| {
        nearest(f32(x[0]), 3, 7, 0x7e) << 8 | nearest(f32(x[1]), 3, 7, 0x7e)
    });
    check("cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", "b16", &["f32", "f32"], |x| {
        nearest(f32(x[0]), 2, 15, 0x7b) << 8 | nearest(f32(x[1]), 2, 15, 0x7b)
    });
    let rows: Vec<Vec<u64>> = (0..128).map(|i| vec![(2 * i) | ((2 * i + 1) << 8)]).collect();
    check_rows("cvt.rn.f16x2.e4m3x2 %d, %a;", "b32", &["b16"], &rows, |x| {
        let half = |byte: u64| {
            if byte & 0x7f == 0x7f { 0x7fff } else { f16::from_f64(decode(byte as u32, 3, 7)).to_bits() as u64 }
        };
        half(x[0] & 0xff) | half(x[0] >> 8) << 16
    });
    check_rows("cvt.rn.f16x2.e5m2x2 %d, %a;", "b32", &["b16"], &rows, |x| {
        let half = |byte: u64| if byte & 0x7f > 0x7c { 0x7fff } else { byte << 8 };
        half(x[0] & 0xff) | half(x[0] >> 8) << 16
    });
}
