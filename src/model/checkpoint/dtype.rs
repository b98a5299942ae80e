//! Number formats on disk, to and from f32.

use half::{bf16, f16};
use rayon::prelude::*;

/// Elements that one task converts.
const CHUNK: usize = 1 << 16;

/// The format of a tensor's elements on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskDtype {
    F32,
    BF16,
    F16,
}

impl DiskDtype {
    /// The name in a safetensors header.
    pub fn name(self) -> &'static str {
        match self {
            DiskDtype::F32 => "F32",
            DiskDtype::BF16 => "BF16",
            DiskDtype::F16 => "F16",
        }
    }

    /// The name in config.json.
    pub fn config_name(self) -> &'static str {
        match self {
            DiskDtype::F32 => "float32",
            DiskDtype::BF16 => "bfloat16",
            DiskDtype::F16 => "float16",
        }
    }

    /// `None` for a format that this crate does not read.
    pub fn from_name(name: &str) -> Option<DiskDtype> {
        [DiskDtype::F32, DiskDtype::BF16, DiskDtype::F16].into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DiskDtype::F32 => 4,
            DiskDtype::BF16 | DiskDtype::F16 => 2,
        }
    }

    /// Rounds to this format, to nearest, ties to even.
    pub fn round(self, value: f32) -> f32 {
        match self {
            DiskDtype::F32 => value,
            DiskDtype::BF16 => bf16::from_f32(value).to_f32(),
            DiskDtype::F16 => f16::from_f32(value).to_f32(),
        }
    }

    /// Decodes little-endian `bytes` into `out`, of as many elements, on all threads. Gives the first element that is
    /// not finite, with its index.
    pub(super) fn decode(self, bytes: &[u8], out: &mut [f32]) -> Option<(usize, f32)> {
        let chunks = out.par_chunks_mut(CHUNK).zip(bytes.par_chunks(CHUNK * self.bytes()));
        chunks
            .enumerate()
            .filter_map(|(i, (out, bytes))| Some((i, self.decode_chunk(bytes, out)?)))
            .min_by_key(|bad| bad.0)
            .map(|(i, (within, value))| (i * CHUNK + within, value))
    }

    fn decode_chunk(self, bytes: &[u8], out: &mut [f32]) -> Option<(usize, f32)> {
        match self {
            DiskDtype::F32 => {
                let (elements, _) = bytes.as_chunks::<4>();
                out.iter_mut().zip(elements).for_each(|(out, &b)| *out = f32::from_le_bytes(b));
            }
            DiskDtype::BF16 => {
                let (elements, _) = bytes.as_chunks::<2>();
                out.iter_mut()
                    .zip(elements)
                    .for_each(|(out, &b)| *out = f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16));
            }
            DiskDtype::F16 => {
                let (elements, _) = bytes.as_chunks::<2>();
                out.iter_mut().zip(elements).for_each(|(out, &b)| *out = f16::from_le_bytes(b).to_f32());
            }
        }
        first_not_finite(out, |value| value)
    }

    /// The first of `values` that this format cannot hold as a finite number, with its index.
    pub fn first_unfit(self, values: &[f32]) -> Option<(usize, f32)> {
        let chunks = values.par_chunks(CHUNK).enumerate();
        let unfit = |values: &[f32]| match self {
            DiskDtype::F32 => first_not_finite(values, |value| value),
            _ => first_not_finite(values, |value| self.round(value)),
        };
        chunks
            .filter_map(|(i, values)| Some((i, unfit(values)?)))
            .min_by_key(|bad| bad.0)
            .map(|(i, (within, value))| (i * CHUNK + within, value))
    }

    /// Appends `values`, rounded, as little-endian bytes.
    pub fn encode(self, values: &[f32], out: &mut Vec<u8>) {
        match self {
            DiskDtype::F32 => values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes())),
            DiskDtype::BF16 => values.iter().for_each(|&v| out.extend_from_slice(&bf16::from_f32(v).to_le_bytes())),
            DiskDtype::F16 => values.iter().for_each(|&v| out.extend_from_slice(&f16::from_f32(v).to_le_bytes())),
        }
    }
}

fn first_not_finite(values: &[f32], seen_as: impl Fn(f32) -> f32) -> Option<(usize, f32)> {
    // The branch-free pass is what nearly every tensor takes.
    if values.iter().fold(true, |all, &value| all & seen_as(value).is_finite()) {
        return None;
    }
    values.iter().position(|&value| !seen_as(value).is_finite()).map(|i| (i, values[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(dtype: DiskDtype, value: f32) -> f32 {
        let (mut bytes, mut out) = (Vec::new(), [0.0]);
        dtype.encode(&[value], &mut bytes);
        dtype.decode(&bytes, &mut out);
        out[0]
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        // 1 + 2^-8 lies between the neighbours 1 and 1 + 2^-7; even is 1. 1 + 3·2^-8 goes up to 1 + 2^-6.
        for (value, expected) in
            [(1.0 + 0.00390625, 1.0), (1.0 + 0.01171875, 1.015625), (1.00391, 1.0078125), (-0.0, -0.0)]
        {
            assert_eq!(through(DiskDtype::BF16, value).to_bits(), f32::to_bits(expected), "{value}");
        }
    }

    #[test]
    fn every_16_bit_pattern_survives() {
        for bits in 0..=u16::MAX {
            for dtype in [DiskDtype::BF16, DiskDtype::F16] {
                let (mut out, mut back) = ([0.0], Vec::new());
                if dtype.decode(&bits.to_le_bytes(), &mut out).is_none() {
                    dtype.encode(&out, &mut back);
                    assert_eq!(back, bits.to_le_bytes(), "{dtype:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_bad_element_is_told_across_chunks() {
        let mut values = vec![0.5f32; 3 * CHUNK + 7];
        assert_eq!(DiskDtype::BF16.first_unfit(&values), None);
        values[2 * CHUNK + 3] = f32::INFINITY;
        values[3 * CHUNK + 1] = f32::NAN;
        let mut bytes = Vec::new();
        DiskDtype::F32.encode(&values, &mut bytes);
        let mut out = vec![0.0; values.len()];
        assert_eq!(DiskDtype::F32.decode(&bytes, &mut out), Some((2 * CHUNK + 3, f32::INFINITY)));
        assert_eq!(DiskDtype::F32.first_unfit(&values), Some((2 * CHUNK + 3, f32::INFINITY)));
        // Finite in f32, too large for the others.
        assert_eq!(DiskDtype::F16.first_unfit(&[1.0, 70000.0]), Some((1, 70000.0)));
        assert_eq!(DiskDtype::BF16.first_unfit(&[f32::MAX]), Some((0, f32::MAX)));
    }
}
