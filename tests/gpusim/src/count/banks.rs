//! Bank conflicts in shared memory: 32 banks of 4 bytes. A request takes one wavefront per distinct word in its busiest bank.

use crate::exec::registers::{LANES, Mask};

/// Wavefronts of a request beyond those its width needs. 8-byte accesses go in two halves of the warp, 16-byte ones in four
/// quarters; threads that read the same word do not conflict.
pub fn extra_wavefronts(offsets: &[u32; LANES], mask: Mask, bytes: usize) -> u32 {
    let lanes = match bytes {
        16 => 8,
        8 => 16,
        _ => LANES,
    };
    (0..LANES / lanes)
        .map(|phase| {
            let members = phase * lanes..(phase + 1) * lanes;
            if mask == Mask::MAX && is_free(&offsets[members.clone()], bytes) {
                return 0;
            }
            let words = members.filter(|l| mask >> l & 1 != 0).flat_map(|l| {
                let first = offsets[l] / 4;
                first..first + (bytes as u32).div_ceil(4)
            });
            busiest_bank(words).saturating_sub(1)
        })
        .sum()
}

/// The two patterns nearly all code has: everybody the same address, or neighbours side by side.
#[inline(always)]
fn is_free(offsets: &[u32], bytes: usize) -> bool {
    let (mut same, mut consecutive) = (true, true);
    for l in 0..offsets.len() {
        same &= offsets[l] == offsets[0];
        consecutive &= offsets[l] == offsets[0].wrapping_add((l * bytes) as u32);
    }
    same || consecutive
}

/// The most distinct words that fall in one bank.
pub fn busiest_bank(words: impl Iterator<Item = u32>) -> u32 {
    let mut seen = [[0u32; LANES]; LANES];
    let mut counts = [0usize; LANES];
    for word in words {
        let bank = (word % 32) as usize;
        if !seen[bank][..counts[bank]].contains(&word) {
            // At most 32 words a phase.
            seen[bank][counts[bank]] = word;
            counts[bank] += 1;
        }
    }
    counts.into_iter().max().unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(offset: impl Fn(u32) -> u32, bytes: usize) -> u32 {
        extra_wavefronts(&std::array::from_fn(|l| offset(l as u32)), Mask::MAX, bytes)
    }

    #[test]
    fn patterns() {
        assert_eq!(of(|l| 4 * l, 4), 0);
        assert_eq!(of(|_| 8, 4), 0, "broadcast");
        assert_eq!(of(|l| 128 * l, 4), 31, "a column of 32 floats");
        assert_eq!(of(|l| 132 * l, 4), 0, "a padded column");
        assert_eq!(of(|l| 8 * l, 4), 1, "every other word");
        assert_eq!(of(|l| 8 * l, 8), 0);
        assert_eq!(of(|l| 16 * l, 16), 0);
        assert_eq!(of(|l| 128 * l, 16), 4 * 7, "rows of 128 bytes by 16");
        assert_eq!(of(|l| 144 * l, 16), 0, "padded by 16");
        assert_eq!(of(|l| 2 * l, 2), 0, "two lanes to a word");
    }
}
