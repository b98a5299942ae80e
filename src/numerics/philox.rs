//! Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//!
//! The same (key, counter) gives the same bits on every device and in any order, so noise needs no state that a checkpoint
//! would have to keep.

/// A stream of random numbers addressed by `(seed, stream, index)`.
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    key: [u32; 2],
    stream: u64,
}

impl Philox {
    /// `stream` separates uses of one seed: a tensor, a gate, a step.
    pub fn new(seed: u64, stream: u64) -> Philox {
        Philox { key: [seed as u32, (seed >> 32) as u32], stream }
    }

    /// Four independent words for `index`.
    pub fn words(&self, index: u64) -> [u32; 4] {
        let counter = [index as u32, (index >> 32) as u32, self.stream as u32, (self.stream >> 32) as u32];
        philox4x32_10(counter, self.key)
    }

    /// Uniform in (0, 1): never 0 or 1, so that logarithms of it are finite.
    pub fn uniform(&self, index: u64) -> f64 {
        let [a, b, ..] = self.words(index);
        let bits = (u64::from(a) << 21) ^ (u64::from(b) >> 11);
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal, by the Box–Muller transform.
    pub fn normal(&self, index: u64) -> f64 {
        let [a, b, c, d] = self.words(index);
        let u = ((u64::from(a) << 21 ^ u64::from(b) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let v = ((u64::from(c) << 21 ^ u64::from(d) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// The block function: ten rounds of two 32×32 → 64-bit products, the key bumped between rounds.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let a = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // The vectors published with the generator.
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32_10([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn normal_has_the_moments_of_a_standard_normal() {
        let noise = Philox::new(7, 1);
        let n = 20_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for i in 0..n {
            let x = noise.normal(i);
            sum += x;
            squares += x * x;
        }
        assert!((sum / n as f64).abs() < 0.03);
        assert!((squares / n as f64 - 1.0).abs() < 0.04);
    }
}
