//! Loads and stores: addresses, checks, then bytes.
//!
//! Every byte of simulated memory is read and written here (and in `atomic`) by relaxed atomic operations on pointers that
//! `resolve` has checked against the allocation, the shared memory or the frame they point into.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::access_shared::NewValues;
use super::env::{Env, Fault, Outcome, lanes};
use super::registers::{LANES, Mask, Registers};
use super::space::{WINDOW, space_of, window};
use super::view::{Intent, Pointers};
use crate::check::finding::Kind;
use crate::count::sectors;
use crate::decode::inst::{Access, Address, Base};
use crate::ptx::ast::Space;

/// An access about to be made: who, where, how.
pub struct Request {
    pub space: Space,
    pub addresses: [u64; LANES],
    pub mask: Mask,
    /// Bytes per lane.
    pub bytes: usize,
    pub intent: Intent,
    pub strong: bool,
    pub warp: usize,
    pub pc: usize,
}

/// Reads `size` ≤ 8 bytes.
///
/// # Safety
/// `pointer` is valid for `size` bytes, aligned to `size`, and only accessed atomically by other threads.
#[inline(always)]
pub unsafe fn load(pointer: *mut u8, size: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            1 => AtomicU8::from_ptr(pointer).load(Relaxed) as u64,
            2 => AtomicU16::from_ptr(pointer.cast()).load(Relaxed) as u64,
            4 => AtomicU32::from_ptr(pointer.cast()).load(Relaxed) as u64,
            _ => AtomicU64::from_ptr(pointer.cast()).load(Relaxed),
        }
    }
}

/// Writes `size` ≤ 8 bytes.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub unsafe fn store(pointer: *mut u8, size: usize, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            1 => AtomicU8::from_ptr(pointer).store(value as u8, Relaxed),
            2 => AtomicU16::from_ptr(pointer.cast()).store(value as u16, Relaxed),
            4 => AtomicU32::from_ptr(pointer.cast()).store(value as u32, Relaxed),
            _ => AtomicU64::from_ptr(pointer.cast()).store(value, Relaxed),
        }
    }
}

/// Each lane's address.
#[inline(always)]
pub fn addresses(registers: &Registers, address: &Address) -> [u64; LANES] {
    let offset = address.offset as u64;
    match address.base {
        Base::None => [offset; LANES],
        Base::Narrow(reg) => registers.get::<u32>(reg).map(|base| base.wrapping_add(offset as u32) as u64),
        Base::Wide(reg) => registers.get::<u64>(reg).map(|base| base.wrapping_add(offset)),
    }
}

pub fn load_access(
    env: &mut Env,
    registers: &mut Registers,
    warp: usize,
    pc: usize,
    mask: Mask,
    access: &Access,
) -> Outcome<()> {
    let (size, count) = (access.size as usize, access.count as usize);
    let request = Request {
        space: access.address.space,
        addresses: addresses(registers, &access.address),
        mask,
        bytes: size * count,
        intent: Intent::Read,
        strong: access.strong,
        warp,
        pc,
    };
    for_each_space(env, request, |env, request| {
        let pointers = env.resolve(request)?;
        for (i, element) in access.elements[..count].iter().enumerate() {
            let at = |lane: usize| pointers[lane].wrapping_add(i * size);
            let extend = |value: u64| if access.signed { sign_extend(value, size) } else { value };
            let mask = request.mask;
            // SAFETY: `resolve` checked `size · count` bytes at each pointer and their alignment.
            unsafe {
                match (element.width, size) {
                    (0, _) => {}
                    (4, 4) => registers.put(element.reg, mask, &std::array::from_fn(|l| load(at(l), 4) as u32)),
                    (8, 8) => registers.put(element.reg, mask, &std::array::from_fn(|l| load(at(l), 8))),
                    (2, 2) => registers.put(element.reg, mask, &std::array::from_fn(|l| load(at(l), 2) as u16)),
                    (2, _) => {
                        registers.put(element.reg, mask, &std::array::from_fn(|l| extend(load(at(l), size)) as u16))
                    }
                    (4, _) => {
                        registers.put(element.reg, mask, &std::array::from_fn(|l| extend(load(at(l), size)) as u32))
                    }
                    _ => registers.put(element.reg, mask, &std::array::from_fn(|l| extend(load(at(l), size)))),
                }
            }
        }
        Ok(())
    })
}

pub fn store_access(
    env: &mut Env,
    registers: &Registers,
    warp: usize,
    pc: usize,
    mask: Mask,
    access: &Access,
) -> Outcome<()> {
    let (size, count) = (access.size as usize, access.count as usize);
    let request = Request {
        space: access.address.space,
        addresses: addresses(registers, &access.address),
        mask,
        bytes: size * count,
        intent: Intent::Write,
        strong: access.strong,
        warp,
        pc,
    };
    let mut values = [[0u64; LANES]; 4];
    for (values, element) in values.iter_mut().zip(&access.elements[..count]) {
        *values = match element.width {
            2 => registers.get::<u16>(element.reg).map(u64::from),
            4 => registers.get::<u32>(element.reg).map(u64::from),
            _ => *registers.get::<u64>(element.reg),
        };
    }
    for_each_space(env, request, |env, request| {
        let pointers = env.resolve_store(request, size, &values[..count])?;
        for (i, values) in values[..count].iter().enumerate() {
            for lane in lanes(request.mask) {
                // SAFETY: as for loads.
                unsafe { store(pointers[lane].wrapping_add(i * size), size, values[lane]) };
            }
        }
        Ok(())
    })
}

fn sign_extend(value: u64, size: usize) -> u64 {
    let shift = 64 - 8 * size as u32;
    ((value << shift) as i64 >> shift) as u64
}

/// Runs an access; a generic one in parts, one for each space its addresses lie in.
pub fn for_each_space(
    env: &mut Env,
    request: Request,
    mut run: impl FnMut(&mut Env, &Request) -> Outcome<()>,
) -> Outcome<()> {
    if request.space != Space::Generic {
        return run(env, &request);
    }
    for space in [Space::Global, Space::Shared, Space::Local, Space::Param] {
        let mask =
            lanes(request.mask).filter(|l| space_of(request.addresses[*l]) == space).fold(0, |mask, l| mask | 1 << l);
        if mask != 0 {
            let addresses = request.addresses.map(|a| a.wrapping_sub(window(space)));
            run(env, &Request { space, addresses, mask, ..request })?;
        }
    }
    Ok(())
}

impl Env<'_> {
    /// Checks an access, counts it, and gives each lane's host pointer.
    pub fn resolve(&mut self, request: &Request) -> Outcome<[*mut u8; LANES]> {
        self.resolve_with(request, None)
    }

    fn resolve_store(&mut self, request: &Request, size: usize, values: &[[u64; LANES]]) -> Outcome<[*mut u8; LANES]> {
        self.resolve_with(request, Some(NewValues { size, values }))
    }

    fn resolve_with(&mut self, request: &Request, values: Option<NewValues>) -> Outcome<[*mut u8; LANES]> {
        self.check_alignment(request)?;
        match request.space {
            Space::Shared => self.resolve_shared(request, values),
            Space::Local => self.resolve_local(request),
            Space::Param => self.resolve_parameter(request),
            Space::Global | Space::Const | Space::Generic => self.resolve_global(request, values),
        }
    }

    pub fn check_alignment(&mut self, request: &Request) -> Outcome<()> {
        let low = request.bytes as u64 - 1;
        let mut bits = 0;
        for lane in 0..LANES {
            bits |= if request.mask >> lane & 1 != 0 { request.addresses[lane] } else { 0 };
        }
        if bits & low == 0 {
            return Ok(());
        }
        let lane = lanes(request.mask).find(|l| request.addresses[*l] & low != 0).unwrap_or(0);
        let (address, bytes) = (request.addresses[lane], request.bytes);
        self.note(Kind::Misaligned, request.pc, request.warp * LANES + lane, Some(address), 1, || {
            format!("{bytes} bytes at {address:#x}, which is no multiple of {bytes}")
        });
        Err(Fault::MisalignedAddress)
    }

    fn resolve_global(&mut self, request: &Request, values: Option<NewValues>) -> Outcome<[*mut u8; LANES]> {
        let Request { addresses, mask, bytes, intent, strong, .. } = request;
        match self.global.resolve(addresses, *mask, *bytes, *intent, *strong) {
            Ok(Pointers { pointers, unwritten, raced, other_block }) => {
                if unwritten != 0 {
                    self.note_unwritten(request, unwritten, "global");
                }
                if raced != 0 {
                    let is_same = |lane: &usize| values.as_ref().is_some_and(|new| new.are_in_memory(&pointers, *lane));
                    let raced = lanes(raced).filter(|lane| !is_same(lane)).fold(0, |m, lane| m | 1 << lane);
                    self.note_global_race(request, raced, other_block);
                }
                self.count_traffic(request);
                Ok(pointers)
            }
            Err((lane, bad)) => {
                let kind = if bad.is_freed { Kind::UseAfterFree } else { Kind::OutOfBounds };
                let verb = if *intent == Intent::Read { "reads" } else { "writes" };
                let thread = request.warp * LANES + lane;
                self.note(kind, request.pc, thread, Some(addresses[lane]), 1, || format!("{verb} {}", bad.message));
                Err(Fault::IllegalAddress)
            }
        }
    }

    fn note_unwritten(&mut self, request: &Request, unwritten: Mask, space: &str) {
        let lane = unwritten.trailing_zeros() as usize;
        let (address, bytes) = (request.addresses[lane], request.bytes);
        self.note(
            Kind::Uninitialized,
            request.pc,
            request.warp * LANES + lane,
            Some(address),
            unwritten.count_ones(),
            || format!("reads {bytes} bytes of {space} memory at {address:#x}, not all of which were written"),
        );
    }

    fn note_global_race(&mut self, request: &Request, raced: Mask, other: u32) {
        if raced == 0 {
            return;
        }
        let lane = raced.trailing_zeros() as usize;
        let (address, bytes) = (request.addresses[lane], request.bytes);
        let verb = if request.intent == Intent::Read { "reads" } else { "overwrites" };
        let [x, y, z] = self.launch.block_index(other as u64);
        self.note(Kind::GlobalRace, request.pc, request.warp * LANES + lane, Some(address), raced.count_ones(), || {
            format!("{verb} {bytes} bytes at {address:#x} that block ({x}, {y}, {z}) wrote in the same launch")
        });
    }

    fn count_traffic(&mut self, request: &Request) {
        let traffic = if request.mask == Mask::MAX {
            sectors::traffic(&request.addresses, LANES, request.bytes)
        } else {
            let mut active = [0; LANES];
            lanes(request.mask).zip(&mut active).for_each(|(lane, slot)| *slot = request.addresses[lane]);
            sectors::traffic(&active, request.mask.count_ones() as usize, request.bytes)
        };
        let count = &mut self.counters.insts[request.pc];
        count.sectors += traffic.sectors as u64;
        count.minimum_sectors += traffic.minimum as u64;
    }

    /// The bounds of a window (shared, local, parameters).
    pub fn check_bounds(&mut self, request: &Request, len: usize, what: &str) -> Outcome<()> {
        let room = (len as u64).checked_sub(request.bytes as u64);
        let Some(lane) = lanes(request.mask).find(|l| room.is_none_or(|room| request.addresses[*l] > room)) else {
            return Ok(());
        };
        let (address, bytes) = (request.addresses[lane], request.bytes);
        let verb = if request.intent == Intent::Read { "reads" } else { "writes" };
        self.note(Kind::OutOfBounds, request.pc, request.warp * LANES + lane, Some(address), 1, || {
            let generic = if address >= WINDOW { " (a generic address?)" } else { "" };
            format!("{verb} {bytes} bytes at {address:#x} of {what} memory, of which there are {len} bytes{generic}")
        });
        Err(Fault::IllegalAddress)
    }

    fn resolve_local(&mut self, request: &Request) -> Outcome<[*mut u8; LANES]> {
        self.check_bounds(request, self.local.len(), "local")?;
        let first = request.mask.trailing_zeros() as usize;
        let thread = |lane: usize| request.warp * LANES + lane;
        let any = self.local.pointer(thread(first), request.addresses[first] as usize);
        let (mut pointers, mut unwritten) = ([any; LANES], 0);
        for lane in lanes(request.mask) {
            let offset = request.addresses[lane] as usize;
            pointers[lane] = self.local.pointer(thread(lane), offset);
            if request.intent == Intent::Read {
                unwritten |= (!self.local.has(thread(lane), offset, request.bytes) as Mask) << lane;
            } else {
                self.local.note(thread(lane), offset, request.bytes);
            }
        }
        if unwritten != 0 {
            self.note_unwritten(request, unwritten, "local");
        }
        Ok(pointers)
    }

    fn resolve_parameter(&mut self, request: &Request) -> Outcome<[*mut u8; LANES]> {
        self.check_bounds(request, self.launch.parameters.len(), "parameter")?;
        // Parameters are only read: the pointer is never written through.
        if request.intent != Intent::Read {
            self.note(Kind::OutOfBounds, request.pc, request.warp * LANES, None, 1, || "writes to a parameter".into());
            return Err(Fault::IllegalAddress);
        }
        let first = request.mask.trailing_zeros() as usize;
        let base = self.launch.parameters.pointer();
        Ok(std::array::from_fn(|lane| {
            let lane = if request.mask >> lane & 1 != 0 { lane } else { first };
            base.wrapping_add(request.addresses[lane] as usize)
        }))
    }
}
