//! 4-bit floats: e2m1, the values of NVFP4 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives). Codes are the low four bits of a
//! byte. The bits of cuda/device/fp4.cuh.

use super::rounding::{Rounding, Small};

const E2M1: Small = Small { mantissa: 1, bias: 1, largest: 7 };

/// The largest value.
pub const LARGEST: f32 = 6.0;

/// The code of x; saturates at 6. There is no NaN in the format: it becomes 6.
#[inline(always)]
pub fn encode(x: f32, rounding: Rounding) -> u8 {
    if x.is_nan() { E2M1.largest as u8 } else { (x.to_bits() >> 31 << 3 | E2M1.round(x, rounding)) as u8 }
}

/// Exact.
#[inline(always)]
pub fn decode(code: u8) -> f32 {
    let value = E2M1.value(u32::from(code & 7));
    if code & 8 != 0 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Philox;

    #[test]
    fn values_and_nearest_codes() {
        let values: Vec<f32> = (0..16).map(decode).collect();
        assert_eq!(values[..8], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(values[9..], [-0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]);
        for code in 0..16u8 {
            assert_eq!(encode(decode(code), Rounding::Nearest), code);
            assert_eq!(encode(decode(code), Rounding::Stochastic(0)), code);
        }
        // Ties go to the even code: 0.25 → 0, 0.75 → 1, 1.25 → 1, 1.75 → 2, 2.5 → 2, 3.5 → 4, 5 → 4.
        for (x, code) in [(0.25, 0), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6)] {
            assert_eq!(encode(x, Rounding::Nearest), code, "{x}");
        }
        for x in [6.1, 1e30, f32::INFINITY, f32::NAN] {
            assert_eq!(encode(x, Rounding::Nearest), 7, "{x}");
        }
        assert_eq!(encode(-f32::INFINITY, Rounding::Stochastic(0)), 15);
    }

    #[test]
    fn stochastic_rounding_has_the_right_mean() {
        let noise = Philox::new(5, 11);
        for x in [0.1f32, -0.6, 1.9, 4.7, 5.9] {
            let draws = 20_000;
            let value = |i| f64::from(decode(encode(x, Rounding::Stochastic(noise.words(i)[1]))));
            let mean = (0..draws).map(value).sum::<f64>() / draws as f64;
            assert!((mean - f64::from(x)).abs() < 0.03, "{x}: {mean}");
        }
    }
}
