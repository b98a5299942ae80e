//! Accesses to shared memory: bounds, bank conflicts, and the shadow's verdicts in words.

use super::access::{Request, load};
use super::env::{Env, Outcome, lanes};
use super::registers::LANES;
use super::view::Intent;
use crate::check::finding::Kind;
use crate::check::shadow::{Conflict, Touch};
use crate::count::banks;

/// Bytes a store is about to write, to see whether they change anything.
pub struct NewValues<'a> {
    pub size: usize,
    pub values: &'a [[u64; LANES]],
}

impl NewValues<'_> {
    /// Whether `lane` writes what `thread` wrote before it: in the same instruction, or else what is in memory now.
    pub fn are_same(&self, request: &Request, pointers: &[*mut u8; LANES], lane: usize, thread: u32) -> bool {
        let mask = u64::MAX >> (64 - 8 * self.size);
        let other = thread as usize % LANES;
        let is_here = thread as usize / LANES == request.warp && request.mask >> other & 1 != 0 && other < lane;
        if is_here && request.addresses[other] == request.addresses[lane] {
            return self.values.iter().all(|values| values[lane] & mask == values[other] & mask);
        }
        self.are_in_memory(pointers, lane)
    }

    /// Whether memory holds already what `lane` writes.
    pub fn are_in_memory(&self, pointers: &[*mut u8; LANES], lane: usize) -> bool {
        let mask = u64::MAX >> (64 - 8 * self.size);
        // SAFETY: the pointers are of this store's lanes, checked and aligned.
        self.values.iter().enumerate().all(|(i, values)| unsafe {
            load(pointers[lane].wrapping_add(i * self.size), self.size) == values[lane] & mask
        })
    }
}

impl Env<'_> {
    /// Checks and counts an access; gives each lane's host pointer.
    pub fn resolve_shared(&mut self, request: &Request, values: Option<NewValues>) -> Outcome<[*mut u8; LANES]> {
        self.check_bounds(request, self.shared.len(), "shared")?;
        let offsets = request.addresses.map(|a| a as u32);
        let mut pointers = [std::ptr::null_mut(); LANES];
        let first = request.mask.trailing_zeros() as usize;
        for lane in 0..LANES {
            let lane_or_first = if request.mask >> lane & 1 != 0 { lane } else { first };
            pointers[lane] = self.shared.pointer(offsets[lane_or_first] as usize);
        }
        let count = &mut self.counters.insts[request.pc];
        count.shared_requests += 1;
        count.extra_wavefronts += banks::extra_wavefronts(&offsets, request.mask, request.bytes) as u64;
        if request.strong || request.intent == Intent::Update {
            self.touch_shared(request);
        } else if request.intent == Intent::Read {
            self.read_shared(request);
        } else {
            self.write_shared(request, |lane, other| {
                values.as_ref().is_some_and(|new| new.are_same(request, &pointers, lane, other))
            });
        }
        Ok(pointers)
    }

    fn read_shared(&mut self, request: &Request) {
        let mut lane = request.mask.trailing_zeros() as usize;
        while lane < LANES {
            // Neighbours that read the same bytes are looked at together.
            let offset = request.addresses[lane];
            let is_same = |l: usize| request.mask >> l & 1 != 0 && request.addresses[l] == offset;
            let last = (lane + 1..LANES).take_while(|l| is_same(*l)).last().unwrap_or(lane);
            let shadow = &mut self.shared.shadow;
            let found = shadow.read(request.warp as u32, lane as u32, last as u32, offset as usize, request.bytes);
            if let Some((lane, conflict)) = found {
                self.note_conflict(request, lane as usize, conflict);
            }
            let Some(rest) = request.mask.checked_shr(last as u32 + 1).filter(|rest| *rest != 0) else { break };
            lane = last + 1 + rest.trailing_zeros() as usize;
        }
    }

    /// `is_same(lane, thread)`: whether the lane writes what `thread` wrote.
    fn write_shared(&mut self, request: &Request, is_same: impl Fn(usize, u32) -> bool) {
        let thread = (request.warp * LANES) as u32;
        for lane in lanes(request.mask) {
            let (offset, pc) = (request.addresses[lane] as usize, request.pc as u32);
            let conflict = self.shared.shadow.write(thread + lane as u32, offset, request.bytes, pc);
            match conflict {
                None => {}
                Some(Conflict::WriteAfterWrite { thread, .. }) if is_same(lane, thread) => {}
                Some(conflict) => self.note_conflict(request, lane, conflict),
            }
        }
    }

    fn touch_shared(&mut self, request: &Request) {
        self.shared.shadow.make_room();
        self.shared.shadow.clock.meet(request.warp);
        let thread = (request.warp * LANES) as u32;
        let touch = match request.intent {
            Intent::Read => Touch::Read,
            Intent::Write => Touch::Write,
            Intent::Update => Touch::Update,
        };
        for lane in lanes(request.mask) {
            let offset = request.addresses[lane] as usize;
            let conflict =
                self.shared.shadow.touch(thread + lane as u32, offset, request.bytes, request.pc as u32, touch);
            if let Some(conflict) = conflict {
                self.note_conflict(request, lane, conflict);
            }
        }
    }

    /// Notes what the shadow found wrong with a lane's access.
    pub fn note_conflict(&mut self, request: &Request, lane: usize, conflict: Conflict) {
        let (address, bytes) = (request.addresses[lane], request.bytes);
        let by =
            |env: &Self, thread: u32, pc: u32| format!("{} at {}", env.name_thread(thread), env.name_inst(pc as usize));
        let what = format!("{bytes} bytes of shared memory at {address:#x}");
        let (kind, message) = match conflict {
            Conflict::Unwritten => {
                (Kind::Uninitialized, format!("reads {what}, not all of which were written in this block"))
            }
            Conflict::InFlight { thread, pc } => (
                Kind::AsyncInFlight,
                format!("touches {what} while a copy into it is in flight, issued by {}", by(self, thread, pc)),
            ),
            Conflict::ReadAfterWrite { thread, pc } => (
                Kind::SharedRace,
                format!("reads {what}, written without a barrier between by {}", by(self, thread, pc)),
            ),
            Conflict::WriteAfterWrite { thread, pc } => (
                Kind::SharedRace,
                format!("writes {what}, written with another value and no barrier between by {}", by(self, thread, pc)),
            ),
            Conflict::WriteAfterRead { thread, warp } => {
                let reader = match thread {
                    Some(thread) => self.name_thread(thread),
                    None => format!("threads of warp {warp}"),
                };
                (Kind::SharedRace, format!("writes {what}, read without a barrier between by {reader}"))
            }
        };
        self.note(kind, request.pc, request.warp * LANES + lane, Some(address), 1, || message);
    }

    /// Checks the destination of a `cp.async` and marks it in flight.
    pub fn check_shared_copy(&mut self, request: &Request) -> Outcome<()> {
        self.check_alignment(request)?;
        self.check_bounds(request, self.shared.len(), "shared")?;
        let thread = (request.warp * LANES) as u32;
        for lane in lanes(request.mask) {
            let (offset, pc) = (request.addresses[lane] as usize, request.pc as u32);
            if let Some(conflict) = self.shared.shadow.issue(thread + lane as u32, offset, request.bytes, pc) {
                self.note_conflict(request, lane, conflict);
            }
        }
        Ok(())
    }

    /// Checks and counts the eight rows of 16 bytes that one matrix of `ldmatrix` reads. The lanes in `request.mask` give the rows'
    /// addresses.
    pub fn check_matrix_rows(&mut self, request: &Request) -> Outcome<()> {
        self.check_alignment(request)?;
        self.check_bounds(request, self.shared.len(), "shared")?;
        self.read_shared(request);
        let words = lanes(request.mask).flat_map(|lane| {
            let first = request.addresses[lane] as u32 / 4;
            first..first + 4
        });
        let extra = banks::busiest_bank(words).saturating_sub(1);
        let count = &mut self.counters.insts[request.pc];
        count.extra_wavefronts += extra as u64;
        Ok(())
    }
}
