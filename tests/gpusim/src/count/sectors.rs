//! Global memory traffic of one request of a warp.

use crate::exec::registers::LANES;

/// Bytes of a sector, the unit in which memory moves.
const SECTOR: u64 = 32;

/// Sectors that a request touches, and the fewest that could hold the bytes it wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub sectors: u32,
    pub minimum: u32,
}

/// The traffic of `count` lanes, the first of `addresses`, with `bytes` each (a power of two up to 16, aligned).
pub fn traffic(addresses: &[u64; LANES], count: usize, bytes: usize) -> Traffic {
    let mut addresses = *addresses;
    let lanes = &mut addresses[..count];
    if !lanes.is_sorted() {
        lanes.sort_unstable();
    }
    let (mut sectors, mut distinct) = (1, 1);
    for l in 1..count {
        sectors += (lanes[l] / SECTOR != lanes[l - 1] / SECTOR) as u32;
        distinct += (lanes[l] != lanes[l - 1]) as u32;
    }
    Traffic { sectors, minimum: (distinct * bytes as u32).div_ceil(SECTOR as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: impl Fn(u64) -> u64, bytes: usize) -> (u32, u32) {
        let t = traffic(&std::array::from_fn(|l| address(l as u64)), LANES, bytes);
        (t.sectors, t.minimum)
    }

    #[test]
    fn patterns() {
        assert_eq!(of(|l| 4 * l, 4), (4, 4));
        assert_eq!(of(|l| 16 * l, 16), (16, 16));
        assert_eq!(of(|l| 4 * l + 16, 4), (5, 4), "misaligned");
        assert_eq!(of(|l| 32 * l, 4), (32, 4), "strided");
        assert_eq!(of(|_| 64, 4), (1, 1), "broadcast");
        assert_eq!(of(|l| 4 * (31 - l), 4), (4, 4), "reversed");
        assert_eq!(of(|l| 2 * l, 2), (2, 2));
    }
}
