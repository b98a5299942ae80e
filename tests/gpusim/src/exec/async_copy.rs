//! `cp.async`: copies from global to shared memory that land when they are waited for, and not before.
//!
//! The source is read when the copy is issued; its bytes reach shared memory at `wait_group`, at `wait_all`, or never. Until then
//! the shadow keeps the destination as in flight: whoever touches it is reported.

use super::access::{Request, addresses};
use super::env::{Env, Outcome, lanes};
use super::registers::{LANES, Mask, Reg, Registers};
use super::view::Intent;
use crate::check::finding::Kind;
use crate::decode::inst::{Address, Predicate};
use crate::ptx::ast::Space;

/// One `cp.async` of a warp.
struct InFlight {
    /// Lanes whose bytes have not landed.
    lanes: Mask,
    size: usize,
    offsets: [u32; LANES],
    /// The lane's group: how many it had committed when it issued this.
    groups: [u32; LANES],
    bytes: [[u8; 16]; LANES],
}

/// The copies a warp has in flight.
#[derive(Default)]
pub struct AsyncCopies {
    copies: Vec<InFlight>,
    /// Groups each lane has committed.
    committed: [u32; LANES],
}

impl AsyncCopies {
    pub fn start_cta(&mut self) {
        self.copies.clear();
        self.committed = [0; LANES];
    }

    pub fn commit(&mut self, mask: Mask) {
        for lane in lanes(mask) {
            self.committed[lane] += 1;
        }
    }

    /// Lands the copies of all but the last `groups` committed groups of each lane in `mask`; None: of all, committed or not.
    pub fn wait(&mut self, env: &mut Env, warp: usize, mask: Mask, groups: Option<u32>) {
        let committed = self.committed;
        for copy in &mut self.copies {
            for lane in lanes(mask & copy.lanes) {
                let has_landed = match groups {
                    None => true,
                    Some(groups) => copy.groups[lane] + groups < committed[lane],
                };
                if has_landed {
                    let offset = copy.offsets[lane] as usize;
                    env.shared.bytes_mut(offset, copy.size).copy_from_slice(&copy.bytes[lane][..copy.size]);
                    env.shared.shadow.land((warp * LANES + lane) as u32, offset, copy.size);
                    copy.lanes &= !(1 << lane);
                }
            }
        }
        self.copies.retain(|copy| copy.lanes != 0);
    }
}

/// The operands of a `cp.async`.
pub struct CopyOperands<'a> {
    pub to: &'a Address,
    pub from: &'a Address,
    pub size: usize,
    pub source_size: Option<Reg>,
    pub ignore: Option<Predicate>,
}

pub fn issue(
    env: &mut Env,
    registers: &Registers,
    copies: &mut AsyncCopies,
    warp: usize,
    pc: usize,
    mask: Mask,
    operands: &CopyOperands,
) -> Outcome<()> {
    let size = operands.size;
    let mut copy =
        InFlight { lanes: mask, size, offsets: [0; LANES], groups: copies.committed, bytes: [[0; 16]; LANES] };
    if let Some(reg) = operands.source_size {
        let wanted = registers.get::<u32>(reg);
        let beyond: Vec<usize> = lanes(mask).filter(|lane| wanted[*lane] as usize > size).collect();
        if let Some(&lane) = beyond.first() {
            env.note(Kind::OutOfBounds, pc, warp * LANES + lane, None, beyond.len() as u32, || {
                format!("copies {} bytes of a source to the {size} of a `cp.async`, which is undefined", wanted[lane])
            });
        }
    }
    // Lanes that read all their bytes, and lanes that read some or none (the rest is zero).
    let wanted = wanted_sizes(registers, operands);
    let read = lanes(mask).filter(|lane| wanted[*lane] > 0).fold(0, |m, lane| m | 1 << lane);
    let from = addresses(registers, operands.from);
    for bytes in [16, 8, 4, 2, 1] {
        // In practice all lanes want `size` bytes or none; odd counts are read in powers of two.
        let lanes_here = lanes(read).filter(|lane| wanted[*lane] == bytes).fold(0, |m, lane| m | 1 << lane);
        if lanes_here != 0 {
            read_source(env, &mut copy, from, lanes_here, bytes, warp, pc)?;
        }
    }
    for lane in lanes(read).filter(|lane| !wanted[*lane].is_power_of_two()) {
        for i in 0..wanted[lane] {
            let mut single = InFlight {
                lanes: 1 << lane,
                size: 1,
                offsets: [0; LANES],
                groups: [0; LANES],
                bytes: [[0; 16]; LANES],
            };
            read_source(env, &mut single, from.map(|a| a + i as u64), 1 << lane, 1, warp, pc)?;
            copy.bytes[lane][i] = single.bytes[lane][0];
        }
    }
    let to = addresses(registers, operands.to);
    let request = Request {
        space: Space::Shared,
        addresses: to,
        mask,
        bytes: size,
        intent: Intent::Write,
        strong: false,
        warp,
        pc,
    };
    env.check_shared_copy(&request)?;
    copy.offsets = to.map(|a| a as u32);
    copies.copies.push(copy);
    Ok(())
}

/// How many bytes each lane reads of the source.
fn wanted_sizes(registers: &Registers, operands: &CopyOperands) -> [usize; LANES] {
    let ignored = operands.ignore.map_or(0, |p| registers.predicate(p.reg) ^ if p.negated { Mask::MAX } else { 0 });
    std::array::from_fn(|lane| match operands.source_size {
        Some(reg) => (registers.get::<u32>(reg)[lane] as usize).min(operands.size),
        None if ignored >> lane & 1 != 0 => 0,
        None => operands.size,
    })
}

fn read_source(
    env: &mut Env,
    copy: &mut InFlight,
    from: [u64; LANES],
    mask: Mask,
    bytes: usize,
    warp: usize,
    pc: usize,
) -> Outcome<()> {
    let request =
        Request { space: Space::Global, addresses: from, mask, bytes, intent: Intent::Read, strong: false, warp, pc };
    let pointers = env.resolve(&request)?;
    let unit = bytes.min(8);
    for lane in lanes(mask) {
        for at in (0..bytes).step_by(unit) {
            // SAFETY: `resolve` checked the pointer and its alignment.
            let value = unsafe { super::access::load(pointers[lane].wrapping_add(at), unit) };
            copy.bytes[lane][at..at + unit].copy_from_slice(&value.to_le_bytes()[..unit]);
        }
    }
    Ok(())
}
