//! Rounding of f32 to floats of a few bits: the bits of cuda/device/rounding.cuh.

/// How to round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// Up or down at random, so that the mean is the number itself: 32 uniform bits.
    Stochastic(u32),
}

impl Rounding {
    /// Whether to go up, from the dropped bits (the leftmost of 32 first) and whether the kept code is odd.
    #[inline(always)]
    fn up(self, dropped: u32, odd: bool) -> bool {
        match self {
            Rounding::Nearest => 0x8000_0000 - u32::from(odd) < dropped,
            Rounding::Stochastic(random) => random < dropped,
        }
    }
}

/// A float format: codes count up with the values, subnormals first, so that rounding up is adding one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small {
    /// Bits of the mantissa.
    pub mantissa: u32,
    /// Of the exponent.
    pub bias: i32,
    /// The largest finite code.
    pub largest: u32,
}

impl Small {
    /// The code of |x|, saturating at the largest. Not for NaN.
    #[inline(always)]
    pub fn round(self, x: f32, rounding: Rounding) -> u32 {
        let bits = x.to_bits() & 0x7FFF_FFFF;
        let exponent = (bits >> 23) as i32 - 127;
        let significand = u64::from(bits & 0x7F_FFFF | if bits >> 23 > 0 { 0x80_0000 } else { 0 }); // 1.m, 24 bits
        // Below the smallest normal number the step stays that of the subnormals.
        let subnormal = (1 - self.bias - exponent).max(0) as u32;
        let shift = 23 - self.mantissa + subnormal; // bits to drop
        if bits >= 0x7F80_0000 {
            return self.largest;
        }
        if shift >= 24 + 32 {
            return 0; // less than any random number resolves
        }
        let (kept, dropped) = ((significand >> shift) as u32, ((significand << 32) >> shift) as u32);
        let top = exponent + self.bias;
        let normal = (top.max(0) as u32) << self.mantissa;
        let code = if subnormal > 0 { kept } else { normal + (kept - (1 << self.mantissa)) };
        if top > (self.largest >> self.mantissa) as i32 {
            return self.largest;
        }
        (code + u32::from(rounding.up(dropped, code & 1 == 1))).min(self.largest)
    }

    /// The value of a finite code without its sign.
    #[inline(always)]
    pub fn value(self, code: u32) -> f32 {
        let (exponent, mantissa) = (code >> self.mantissa, code & ((1 << self.mantissa) - 1));
        if exponent == 0 {
            // The step of the subnormals: 2^(1 − bias − mantissa bits).
            return mantissa as f32 * f32::from_bits(((127 + 1 - self.bias) as u32 - self.mantissa) << 23);
        }
        f32::from_bits(((exponent as i32 - self.bias + 127) as u32) << 23 | mantissa << (23 - self.mantissa))
    }
}

/// bf16 up or down at random: the bits of the nearest below or above in magnitude. NaN and infinity stay.
pub fn bf16_stochastic(x: f32, random: u32) -> half::bf16 {
    let bits = x.to_bits();
    if bits & 0x7F80_0000 == 0x7F80_0000 {
        return half::bf16::from_bits((bits >> 16) as u16 | if x.is_nan() { 0x40 } else { 0 });
    }
    half::bf16::from_bits(((bits + (random >> 16)) >> 16) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Philox;

    #[test]
    fn bf16_rounds_to_its_mean() {
        let (noise, x) = (Philox::new(3, 1), 1.002_f32);
        let draws = 20_000;
        let sum: f64 = (0..draws).map(|i| f64::from(bf16_stochastic(x, noise.words(i)[0]).to_f32())).sum();
        assert!((sum / draws as f64 - f64::from(x)).abs() < 1e-4, "{sum}");
        assert!(bf16_stochastic(f32::NAN, 0).is_nan() && bf16_stochastic(f32::INFINITY, u32::MAX).is_infinite());
        assert_eq!(bf16_stochastic(-1.5, u32::MAX).to_f32(), -1.5, "what bf16 has stays");
    }
}
