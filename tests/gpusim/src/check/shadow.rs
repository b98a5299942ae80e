//! Who touched each granule of shared memory last: finds races, reads of what nobody wrote, and copies in flight.
//!
//! A granule is the kernel's smallest shared-memory access (at most 4 bytes), so granules are never shared by two accesses that
//! do not overlap. Nearly every access finds granules written before the last barrier: that is one comparison per granule, and
//! only what fails it is looked at closely.

use super::clock::{Clock, STAMP_BITS};

/// A write cell, from the top: in flight, stamp, atomic, thread (0..1023).
mod write {
    /// A `cp.async` into the granule is in flight.
    pub const IN_FLIGHT: u32 = 1 << 31;
    pub const STAMP: u32 = 11;
    /// Written by an atomic, or by a store meant to meet other threads' accesses.
    pub const ATOMIC: u32 = 1 << 10;
    pub const THREAD: u32 = ATOMIC - 1;

    pub fn stamp(cell: u32) -> u32 {
        (cell & !IN_FLIGHT) >> STAMP
    }
}

/// A read cell, from the top: stamp, reader.
mod read {
    pub const STAMP: u32 = 12;
    pub const READER: u32 = (1 << STAMP) - 1;
    /// Readers up to here are threads; `WARP + w` is several threads of warp w.
    pub const WARP: u32 = 1 << 10;
    /// Threads of several warps, which the granule's set of warps names.
    pub const MANY: u32 = 1 << 11;
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Nobody wrote the granule in this CTA.
    Unwritten,
    /// A copy into it, issued by this thread, has not been waited for.
    InFlight {
        thread: u32,
        pc: u32,
    },
    ReadAfterWrite {
        thread: u32,
        pc: u32,
    },
    WriteAfterWrite {
        thread: u32,
        pc: u32,
    },
    /// The thread is known if only one read.
    WriteAfterRead {
        thread: Option<u32>,
        warp: u32,
    },
}

/// What an access does that is meant to meet others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    Read,
    Write,
    Update,
}

#[derive(Default)]
pub struct Shadow {
    pub clock: Clock,
    /// Binary logarithm of the granule's bytes.
    shift: u32,
    /// Last write.
    writes: Vec<u32>,
    /// Instruction of the last write.
    writers: Vec<u32>,
    /// Reads since the last write.
    reads: Vec<u32>,
    /// Where the reader is [`read::MANY`]: the set of warps.
    readers: Vec<u32>,
}

impl Shadow {
    /// Prepares for CTAs with `bytes` of shared memory in granules of 1, 2 or 4 bytes.
    pub fn new(bytes: usize, granule: usize) -> Self {
        let granules = bytes.div_ceil(granule);
        Shadow {
            clock: Clock::default(),
            shift: granule.trailing_zeros(),
            writes: vec![0; granules],
            writers: vec![0; granules],
            reads: vec![0; granules],
            readers: vec![0; granules],
        }
    }

    pub fn start_cta(&mut self) {
        self.make_room();
        self.clock.start_cta();
    }

    /// Forgets the past where the stamps run out (after a million synchronisations): what was written stays so.
    pub fn make_room(&mut self) {
        if self.clock.is_exhausted() {
            let start = self.clock.start();
            self.clock.restart();
            let now = self.clock.now();
            for cell in &mut self.writes {
                let is_current = write::stamp(*cell) >= start;
                let rest = *cell & (write::IN_FLIGHT | write::ATOMIC | write::THREAD);
                *cell = if is_current { now << write::STAMP | rest } else { 0 };
            }
            self.reads.fill(0);
            self.clock.synchronize_all();
        }
    }

    #[inline(always)]
    fn granules(&self, offset: usize, bytes: usize) -> std::ops::Range<usize> {
        offset >> self.shift..((offset + bytes - 1) >> self.shift) + 1
    }

    /// Whether all granules were written in this CTA before its last barrier, and none is in flight.
    #[inline(always)]
    fn are_settled(&self, granules: std::ops::Range<usize>) -> bool {
        let oldest = self.clock.start() << write::STAMP;
        let span = (self.clock.safe() << write::STAMP).wrapping_sub(oldest);
        self.writes[granules].iter().fold(true, |all, cell| all & (cell.wrapping_sub(oldest) < span))
    }

    /// Lanes `first..=last` of `warp` read the same bytes. Gives the first conflict and its lane.
    #[inline(always)]
    pub fn read(&mut self, warp: u32, first: u32, last: u32, offset: usize, bytes: usize) -> Option<(u32, Conflict)> {
        let granules = self.granules(offset, bytes);
        let mut conflict = None;
        if !self.are_settled(granules.clone()) {
            conflict = self.judge_reads(warp, first, last, granules.clone());
        }
        let reader = if first == last { 32 * warp + first } else { read::WARP + warp };
        let own = self.clock.now() << read::STAMP | reader;
        let safe = self.clock.safe() << read::STAMP;
        let mut is_simple = true;
        for cell in &mut self.reads[granules.clone()] {
            let is_first = *cell < safe || *cell == own;
            is_simple &= is_first;
            *cell = if is_first { own } else { *cell };
        }
        if !is_simple {
            granules.for_each(|g| self.join_reader(g, warp, own));
        }
        conflict
    }

    #[cold]
    fn judge_reads(
        &self,
        warp: u32,
        first: u32,
        last: u32,
        granules: std::ops::Range<usize>,
    ) -> Option<(u32, Conflict)> {
        (first..=last).find_map(|lane| {
            granules.clone().find_map(|g| self.judge_read(g, 32 * warp + lane)).map(|conflict| (lane, conflict))
        })
    }

    fn judge_read(&self, g: usize, thread: u32) -> Option<Conflict> {
        let cell = self.writes[g];
        let (stamp, other, pc) = (write::stamp(cell), cell & write::THREAD, self.writers[g]);
        match () {
            _ if stamp < self.clock.start() => Some(Conflict::Unwritten),
            _ if cell & write::IN_FLIGHT != 0 => Some(Conflict::InFlight { thread: other, pc }),
            _ if self.clock.is_ordered(other, stamp, thread) => None,
            _ => Some(Conflict::ReadAfterWrite { thread: other, pc }),
        }
    }

    /// Adds a reader to those since the last barrier. Readers that are ordered before it are dropped: whoever is ordered after
    /// it is ordered after them.
    fn join_reader(&mut self, g: usize, warp: u32, own: u32) {
        let cell = self.reads[g];
        let (stamp, reader) = (cell >> read::STAMP, cell & read::READER);
        if cell == own {
            return;
        }
        let now = own & !read::READER;
        let is_current = stamp == self.clock.now();
        let me = 32 * warp; // any thread of the warp: what is asked is about other warps
        if reader == read::MANY {
            let known = if is_current { 0 } else { self.clock.warps_ordered(stamp, me) };
            self.readers[g] = self.readers[g] & !known | 1 << warp;
            self.reads[g] = now | read::MANY;
            return;
        }
        let other_warp = if reader >= read::WARP { reader - read::WARP } else { reader / 32 };
        if other_warp == warp {
            let is_ordered = !is_current && self.is_behind_warp(stamp, reader, own & read::READER, warp);
            self.reads[g] = if is_ordered { own } else { now | (read::WARP + warp) };
        } else if !is_current && self.clock.is_warp_ordered(other_warp as usize, stamp, me) {
            self.reads[g] = own;
        } else {
            self.readers[g] = 1 << warp | 1 << other_warp;
            self.reads[g] = now | read::MANY;
        }
    }

    /// Whether reads of a warp are ordered before later ones of the same warp, by `reader` and `own` as in a read cell.
    fn is_behind_warp(&self, stamp: u32, reader: u32, own: u32, warp: u32) -> bool {
        match (reader < read::WARP, own < read::WARP) {
            (true, true) => self.clock.is_ordered(reader, stamp, own),
            (false, true) => self.clock.is_warp_ordered(warp as usize, stamp, own),
            // For several lanes, what each of them knows.
            (_, false) => {
                (32 * warp..32 * (warp + 1)).all(|lane| self.clock.is_warp_ordered(warp as usize, stamp, lane))
            }
        }
    }

    /// `thread` writes at instruction `pc`.
    #[inline(always)]
    pub fn write(&mut self, thread: u32, offset: usize, bytes: usize, pc: u32) -> Option<Conflict> {
        self.write_cells(thread, offset, bytes, pc, 0)
    }

    /// `thread` issues a `cp.async`; the granules are in flight until [`Shadow::land`].
    pub fn issue(&mut self, thread: u32, offset: usize, bytes: usize, pc: u32) -> Option<Conflict> {
        self.write_cells(thread, offset, bytes, pc, write::IN_FLIGHT)
    }

    #[inline(always)]
    fn write_cells(&mut self, thread: u32, offset: usize, bytes: usize, pc: u32, flag: u32) -> Option<Conflict> {
        let mut conflict = None;
        let own = self.clock.now() << write::STAMP | thread | flag;
        let (safe_write, safe_read) = (self.clock.safe() << write::STAMP, self.clock.safe() << read::STAMP);
        for g in self.granules(offset, bytes) {
            if self.writes[g] >= safe_write || self.reads[g] >= safe_read {
                conflict = conflict.or_else(|| self.judge_write(g, thread));
            }
            self.writes[g] = own;
            self.writers[g] = pc;
            self.reads[g] = 0;
        }
        conflict
    }

    fn judge_write(&self, g: usize, thread: u32) -> Option<Conflict> {
        let cell = self.writes[g];
        let (stamp, other, pc) = (write::stamp(cell), cell & write::THREAD, self.writers[g]);
        match () {
            _ if stamp < self.clock.start() => {}
            _ if cell & write::IN_FLIGHT != 0 => return Some(Conflict::InFlight { thread: other, pc }),
            _ if self.clock.is_ordered(other, stamp, thread) => {}
            _ => return Some(Conflict::WriteAfterWrite { thread: other, pc }),
        }
        self.judge_write_after_read(g, thread)
    }

    fn judge_write_after_read(&self, g: usize, thread: u32) -> Option<Conflict> {
        let cell = self.reads[g];
        let (stamp, reader) = (cell >> read::STAMP, cell & read::READER);
        if stamp < self.clock.safe() {
            return None;
        }
        if reader < read::WARP {
            let is_ordered = self.clock.is_ordered(reader, stamp, thread);
            return (!is_ordered).then_some(Conflict::WriteAfterRead { thread: Some(reader), warp: reader / 32 });
        }
        let warps = if reader == read::MANY { self.readers[g] } else { 1 << (reader - read::WARP) };
        // Another warp is named before the thread's own, of which it may be the only reader.
        (0..32)
            .filter(|v| warps >> v & 1 != 0 && !self.clock.is_warp_ordered(*v, stamp, thread))
            .max_by_key(|v| *v != thread as usize / 32)
            .map(|v| Conflict::WriteAfterRead { thread: None, warp: v as u32 })
    }

    /// A copy of `thread` has landed.
    pub fn land(&mut self, thread: u32, offset: usize, bytes: usize) {
        let own = self.clock.now() << write::STAMP | thread;
        for g in self.granules(offset, bytes) {
            let cell = self.writes[g];
            if cell & write::IN_FLIGHT != 0 && cell & write::THREAD == thread {
                self.writes[g] = own;
            }
        }
    }

    /// An atomic, or a load or store meant to meet other threads' (volatile, relaxed, acquire, release): those do not race with
    /// each other, but with plain accesses they do.
    pub fn touch(&mut self, thread: u32, offset: usize, bytes: usize, pc: u32, intent: Touch) -> Option<Conflict> {
        let mut conflict = None;
        let own = self.clock.now() << write::STAMP | thread | write::ATOMIC;
        for g in self.granules(offset, bytes) {
            let found = match self.judge_read(g, thread) {
                Some(Conflict::ReadAfterWrite { .. }) if self.writes[g] & write::ATOMIC != 0 => None,
                Some(Conflict::Unwritten) if intent == Touch::Write => None,
                found => found,
            };
            conflict = conflict.or(found);
            if intent != Touch::Read {
                conflict = conflict.or_else(|| self.judge_write_after_read(g, thread));
                self.writes[g] = own;
                self.writers[g] = pc;
                self.reads[g] = 0;
            }
        }
        conflict
    }
}

const _: () = assert!(STAMP_BITS + write::STAMP == 31 && STAMP_BITS + read::STAMP == 32);

#[cfg(test)]
mod tests {
    use super::*;

    fn shadow() -> Shadow {
        let mut shadow = Shadow::new(64, 4);
        shadow.start_cta();
        shadow
    }

    fn read(s: &mut Shadow, thread: u32, offset: usize, bytes: usize) -> Option<Conflict> {
        s.read(thread / 32, thread % 32, thread % 32, offset, bytes).map(|(_, conflict)| conflict)
    }

    #[test]
    fn a_barrier_orders_a_write_and_a_read() {
        let mut s = shadow();
        assert_eq!(read(&mut s, 0, 0, 4), Some(Conflict::Unwritten));
        assert_eq!(s.write(5, 4, 4, 9), None);
        assert_eq!(read(&mut s, 6, 4, 4), Some(Conflict::ReadAfterWrite { thread: 5, pc: 9 }));
        s.clock.synchronize_all();
        assert_eq!(read(&mut s, 6, 4, 4), None);
        assert_eq!(read(&mut s, 40, 4, 4), None);
        assert_eq!(s.write(6, 4, 4, 0), Some(Conflict::WriteAfterRead { thread: None, warp: 1 }));
        s.clock.synchronize_all();
        assert_eq!(s.write(7, 4, 4, 0), None);
        assert_eq!(s.write(9, 4, 4, 0), Some(Conflict::WriteAfterWrite { thread: 7, pc: 0 }));
    }

    #[test]
    fn a_new_cta_finds_nothing_written() {
        let mut s = shadow();
        s.write(0, 0, 16, 0);
        s.start_cta();
        assert_eq!(read(&mut s, 0, 0, 4), Some(Conflict::Unwritten));
    }

    #[test]
    fn a_copy_is_in_flight_until_it_lands() {
        let mut s = shadow();
        assert_eq!(s.issue(3, 16, 16, 1), None);
        assert_eq!(read(&mut s, 3, 20, 4), Some(Conflict::InFlight { thread: 3, pc: 1 }));
        s.clock.synchronize_all();
        assert_eq!(
            read(&mut s, 4, 20, 4),
            Some(Conflict::InFlight { thread: 3, pc: 1 }),
            "a barrier does not wait for copies"
        );
        s.land(3, 16, 16);
        assert_eq!(read(&mut s, 3, 20, 4), None);
        assert_eq!(read(&mut s, 4, 20, 4), Some(Conflict::ReadAfterWrite { thread: 3, pc: 1 }));
        s.clock.synchronize_all();
        assert_eq!(read(&mut s, 4, 20, 4), None);
    }

    #[test]
    fn atomics_race_with_plain_accesses_only() {
        let mut s = shadow();
        s.write(0, 0, 4, 1);
        assert_eq!(s.touch(1, 0, 4, 2, Touch::Update), Some(Conflict::ReadAfterWrite { thread: 0, pc: 1 }));
        assert_eq!(s.touch(2, 0, 4, 2, Touch::Update), None);
        assert_eq!(read(&mut s, 3, 0, 4), Some(Conflict::ReadAfterWrite { thread: 2, pc: 2 }));
        s.clock.synchronize_all();
        assert_eq!(read(&mut s, 3, 0, 4), None);
    }

    #[test]
    fn a_lane_that_reads_again_after_its_warp_synchronised_may_write() {
        let mut s = shadow();
        s.write(0, 0, 4, 7);
        s.clock.synchronize_all();
        assert_eq!(s.read(0, 0, 31, 0, 4), None);
        s.clock.synchronize_warp(0, u32::MAX, u32::MAX);
        assert_eq!(read(&mut s, 3, 0, 4), None);
        assert_eq!(s.write(3, 0, 4, 8), None);
        // Without the synchronisation it is a race.
        s.clock.synchronize_all();
        assert_eq!(s.read(0, 0, 31, 0, 4), None);
        assert_eq!(read(&mut s, 3, 0, 4), None);
        assert_eq!(s.write(3, 0, 4, 9), Some(Conflict::WriteAfterRead { thread: None, warp: 0 }));
    }

    #[test]
    fn a_lane_races_with_its_own_warp() {
        let mut s = shadow();
        s.write(0, 0, 4, 0);
        assert!(read(&mut s, 1, 0, 4).is_some());
        s.clock.synchronize_warp(0, u32::MAX, u32::MAX);
        assert_eq!(read(&mut s, 1, 0, 4), None);
        assert!(s.write(0, 0, 4, 0).is_some(), "lane 1 may not have read yet");
    }
}
