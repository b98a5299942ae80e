//! `ex2.approx` and `lg2.approx`, computed in f64 to within half a unit of f32's last place or very near it. The hardware's
//! results differ in the last bits (2 ulp by the ISA); code that is right for one is right for the other.
//! Straight-line arithmetic: the loop over lanes becomes vector code, which calls to the library's functions would not.

/// 1.5 · 2⁵²: adding and subtracting it rounds a small f64 to an integer, which then stands in the low bits of the sum.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// 2ˣ.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    // Past ±200 every result is 0 or infinite in f32.
    let clamped = (x as f64).clamp(-200.0, 200.0);
    let shifted = clamped + ROUND;
    let integer = shifted - ROUND;
    let t = (clamped - integer) * std::f64::consts::LN_2;
    // exp(t) for |t| ≤ ln(2)/2 by its Taylor series: the first term left out is below 10⁻¹³.
    let mut sum = 1.0 / 479_001_600.0;
    for factorial in [39_916_800.0, 3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        sum = f64::mul_add(sum, t, 1.0 / factorial);
    }
    let scale = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    let result = (sum * scale) as f32;
    if x.is_nan() { x } else { result }
}

/// log₂ x; −∞ at ±0, NaN below.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let wide = x as f64;
    let bits = wide.to_bits();
    // m in [√½, √2) and an integer exponent with x = m · 2^exponent.
    let offset = bits.wrapping_sub(0x3fe6_a09e_667f_3bcd);
    let exponent_bits = offset & 0xfff0_0000_0000_0000;
    let m = f64::from_bits(bits.wrapping_sub(exponent_bits));
    let exponent =
        (f64::from_bits(((offset >> 52) ^ 0x800) | 0x4330_0000_0000_0000) - 4_503_599_627_370_496.0) - 2048.0;
    // ln m = 2 artanh z with z = (m − 1)/(m + 1), |z| ≤ 0.1716.
    let z = (m - 1.0) / (m + 1.0);
    let z2 = z * z;
    let mut sum = 1.0 / 19.0;
    for odd in [17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = f64::mul_add(sum, z2, 1.0 / odd);
    }
    let result = f64::mul_add(2.0 * z * sum, std::f64::consts::LOG2_E, exponent) as f32;
    let result = if x == f32::INFINITY { x } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    if x >= 0.0 { result } else { f32::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units in the last place between two finite f32 of the same sign.
    fn ulps(a: f32, b: f32) -> u32 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn exp2_is_within_one_ulp() {
        for i in -160_000..140_000 {
            let x = i as f32 * 0.001;
            let expected = (x as f64).exp2() as f32;
            assert!(ulps(exp2(x), expected) <= 1, "{x}: {} {expected}", exp2(x));
        }
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp2(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp2(3.0), 8.0);
        assert!(exp2(f32::NAN).is_nan());
    }

    #[test]
    fn log2_is_within_one_ulp() {
        for exponent in -149..128 {
            for i in 0..1000 {
                let x = (2f64.powi(exponent) * (1.0 + i as f64 / 1000.0)) as f32;
                let expected = (x as f64).log2() as f32;
                assert!(ulps(log2(x), expected) <= 1, "{x:e}: {} {expected}", log2(x));
            }
        }
        assert_eq!((log2(0.0), log2(-0.0)), (f32::NEG_INFINITY, f32::NEG_INFINITY));
        assert_eq!((log2(f32::INFINITY), log2(8.0)), (f32::INFINITY, 3.0));
        assert!(log2(-1.0).is_nan());
    }
}
