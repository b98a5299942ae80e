//! Rounding of exact values to the floating-point formats of PTX, in every direction.

/// A rounding modifier of floating-point instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// `.rn`: to nearest, ties to even.
    Nearest,
    /// `.rz`: towards zero.
    Zero,
    /// `.rm`: towards minus infinity.
    Down,
    /// `.rp`: towards plus infinity.
    Up,
    /// `.rna`: to nearest, ties away from zero.
    NearestAway,
}

impl Mode {
    pub fn from_imm(imm: u32) -> Mode {
        [Mode::Nearest, Mode::Zero, Mode::Down, Mode::Up, Mode::NearestAway][(imm & 7).min(4) as usize]
    }
}

/// A binary format: explicit mantissa bits, exponent of the smallest normal number, largest finite value.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    mantissa: i32,
    min_exponent: i32,
    max: f64,
    has_infinity: bool,
}

pub const F32: Format = Format { mantissa: 23, min_exponent: -126, max: f32::MAX as f64, has_infinity: true };
pub const TF32: Format =
    Format { mantissa: 10, min_exponent: -126, max: 3.401_162_134_214_653_5e38, has_infinity: true };
pub const F16: Format = Format { mantissa: 10, min_exponent: -14, max: 65504.0, has_infinity: true };
pub const BF16: Format =
    Format { mantissa: 7, min_exponent: -126, max: 3.389_531_389_251_535_5e38, has_infinity: true };
pub const E4M3: Format = Format { mantissa: 3, min_exponent: -6, max: 448.0, has_infinity: false };
pub const E5M2: Format = Format { mantissa: 2, min_exponent: -14, max: 57344.0, has_infinity: true };

/// 2 to an integer power, also where the result is subnormal.
pub fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        -1022..=1023 => f64::from_bits(((exponent + 1023) as u64) << 52),
        ..=-1023 => f64::from_bits(1u64.checked_shl((exponent + 1074) as u32).unwrap_or(0)),
        _ => f64::INFINITY,
    }
}

/// Floor of the binary logarithm of a finite positive number.
fn exponent_of(x: f64) -> i32 {
    match (x.to_bits() >> 52) as i32 {
        0 => x.to_bits().ilog2() as i32 - 1074,
        field => field - 1023,
    }
}

impl Format {
    /// `value + error` rounded to this format. The error is far below the value's last place; only its sign matters.
    pub fn round(&self, value: f64, error: f64, mode: Mode) -> f64 {
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        let (magnitude, negative) = (value.abs(), value < 0.0);
        let error = if negative { -error } else { error };
        let mut exponent = exponent_of(magnitude);
        if error < 0.0 && magnitude == power_of_two(exponent) {
            exponent -= 1; // the exact value lies in the binade below, whose steps are finer
        }
        let quantum = power_of_two(exponent.max(self.min_exponent) - self.mantissa);
        let scaled = magnitude / quantum;
        let (mut steps, mut rest) = (scaled.floor(), scaled - scaled.floor());
        let is_exact = rest == 0.0 && error == 0.0;
        if rest == 0.0 && error < 0.0 {
            steps -= 1.0;
            rest = 1.0;
        }
        let is_past_half = rest > 0.5 || (rest == 0.5 && error > 0.0);
        let is_half = rest == 0.5 && error == 0.0;
        let is_up = !is_exact
            && match mode {
                Mode::Nearest => is_past_half || (is_half && steps % 2.0 == 1.0),
                Mode::NearestAway => is_past_half || is_half,
                Mode::Zero => false,
                Mode::Down => negative,
                Mode::Up => !negative,
            };
        let rounded = (steps + f64::from(u8::from(is_up))) * quantum;
        let rounded = if rounded > self.max { self.overflow(negative, mode) } else { rounded };
        if negative { -rounded } else { rounded }
    }

    /// The magnitude a result past the largest finite value becomes.
    fn overflow(&self, negative: bool, mode: Mode) -> f64 {
        let to_infinity = match mode {
            Mode::Nearest | Mode::NearestAway => true,
            Mode::Zero => false,
            Mode::Down => negative,
            Mode::Up => !negative,
        };
        if to_infinity && self.has_infinity { f64::INFINITY } else { self.max }
    }
}

/// `a + b` and the exact error of that sum (Knuth).
pub fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// A sum that is exactly zero is −0 when rounding down, unless both terms are +0.
fn signed_zero(sum: f64, a: f64, b: f64, mode: Mode) -> f64 {
    if sum == 0.0 && mode == Mode::Down && (a.is_sign_negative() || b.is_sign_negative()) { -0.0 } else { sum }
}

pub fn add_f32(a: f32, b: f32, mode: Mode) -> f32 {
    let (a, b) = (a as f64, b as f64);
    let (sum, error) = two_sum(a, b);
    F32.round(signed_zero(sum, a, b, mode), error, mode) as f32
}

pub fn mul_f32(a: f32, b: f32, mode: Mode) -> f32 {
    F32.round(a as f64 * b as f64, 0.0, mode) as f32
}

pub fn fma_f32(a: f32, b: f32, c: f32, mode: Mode) -> f32 {
    fma_to(F32, a as f64, b as f64, c as f64, mode) as f32
}

/// A fused multiply-add in `format`; the product of `a` and `b` is exact in f64.
pub fn fma_to(format: Format, a: f64, b: f64, c: f64, mode: Mode) -> f64 {
    let product = a * b;
    let (sum, error) = two_sum(product, c);
    format.round(signed_zero(sum, product, c, mode), error, mode)
}

pub fn div_f32(a: f32, b: f32, mode: Mode) -> f32 {
    let (a, b) = (a as f64, b as f64);
    let quotient = a / b;
    F32.round(quotient, (-quotient).mul_add(b, a) / b, mode) as f32
}

pub fn sqrt_f32(a: f32, mode: Mode) -> f32 {
    let a = a as f64;
    let root = a.sqrt();
    F32.round(root, (-root).mul_add(root, a), mode) as f32
}

/// A result rounded to nearest, moved by one step where `mode` says so; only the sign of `error` (exact − result) matters.
fn redirect(nearest: f64, error: f64, mode: Mode) -> f64 {
    if error == 0.0 || !nearest.is_finite() || !error.is_finite() {
        return nearest;
    }
    match mode {
        Mode::Nearest | Mode::NearestAway => nearest,
        Mode::Down if error < 0.0 => nearest.next_down(),
        Mode::Up if error > 0.0 => nearest.next_up(),
        Mode::Zero if nearest > 0.0 && error < 0.0 => nearest.next_down(),
        Mode::Zero if nearest < 0.0 && error > 0.0 => nearest.next_up(),
        _ => nearest,
    }
}

pub fn add_f64(a: f64, b: f64, mode: Mode) -> f64 {
    let (sum, error) = two_sum(a, b);
    redirect(signed_zero(sum, a, b, mode), error, mode)
}

/// Residuals of tiny numbers are computed scaled by this (and √ of it), so that they do not underflow.
const SCALE: f64 = f64::from_bits((1023 + 600) << 52);
const SCALE_ROOT: f64 = f64::from_bits((1023 + 300) << 52);
const TINY: f64 = f64::from_bits((1023 - 400) << 52);

pub fn mul_f64(a: f64, b: f64, mode: Mode) -> f64 {
    let product = a * b;
    let (small, large) = if a.abs() < b.abs() { (a, b) } else { (b, a) };
    let error = match product.abs() < TINY {
        false => a.mul_add(b, -product),
        true if (small * SCALE * large).abs() >= TINY * TINY => (small * SCALE).mul_add(large, -product * SCALE),
        true if product == 0.0 && small != 0.0 => a.signum() * b.signum(),
        true => 0.0,
    };
    redirect(product, error, mode)
}

pub fn div_f64(a: f64, b: f64, mode: Mode) -> f64 {
    let quotient = a / b;
    let scale = if a.abs() < TINY { SCALE } else { 1.0 };
    // The divisor's sign is all that matters of it in the last step.
    let residual = if b.abs() < TINY {
        (-quotient).mul_add(b * SCALE, a * SCALE)
    } else {
        (-quotient * scale).mul_add(b, a * scale)
    };
    redirect(quotient, residual * b.signum(), mode)
}

pub fn sqrt_f64(a: f64, mode: Mode) -> f64 {
    let root = a.sqrt();
    let (scaled, scaled_root) = if a < TINY { (a * SCALE, root * SCALE_ROOT) } else { (a, root) };
    redirect(root, (-scaled_root).mul_add(scaled_root, scaled), mode)
}

pub fn fma_f64(a: f64, b: f64, c: f64, mode: Mode) -> f64 {
    let (result, product) = (a.mul_add(b, c), a * b);
    let error = if product.abs() >= TINY || a == 0.0 || b == 0.0 {
        fma_error(a, b, c, result)
    } else {
        // A product that may underflow: scaled, if the sum can be, or else all that matters of it is its sign.
        let (small, large) = if a.abs() < b.abs() { (a, b) } else { (b, a) };
        let is_comparable = c.abs() < TINY && (small * SCALE * large).abs() >= TINY * TINY;
        if is_comparable {
            fma_error(small * SCALE, large, c * SCALE, result * SCALE)
        } else {
            a.signum() * b.signum() * f64::MIN_POSITIVE
        }
    };
    // Only a sum that is exactly zero has its sign from the direction.
    let result = if error == 0.0 { signed_zero(result, product, c, mode) } else { result };
    redirect(result, error, mode)
}

/// The error of a fused multiply-add, as in Boldo and Muller, "Exact and approximated error of the FMA" (2011).
fn fma_error(a: f64, b: f64, c: f64, result: f64) -> f64 {
    let product = a * b;
    let product_error = a.mul_add(b, -product);
    let (low, low_error) = two_sum(c, product_error);
    let (high, high_error) = two_sum(product, low);
    ((high - result) + high_error) + low_error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_nearest_is_the_hardware_s() {
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let x = f64::from_bits((state >> 12) | ((state >> 50) % 600 + 720) << 52);
            assert_eq!((F32.round(x, 0.0, Mode::Nearest) as f32).to_bits(), (x as f32).to_bits(), "{x:e}");
        }
    }

    #[test]
    fn directions_bracket_the_exact_value() {
        let (a, b) = (1.0f32, 3.0f32);
        assert_eq!(div_f32(a, b, Mode::Down).to_bits() + 1, div_f32(a, b, Mode::Up).to_bits());
        assert_eq!(add_f32(1.0, 1e-30, Mode::Zero), 1.0);
        assert_eq!(add_f32(1.0, -1e-30, Mode::Zero).to_bits(), 1.0f32.to_bits() - 1);
        assert_eq!(add_f32(1.0, 1e-30, Mode::Up).to_bits(), 1.0f32.to_bits() + 1);
        assert_eq!(add_f32(1.0, -1.0, Mode::Down).to_bits(), (-0.0f32).to_bits());
        assert_eq!(mul_f32(f32::MAX, 2.0, Mode::Zero), f32::MAX);
        assert_eq!(fma_f64(1.0, 1.0, 1e-300, Mode::Up), 1.0f64.next_up());
    }

    #[test]
    fn subnormals_of_small_formats() {
        assert_eq!(F16.round(2f64.powi(-24), 0.0, Mode::Nearest), 2f64.powi(-24));
        assert_eq!(F16.round(2f64.powi(-25), 0.0, Mode::Nearest), 0.0);
        assert_eq!(F16.round(2f64.powi(-25), 1e-20, Mode::Nearest), 2f64.powi(-24));
        assert_eq!(E4M3.round(500.0, 0.0, Mode::Nearest), 448.0);
    }
}
