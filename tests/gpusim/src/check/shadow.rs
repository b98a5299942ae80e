//! Who touched each granule of shared memory last: finds races, reads of what nobody wrote, and copies in flight.
//!
//! A granule is the kernel's smallest shared-memory access (at most 4 bytes), so granules are never shared by two accesses that
//! do not overlap.

use super::clock::{Clock, STAMP_BITS};

/// Bits of a cell that hold a thread (0..1023) and flags; the stamp lies above them.
const THREAD_BITS: u32 = 12;
const THREAD: u32 = (1 << THREAD_BITS) - 1;
const FLAGS: u32 = IN_FLIGHT | ATOMIC;
/// In a write cell: a `cp.async` into the granule is in flight.
const IN_FLIGHT: u32 = 1 << 10;
/// In a write cell: written by an atomic, or by a store meant to meet other threads' accesses.
const ATOMIC: u32 = 1 << 11;
/// In a read cell: more than one thread.
const MANY: u64 = 1 << 10;

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

#[derive(Default)]
pub struct Shadow {
    pub clock: Clock,
    /// Binary logarithm of the granule's bytes.
    shift: u32,
    /// Last write: stamp and thread.
    writes: Vec<u32>,
    /// Instruction of the last write.
    writers: Vec<u32>,
    /// Reads since the last write: bit set of warps (upper half), latest stamp, thread.
    reads: Vec<u64>,
}

impl Shadow {
    /// Prepares for CTAs with `bytes` of shared memory in granules of 1, 2 or 4 bytes.
    pub fn new(bytes: usize, granule: usize) -> Self {
        let shift = granule.trailing_zeros();
        let granules = bytes.div_ceil(granule);
        Shadow {
            clock: Clock::default(),
            shift,
            writes: vec![0; granules],
            writers: vec![0; granules],
            reads: vec![0; granules],
        }
    }

    pub fn start_cta(&mut self) {
        self.make_room();
        self.clock.start_cta();
    }

    /// Forgets the past where the stamps run out (after two million synchronisations): what was written stays so.
    pub fn make_room(&mut self) {
        if self.clock.is_exhausted() {
            let start = self.clock.start();
            self.clock.restart();
            let now = self.clock.now();
            for cell in &mut self.writes {
                let is_current = *cell >> THREAD_BITS >= start;
                *cell = if is_current { now << THREAD_BITS | (*cell & THREAD) } else { 0 };
            }
            self.reads.fill(0);
            self.clock.synchronize_all();
        }
    }

    #[inline(always)]
    fn granules(&self, offset: usize, bytes: usize) -> std::ops::Range<usize> {
        offset >> self.shift..((offset + bytes - 1) >> self.shift) + 1
    }

    /// `thread` reads.
    #[inline(always)]
    pub fn read(&mut self, thread: u32, offset: usize, bytes: usize) -> Option<Conflict> {
        let mut conflict = None;
        let (start, safe) = (self.clock.start(), self.clock.safe());
        let warp_bit = 1u64 << (32 + thread / 32);
        let own = warp_bit | (self.clock.now() << THREAD_BITS | thread) as u64;
        for g in self.granules(offset, bytes) {
            let write = self.writes[g];
            let (stamp, writer) = (write >> THREAD_BITS, write & THREAD);
            if stamp < start || writer & IN_FLIGHT != 0 || (stamp >= safe && writer != thread) {
                conflict = conflict.or(self.judge_read(g, thread));
            }
            let read = self.reads[g];
            if read != own {
                let read_stamp = read as u32 >> THREAD_BITS;
                self.reads[g] = if read_stamp < safe { own } else { self.join_readers(read, own, thread) };
            }
        }
        conflict
    }

    fn judge_read(&self, g: usize, thread: u32) -> Option<Conflict> {
        let (stamp, writer) = (self.writes[g] >> THREAD_BITS, self.writes[g] & THREAD);
        let (other, pc) = (writer & !FLAGS, self.writers[g]);
        match () {
            _ if stamp < self.clock.start() => Some(Conflict::Unwritten),
            _ if writer & IN_FLIGHT != 0 => Some(Conflict::InFlight { thread: other, pc }),
            _ if self.clock.is_ordered(other, stamp, thread) => None,
            _ => Some(Conflict::ReadAfterWrite { thread: other, pc }),
        }
    }

    /// Adds a reader to those before; readers that are ordered before it are dropped, for whoever is ordered after it is
    /// ordered after them.
    fn join_readers(&self, read: u64, own: u64, thread: u32) -> u64 {
        let (stamp, reader) = (read as u32 >> THREAD_BITS, read & THREAD as u64);
        let mut warps = (read >> 32) as u32;
        if reader & MANY == 0 {
            return if self.clock.is_ordered(reader as u32, stamp, thread) {
                own
            } else {
                own | read & 0xffff_ffff_0000_0000 | MANY
            };
        }
        for v in 0..32 {
            if warps >> v & 1 != 0 && self.clock.is_warp_ordered(v, stamp, thread) {
                warps &= !(1 << v);
            }
        }
        if warps == 0 { own } else { own | (warps as u64) << 32 | MANY }
    }

    /// `thread` writes at instruction `pc`.
    #[inline(always)]
    pub fn write(&mut self, thread: u32, offset: usize, bytes: usize, pc: u32) -> Option<Conflict> {
        self.write_cell(thread, offset, bytes, pc, 0)
    }

    /// `thread` issues a `cp.async`; the granules are in flight until [`Shadow::land`].
    pub fn issue(&mut self, thread: u32, offset: usize, bytes: usize, pc: u32) -> Option<Conflict> {
        self.write_cell(thread, offset, bytes, pc, IN_FLIGHT)
    }

    #[inline(always)]
    fn write_cell(&mut self, thread: u32, offset: usize, bytes: usize, pc: u32, flag: u32) -> Option<Conflict> {
        let mut conflict = None;
        let (start, safe) = (self.clock.start(), self.clock.safe());
        let own = self.clock.now() << THREAD_BITS | thread | flag;
        for g in self.granules(offset, bytes) {
            let write = self.writes[g];
            let (stamp, writer) = (write >> THREAD_BITS, write & THREAD);
            if stamp >= start && writer != thread && (stamp >= safe || writer & IN_FLIGHT != 0) {
                conflict = conflict.or(self.judge_write(g, thread));
            }
            if self.reads[g] as u32 >> THREAD_BITS >= safe {
                conflict = conflict.or(self.judge_write_after_read(g, thread));
            }
            self.writes[g] = own;
            self.writers[g] = pc;
            self.reads[g] = 0;
        }
        conflict
    }

    fn judge_write(&self, g: usize, thread: u32) -> Option<Conflict> {
        let (stamp, writer) = (self.writes[g] >> THREAD_BITS, self.writes[g] & THREAD);
        let (other, pc) = (writer & !FLAGS, self.writers[g]);
        match () {
            _ if writer & IN_FLIGHT != 0 => Some(Conflict::InFlight { thread: other, pc }),
            _ if self.clock.is_ordered(other, stamp, thread) => None,
            _ => Some(Conflict::WriteAfterWrite { thread: other, pc }),
        }
    }

    fn judge_write_after_read(&self, g: usize, thread: u32) -> Option<Conflict> {
        let read = self.reads[g];
        let (stamp, reader, warps) = (read as u32 >> THREAD_BITS, read & THREAD as u64, (read >> 32) as u32);
        if reader & MANY == 0 {
            let reader = reader as u32;
            let is_ordered = self.clock.is_ordered(reader, stamp, thread);
            return (!is_ordered).then_some(Conflict::WriteAfterRead { thread: Some(reader), warp: reader / 32 });
        }
        // Another warp is named before the thread's own, of which it may be the only reader.
        (0..32)
            .filter(|v| warps >> v & 1 != 0 && !self.clock.is_warp_ordered(*v, stamp, thread))
            .max_by_key(|v| *v != thread as usize / 32)
            .map(|v| Conflict::WriteAfterRead { thread: None, warp: v as u32 })
    }

    /// A copy of `thread` has landed.
    pub fn land(&mut self, thread: u32, offset: usize, bytes: usize) {
        let own = self.clock.now() << THREAD_BITS | thread;
        for g in self.granules(offset, bytes) {
            if self.writes[g] & THREAD == thread | IN_FLIGHT {
                self.writes[g] = own;
            }
        }
    }

    /// An atomic, or a load or store meant to meet other threads' (volatile, relaxed, acquire, release): those do not race with
    /// each other, but with plain accesses they do.
    pub fn touch(&mut self, thread: u32, offset: usize, bytes: usize, pc: u32, intent: Touch) -> Option<Conflict> {
        let mut conflict = None;
        let own = self.clock.now() << THREAD_BITS | thread | ATOMIC;
        for g in self.granules(offset, bytes) {
            let found = match self.judge_read(g, thread) {
                Some(Conflict::ReadAfterWrite { .. }) if self.writes[g] & ATOMIC != 0 => None,
                Some(Conflict::Unwritten) if intent == Touch::Write => None,
                found => found,
            };
            conflict = conflict.or(found);
            if intent != Touch::Read {
                if self.reads[g] as u32 >> THREAD_BITS >= self.clock.safe() {
                    conflict = conflict.or(self.judge_write_after_read(g, thread));
                }
                self.writes[g] = own;
                self.writers[g] = pc;
                self.reads[g] = 0;
            }
        }
        conflict
    }
}

/// What an access does that is meant to meet others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    Read,
    Write,
    Update,
}

const _: () = assert!(STAMP_BITS + THREAD_BITS == 32);

#[cfg(test)]
mod tests {
    use super::*;

    fn shadow() -> Shadow {
        let mut shadow = Shadow::new(64, 4);
        shadow.start_cta();
        shadow
    }

    #[test]
    fn a_barrier_orders_a_write_and_a_read() {
        let mut s = shadow();
        assert_eq!(s.read(0, 0, 4), Some(Conflict::Unwritten));
        assert_eq!(s.write(5, 4, 4, 9), None);
        assert_eq!(s.read(6, 4, 4), Some(Conflict::ReadAfterWrite { thread: 5, pc: 9 }));
        s.clock.synchronize_all();
        assert_eq!(s.read(6, 4, 4), None);
        assert_eq!(s.read(40, 4, 4), None);
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
        assert_eq!(s.read(0, 0, 4), Some(Conflict::Unwritten));
    }

    #[test]
    fn a_copy_is_in_flight_until_it_lands() {
        let mut s = shadow();
        assert_eq!(s.issue(3, 16, 16, 1), None);
        assert_eq!(s.read(3, 20, 4), Some(Conflict::InFlight { thread: 3, pc: 1 }));
        s.clock.synchronize_all();
        assert_eq!(
            s.read(4, 20, 4),
            Some(Conflict::InFlight { thread: 3, pc: 1 }),
            "a barrier does not wait for copies"
        );
        s.land(3, 16, 16);
        assert_eq!(s.read(3, 20, 4), None);
        assert_eq!(s.read(4, 20, 4), Some(Conflict::ReadAfterWrite { thread: 3, pc: 1 }));
        s.clock.synchronize_all();
        assert_eq!(s.read(4, 20, 4), None);
    }

    #[test]
    fn atomics_race_with_plain_accesses_only() {
        let mut s = shadow();
        s.write(0, 0, 4, 1);
        assert_eq!(s.touch(1, 0, 4, 2, Touch::Update), Some(Conflict::ReadAfterWrite { thread: 0, pc: 1 }));
        assert_eq!(s.touch(2, 0, 4, 2, Touch::Update), None);
        assert_eq!(s.read(3, 0, 4), Some(Conflict::ReadAfterWrite { thread: 2, pc: 2 }));
        s.clock.synchronize_all();
        assert_eq!(s.read(3, 0, 4), None);
    }

    #[test]
    fn a_lane_races_with_its_own_warp() {
        let mut s = shadow();
        s.write(0, 0, 4, 0);
        assert!(s.read(1, 0, 4).is_some());
        s.clock.synchronize_warp(0, u32::MAX, u32::MAX);
        assert_eq!(s.read(1, 0, 4), None);
        assert!(s.write(0, 0, 4, 0).is_some(), "lane 1 may not have read yet");
    }
}
