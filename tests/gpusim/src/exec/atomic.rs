//! `atom` and `red`: read, change, write back, in one step.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::access::{Request, addresses, for_each_space};
use super::env::{Env, Outcome, lanes};
use super::registers::{LANES, Mask, Registers};
use super::view::Intent;
use crate::alu::float::canonical;
use crate::alu::half::{Bf16, F16, Half};
use crate::decode::inst::{Atomic, AtomicOp, AtomicType};

pub fn run(
    env: &mut Env,
    registers: &mut Registers,
    warp: usize,
    pc: usize,
    mask: Mask,
    atomic: &Atomic,
) -> Outcome<()> {
    let size = atomic.ty.size();
    let request = Request {
        space: atomic.address.space,
        addresses: addresses(registers, &atomic.address),
        mask,
        bytes: size,
        intent: Intent::Update,
        strong: true,
        warp,
        pc,
    };
    let operand = |reg| match size {
        2 => registers.get::<u16>(reg).map(u64::from),
        4 => registers.get::<u32>(reg).map(u64::from),
        _ => *registers.get::<u64>(reg),
    };
    let (b, c) = (operand(atomic.b), operand(atomic.c));
    let mut old = [0u64; LANES];
    for_each_space(env, request, |env, request| {
        let pointers = env.resolve(request)?;
        for lane in lanes(request.mask) {
            // SAFETY: `resolve` checked the pointer and its alignment.
            old[lane] = unsafe { update(pointers[lane], size, |value| apply(atomic, value, b[lane], c[lane])) };
        }
        Ok(())
    })?;
    if let Some(d) = atomic.d {
        match size {
            2 => registers.put(d, mask, &old.map(|x| x as u16)),
            4 => registers.put(d, mask, &old.map(|x| x as u32)),
            _ => registers.put(d, mask, &old),
        }
    }
    Ok(())
}

/// Replaces a value by a function of it, atomically; gives the value before.
///
/// # Safety
/// As for [`super::access::load`].
unsafe fn update(pointer: *mut u8, size: usize, change: impl Fn(u64) -> u64) -> u64 {
    // SAFETY: the caller's promise.
    let result = unsafe {
        match size {
            2 => AtomicU16::from_ptr(pointer.cast())
                .fetch_update(Relaxed, Relaxed, |old| Some(change(old as u64) as u16))
                .map(u64::from)
                .map_err(u64::from),
            4 => AtomicU32::from_ptr(pointer.cast())
                .fetch_update(Relaxed, Relaxed, |old| Some(change(old as u64) as u32))
                .map(u64::from)
                .map_err(u64::from),
            _ => AtomicU64::from_ptr(pointer.cast()).fetch_update(Relaxed, Relaxed, |old| Some(change(old))),
        }
    };
    let (Ok(old) | Err(old)) = result;
    old
}

fn apply(atomic: &Atomic, old: u64, b: u64, c: u64) -> u64 {
    let signed = |x: u64| if atomic.ty == AtomicType::S32 { x as u32 as i32 as i64 } else { x as i64 };
    let is_signed = matches!(atomic.ty, AtomicType::S32 | AtomicType::S64);
    match atomic.op {
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Exchange => b,
        AtomicOp::CompareSwap => {
            if old == b {
                c
            } else {
                old
            }
        }
        AtomicOp::Increment => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Decrement => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        AtomicOp::Min if is_signed => signed(old).min(signed(b)) as u64,
        AtomicOp::Max if is_signed => signed(old).max(signed(b)) as u64,
        AtomicOp::Min => old.min(b),
        AtomicOp::Max => old.max(b),
        AtomicOp::Add => add(atomic.ty, old, b),
    }
}

fn add(ty: AtomicType, a: u64, b: u64) -> u64 {
    let half = |x: u64, i: u32| (x >> (16 * i)) as u16;
    let f16 = |i| F16::from_f32(F16::to_f32(half(a, i)) + F16::to_f32(half(b, i))) as u64;
    let bf16 = |i| Bf16::from_f32(Bf16::to_f32(half(a, i)) + Bf16::to_f32(half(b, i))) as u64;
    match ty {
        AtomicType::F32 => canonical(f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits() as u64,
        AtomicType::F64 => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
        AtomicType::F16 => f16(0),
        AtomicType::Bf16 => bf16(0),
        AtomicType::F16x2 => f16(0) | f16(1) << 16,
        AtomicType::Bf16x2 => bf16(0) | bf16(1) << 16,
        _ => a.wrapping_add(b),
    }
}
