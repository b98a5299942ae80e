//! Random streams that can be opened anywhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What a stream is for, so that no two uses share their bits.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Purpose {
    /// Indices: task and split, example.
    Example = 1,
    /// Indices: step, row.
    Sequence = 2,
    /// Indices: epoch, 0.
    Epoch = 3,
}

/// A ChaCha8 stream. The integer helpers are written out here, because a library's may draw differently in its next
/// version, and then a resumed run would see other data.
pub(super) struct Random(ChaCha8Rng);

impl Random {
    /// The four numbers are the 256-bit key itself, so that streams differ wherever one of them does.
    pub fn new(seed: u64, purpose: Purpose, index: [u64; 2]) -> Self {
        let mut key = [0; 32];
        for (bytes, word) in key.chunks_exact_mut(8).zip([seed, purpose as u64, index[0], index[1]]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(key))
    }

    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..n` without bias (Lemire, "Fast random integer generation in an interval", 2019). `n` ≥ 1.
    pub fn below(&mut self, n: usize) -> usize {
        debug_assert!(n >= 1);
        let n = n as u64;
        loop {
            let product = u128::from(self.bits()) * u128::from(n);
            let low = product as u64;
            // The low half is compared first: the division is needed once in 2^64/n draws.
            if low >= n || low >= n.wrapping_neg() % n {
                return (product >> 64) as usize;
            }
        }
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// `n` symbols drawn independently.
    pub fn symbols(&mut self, alphabet: &[u8], n: usize) -> Vec<u8> {
        (0..n).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_uniform_and_in_range() {
        let mut random = Random::new(7, Purpose::Example, [1, 2]);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7)] += 1;
        }
        // Standard deviation of a count is 93; six of them.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 560), "{counts:?}");
    }

    #[test]
    fn streams_differ_in_every_part_of_the_key() {
        let first = |seed, purpose, index| Random::new(seed, purpose, index).bits();
        let mut seen = vec![
            first(1, Purpose::Example, [2, 3]),
            first(2, Purpose::Example, [2, 3]),
            first(1, Purpose::Sequence, [2, 3]),
            first(1, Purpose::Example, [3, 3]),
            first(1, Purpose::Example, [2, 2]),
        ];
        assert_eq!(seen[0], first(1, Purpose::Example, [2, 3]));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5);
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..100).collect();
        Random::new(1, Purpose::Epoch, [0, 0]).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
