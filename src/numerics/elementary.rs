//! f32 elementary functions without branches or calls, so that loops over them vectorise.
//!
//! The standard library's `exp` is one call per element; at the element counts of a gated norm or a convolution that call
//! is the whole cost. These are within 2 ulp of the exact value (tests below sweep the range).

/// a·b + c: one rounding where the target has fused multiply-add, two elsewhere (where the fused form would be a slow call).
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) { a.mul_add(b, c) } else { a * b + c }
}

/// 1.5·2²³: adding it leaves the nearest integer in the low mantissa bits.
const ROUND: f32 = 12_582_912.0;

/// (eʳ, ROUND + n) where x = n·ln 2 + r, n the nearest integer: eˣ is the first times 2ⁿ. For |x| below about 90.
#[inline(always)]
fn exp_reduced(x: f32) -> (f32, f32) {
    const LN2_HI: f32 = 0.693_359_4; // the upper bits of ln 2: n·LN2_HI is exact for |n| < 2¹⁰
    const LN2_LO: f32 = -2.121_944_4e-4;
    let shifted = fma(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma(n, -LN2_LO, fma(n, -LN2_HI, x));
    // Taylor series of eʳ on |r| ≤ ln 2 / 2; the first dropped term is below 6e-9.
    let mut p = 1.0 / 5040.0;
    p = fma(p, r, 1.0 / 720.0);
    p = fma(p, r, 1.0 / 120.0);
    p = fma(p, r, 1.0 / 24.0);
    p = fma(p, r, 1.0 / 6.0);
    p = fma(p, r, 0.5);
    p = fma(p, r, 1.0);
    (fma(p, r, 1.0), shifted)
}

/// eˣ. Results below the smallest normal number are 0, above the largest are ∞; NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (p, shifted) = exp_reduced(x.clamp(-87.4, 88.8));
    // From the bits: a cast would saturate, and saturation does not vectorise.
    let exponent = shifted.to_bits() as i32 - ROUND.to_bits() as i32;
    // 2ⁿ in two factors, because n = 128 is not the exponent of a finite number.
    let half = exponent >> 1;
    let low = f32::from_bits(((half + 127) as u32) << 23);
    let high = f32::from_bits(((exponent - half + 127) as u32) << 23);
    let y = p * low * high;
    let y = if x < -87.336_54 { 0.0 } else { y };
    if x > 88.722_84 { f32::INFINITY } else { y }
}

/// eˣ for x ≤ 88: what a softmax takes it of, differences to a largest element. Below −87.3 it is 0; NaN stays NaN.
///
/// Without the general one's upper range, 2ⁿ is one addition to the exponent's bits.
#[inline(always)]
pub fn exp_to_88(x: f32) -> f32 {
    const LOWEST: f32 = -87.3;
    let clamped = if x < LOWEST { LOWEST } else { x };
    let (p, shifted) = exp_reduced(clamped);
    let y = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    // The bits of a NaN may add up to a number: 0·NaN brings it back.
    let y = fma(clamped, 0.0, y);
    if x < LOWEST { 0.0 } else { y }
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x·sigmoid(x).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// d silu / dx.
#[inline(always)]
pub fn silu_grad(x: f32) -> f32 {
    let s = sigmoid(x);
    s * fma(x, 1.0 - s, 1.0)
}

/// ln(1 + eˣ) without overflow.
#[inline]
pub fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ulps(a: f32, b: f32) -> u32 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn exp_is_within_two_ulp_over_its_range() {
        let mut x = -87.3f32;
        let mut worst = 0;
        while x < 88.7 {
            worst = worst.max(ulps(exp(x), (x as f64).exp() as f32));
            x += 0.000_73;
        }
        assert!(worst <= 2, "{worst} ulp");
    }

    #[test]
    fn exp_at_the_edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-104.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert!(exp(88.7).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn exp_to_88_is_within_two_ulp_and_right_at_the_edges() {
        let mut x = -87.3f32;
        while x < 88.0 {
            let exact = f64::from(x).exp() as f32;
            assert!(exp_to_88(x).to_bits().abs_diff(exact.to_bits()) <= 2, "{x}: {} for {exact}", exp_to_88(x));
            x += 0.000_73;
        }
        assert_eq!(
            [exp_to_88(0.0), exp_to_88(-104.0), exp_to_88(-1e30), exp_to_88(f32::NEG_INFINITY)],
            [1.0, 0.0, 0.0, 0.0]
        );
        for bits in [0x7FC0_0000, 0xFFFF_FFFF, 0x7F80_0001] {
            assert!(exp_to_88(f32::from_bits(bits)).is_nan(), "{bits:x}");
        }
    }

    #[test]
    fn softplus_and_silu_at_the_edges() {
        assert_eq!(softplus(200.0), 200.0);
        assert_eq!(softplus(-200.0), 0.0);
        assert_eq!(sigmoid(-200.0), 0.0);
        assert_eq!(silu(-200.0), 0.0);
        assert_eq!(silu_grad(200.0), 1.0);
    }
}
