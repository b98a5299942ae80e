//! Which accesses of a CTA are ordered by synchronisation: vector clocks over its warps.
//!
//! Time is one counter per CTA that every synchronisation advances. An access is stamped with the time; it is ordered before an
//! access of another warp if that warp has since synchronised with it: `known[w][v]` is the time before which all that warp
//! `v` did is known to warp `w`. `__syncthreads` makes everything before it known to all: that is `safe`, which decides nearly
//! every question with one comparison. Inside a warp `__syncwarp` of all lanes sets `known[w][w]`; one of some lanes
//! is kept in a matrix over lanes, made when first needed.

/// Most warps of a CTA.
pub const WARPS: usize = 32;

/// Times are kept in so many bits of a shadow cell.
pub const STAMP_BITS: u32 = 20;

pub struct Clock {
    now: u32,
    start: u32,
    safe: u32,
    known: Box<[[u32; WARPS]; WARPS]>,
    /// Per warp, what each lane knows of each lane, where lanes synchronised in part.
    lanes: Vec<Option<Box<[[u32; 32]; 32]>>>,
    /// Warps that have executed a fence and no atomic since.
    fenced: u32,
    /// What warps knew when they passed a fence and then wrote an atomic: an atomic read learns it.
    released: [u32; WARPS],
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            now: 1,
            start: 1,
            safe: 1,
            known: Box::new([[0; WARPS]; WARPS]),
            lanes: (0..WARPS).map(|_| None).collect(),
            fenced: 0,
            released: [0; WARPS],
        }
    }
}

impl Clock {
    #[inline(always)]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// When this CTA began: older stamps are of CTAs before it in the same memory.
    #[inline(always)]
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Everything stamped before this is ordered before everything that happens now.
    #[inline(always)]
    pub fn safe(&self) -> u32 {
        self.safe
    }

    /// Whether the stamps are about to run out: the shadow must then be cleared and the clock restarted.
    pub fn is_exhausted(&self) -> bool {
        self.now + 1 >= 1 << STAMP_BITS
    }

    pub fn restart(&mut self) {
        *self = Clock::default();
    }

    pub fn start_cta(&mut self) {
        self.now += 1;
        self.start = self.now;
        self.synchronize_all();
    }

    /// A barrier of the whole CTA.
    pub fn synchronize_all(&mut self) {
        self.now += 1;
        self.safe = self.now;
    }

    /// What a warp knows as it arrives at a barrier that it does not wait at.
    pub fn arrive(&mut self, warp: usize) -> [u32; WARPS] {
        self.now += 1;
        let mut known = self.known[warp];
        known[warp] = self.now;
        known
    }

    /// A barrier that the warps in `waiting` waited at, and others passed having `arrived` with what they knew.
    pub fn synchronize(&mut self, waiting: u32, arrived: &[[u32; WARPS]]) {
        self.now += 1;
        let members = || (0..WARPS).filter(|w| waiting >> w & 1 != 0);
        let mut joined = [self.safe; WARPS];
        for known in members().map(|w| &self.known[w]).chain(arrived) {
            for v in 0..WARPS {
                joined[v] = joined[v].max(known[v]);
            }
        }
        for w in members() {
            joined[w] = self.now;
        }
        for w in members() {
            self.known[w] = joined;
        }
    }

    /// `__syncwarp` of the lanes in `members`.
    pub fn synchronize_warp(&mut self, warp: usize, members: u32, live: u32) {
        self.now += 1;
        if members & live == live {
            self.known[warp][warp] = self.now;
            return;
        }
        let matrix = self.lanes[warp].get_or_insert_with(|| Box::new([[0; 32]; 32]));
        let lanes = || (0..32).filter(|l| members >> l & 1 != 0);
        let mut joined = [0; 32];
        for l in lanes() {
            for m in 0..32 {
                joined[m] = joined[m].max(matrix[l][m]);
            }
        }
        for l in lanes() {
            joined[l] = self.now;
        }
        for l in lanes() {
            matrix[l] = joined;
        }
    }

    /// A fence: the warp's next atomic passes on what it did before.
    pub fn fence(&mut self, warp: usize) {
        self.fenced |= 1 << warp;
    }

    /// An atomic (or volatile, relaxed…) access of a warp. Locks and flags are not told apart: an access learns what was
    /// released through any of them, so some races beside locks go unseen, but correct locking is never called a race.
    pub fn meet(&mut self, warp: usize) {
        for v in 0..WARPS {
            self.known[warp][v] = self.known[warp][v].max(self.released[v]);
        }
        if self.fenced >> warp & 1 != 0 {
            self.fenced &= !(1 << warp);
            self.now += 1;
            for v in 0..WARPS {
                self.released[v] = self.released[v].max(self.known[warp][v]);
            }
            self.released[warp] = self.now;
        }
    }

    /// Whether an access of thread `other` at time `stamp` is ordered before what thread `me` does now.
    pub fn is_ordered(&self, other: u32, stamp: u32, me: u32) -> bool {
        let (v, w) = (other as usize / 32, me as usize / 32);
        stamp < self.safe
            || other == me
            || stamp < self.known[w][v]
            || (v == w && self.lanes_ordered(w, other, stamp, me))
    }

    fn lanes_ordered(&self, warp: usize, other: u32, stamp: u32, me: u32) -> bool {
        self.lanes[warp].as_ref().is_some_and(|matrix| stamp < matrix[me as usize % 32][other as usize % 32])
    }

    /// The set of other warps whose accesses at `stamp` are ordered before what thread `me` does now.
    pub fn warps_ordered(&self, stamp: u32, me: u32) -> u32 {
        let known = &self.known[me as usize / 32];
        (0..WARPS).filter(|v| stamp < known[*v]).fold(0, |set, v| set | 1 << v) & !(1 << (me / 32))
    }

    /// The same for accesses of any threads of warp `v`.
    pub fn is_warp_ordered(&self, v: usize, stamp: u32, me: u32) -> bool {
        let (w, lane) = (me as usize / 32, me as usize % 32);
        let in_lanes =
            || v == w && self.lanes[w].as_ref().is_some_and(|matrix| matrix[lane].iter().all(|known| stamp < *known));
        stamp < self.safe || stamp < self.known[w][v] || in_lanes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_of_some_warps_order_only_those() {
        let mut clock = Clock::default();
        clock.start_cta();
        let stamp = clock.now();
        clock.synchronize(0b0011, &[]);
        assert!(clock.is_ordered(0, stamp, 32));
        assert!(!clock.is_ordered(0, stamp, 64));
        // Order is transitive: warp 2 learns of warp 0 through warp 1.
        clock.synchronize(0b0110, &[]);
        assert!(clock.is_ordered(0, stamp, 64));
        assert!(!clock.is_ordered(0, clock.now(), 64));
        clock.synchronize_all();
        assert!(clock.is_ordered(96, clock.now() - 1, 0));
    }

    #[test]
    fn lanes_synchronise_in_part() {
        let mut clock = Clock::default();
        clock.start_cta();
        let stamp = clock.now();
        clock.synchronize_warp(0, 0x0000_ffff, u32::MAX);
        assert!(clock.is_ordered(0, stamp, 15));
        assert!(!clock.is_ordered(0, stamp, 16));
        clock.synchronize_warp(0, 0x0001_8000, u32::MAX);
        assert!(clock.is_ordered(0, stamp, 16));
        clock.synchronize_warp(0, u32::MAX, u32::MAX);
        assert!(clock.is_ordered(0, stamp, 31));
    }
}
