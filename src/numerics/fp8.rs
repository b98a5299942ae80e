//! 8-bit floats: e4m3 for weights and activations, e5m2 for gradients (Micikevicius et al., "FP8 Formats for Deep Learning",
//! arXiv 2209.05433). The bits of cuda/device/fp8.cuh.

use super::rounding::{Rounding, Small};

/// One of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fp8 {
    /// Largest 448, no infinity, NaN 0x7F.
    E4m3,
    /// Largest 57344, infinity 0x7C.
    E5m2,
}

impl Fp8 {
    const fn small(self) -> Small {
        match self {
            Fp8::E4m3 => Small { mantissa: 3, bias: 7, largest: 0x7E },
            Fp8::E5m2 => Small { mantissa: 2, bias: 15, largest: 0x7B },
        }
    }

    /// The largest finite value.
    pub const fn largest(self) -> f32 {
        match self {
            Fp8::E4m3 => 448.0,
            Fp8::E5m2 => 57344.0,
        }
    }

    /// The code of x: what is larger than the largest, infinity included, saturates at it. NaN stays
    /// NaN, without its sign, which processors do not agree on.
    #[inline(always)]
    pub fn encode(self, x: f32, rounding: Rounding) -> u8 {
        let sign = (x.to_bits() >> 31 << 7) as u8;
        let not_a_number = match self {
            Fp8::E4m3 => 0x7F,
            Fp8::E5m2 => 0x7E,
        };
        if x.is_nan() { not_a_number } else { sign | self.small().round(x, rounding) as u8 }
    }

    /// Exact.
    #[inline(always)]
    pub fn decode(self, code: u8) -> f32 {
        let magnitude = u32::from(code & 0x7F);
        let value = match self {
            Fp8::E5m2 if magnitude == 0x7C => f32::INFINITY,
            _ if magnitude > self.small().largest => f32::NAN,
            _ => self.small().value(magnitude),
        };
        if code & 0x80 != 0 { -value } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Philox;

    const BOTH: [Fp8; 2] = [Fp8::E4m3, Fp8::E5m2];

    #[test]
    fn values_are_the_papers() {
        // Table 1 of the paper.
        assert_eq!(Fp8::E4m3.decode(0x7E), 448.0);
        assert_eq!(Fp8::E4m3.decode(0x08), 2f32.powi(-6));
        assert_eq!(Fp8::E4m3.decode(0x07), 0.875 * 2f32.powi(-6));
        assert_eq!(Fp8::E4m3.decode(0x01), 2f32.powi(-9));
        assert_eq!(Fp8::E5m2.decode(0x7B), 57344.0);
        assert_eq!(Fp8::E5m2.decode(0x04), 2f32.powi(-14));
        assert_eq!(Fp8::E5m2.decode(0x03), 0.75 * 2f32.powi(-14));
        assert_eq!(Fp8::E5m2.decode(0x01), 2f32.powi(-16));
        assert!(Fp8::E4m3.decode(0xFF).is_nan() && Fp8::E5m2.decode(0x7D).is_nan());
        assert_eq!(Fp8::E5m2.decode(0xFC), f32::NEG_INFINITY);
    }

    #[test]
    fn every_code_is_its_own_nearest_and_midpoints_go_to_even() {
        for format in BOTH {
            let finite = 0..=format.small().largest as u8;
            for code in finite.clone() {
                let value = format.decode(code);
                assert_eq!(format.encode(value, Rounding::Nearest), code, "{format:?} {code:#x}");
                assert_eq!(format.encode(value, Rounding::Stochastic(0)), code, "what is exact is never rounded");
                assert_eq!(format.encode(-value, Rounding::Nearest), code | 0x80);
            }
            for code in finite.skip(1) {
                let (below, above) = (format.decode(code - 1), format.decode(code));
                let middle = (below + above) / 2.0;
                let even = if code % 2 == 0 { code } else { code - 1 };
                assert_eq!(format.encode(middle, Rounding::Nearest), even);
                assert_eq!(format.encode(f32::from_bits(middle.to_bits() + 1), Rounding::Nearest), code);
                assert_eq!(format.encode(f32::from_bits(middle.to_bits() - 1), Rounding::Nearest), code - 1);
                assert_eq!(format.encode(middle, Rounding::Stochastic(0x7FFF_FFFF)), code);
                assert_eq!(format.encode(middle, Rounding::Stochastic(0x8000_0000)), code - 1);
            }
        }
    }

    #[test]
    fn what_is_too_large_saturates_and_nan_stays() {
        for format in BOTH {
            let most = format.small().largest as u8;
            for x in [format.largest() * 1.001, f32::MAX, f32::INFINITY] {
                for rounding in [Rounding::Nearest, Rounding::Stochastic(0), Rounding::Stochastic(u32::MAX)] {
                    assert_eq!(format.encode(x, rounding), most, "{x} {rounding:?}");
                    assert_eq!(format.encode(-x, rounding), most | 0x80);
                }
            }
            assert!(format.decode(format.encode(f32::NAN, Rounding::Nearest)).is_nan());
            assert_eq!(format.encode(1e-40, Rounding::Nearest), 0, "an f32 subnormal");
            assert_eq!(format.encode(-0.0, Rounding::Nearest), 0x80);
        }
    }

    #[test]
    fn stochastic_rounding_has_the_right_mean() {
        let noise = Philox::new(5, 9);
        for (format, x) in [(Fp8::E4m3, 1.03f32), (Fp8::E4m3, -0.0047), (Fp8::E5m2, 3.3), (Fp8::E5m2, 2e-5)] {
            let draws = 20_000;
            let value = |i| f64::from(format.decode(format.encode(x, Rounding::Stochastic(noise.words(i)[0]))));
            let mean = (0..draws).map(value).sum::<f64>() / draws as f64;
            assert!((mean / f64::from(x) - 1.0).abs() < 0.01, "{format:?} {x}: {mean}");
        }
    }
}
