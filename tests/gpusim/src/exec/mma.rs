//! `mma.sync`: D = A·B + C of 16×8×k on a warp. Fragments are laid out as in the PTX ISA ("Matrix Fragments for mma.m16n8k…"):
//! with g = lane / 4 and t = lane mod 4, a lane holds rows g and g + 8 of A, column g of B, and columns 2t, 2t + 1 of C and D.
//!
//! Products are exact; their sum with C is taken in f64 and rounded once to the accumulator's type. Hardware adds in another,
//! undocumented order and cuts bits off, so results agree to the accumulator's precision and not to the bit.

use super::registers::{LANES, Mask, Reg, Registers};
use crate::alu::half::{Bf16, F16, Half};
use crate::decode::inst::{Mma, MmaKind};

/// Rows of A and D, columns of B and D.
const M: usize = 16;
const N: usize = 8;

/// Most factors per dot product.
const MAX_K: usize = 32;

pub fn run(registers: &mut Registers, mma: &Mma) {
    if let MmaKind::Int8 { k, a_signed, b_signed } = mma.kind {
        return run_int8(registers, mma, k, a_signed, b_signed);
    }
    let k = mma.kind.k();
    let mut a = [[0f64; MAX_K]; M];
    let mut b = [[0f64; N]; MAX_K];
    unpack_a(registers, mma, &mut a);
    unpack_b(registers, mma, &mut b);
    let is_half = matches!(mma.kind, MmaKind::F16 { half_accumulator: true, .. });
    let mut d = if is_half { read_half(registers, &mma.c) } else { read_f32(registers, &mma.c) };
    for (row, a) in d.iter_mut().zip(&a) {
        for (factor, b) in a[..k].iter().zip(&b) {
            for n in 0..N {
                row[n] += factor * b[n];
            }
        }
    }
    if is_half { write_half(registers, &mma.d, &d) } else { write_f32(registers, &mma.d, &d) }
}

/// The value of half `i` of a 32-bit register of factors.
fn decode16(kind: MmaKind, word: u32, i: usize) -> f64 {
    let bits = (word >> (16 * i)) as u16;
    match kind {
        MmaKind::Bf16 { .. } => Bf16::to_f32(bits) as f64,
        _ => F16::to_f32(bits) as f64,
    }
}

/// tf32 is f32 of which the last 13 bits are not looked at.
fn decode_tf32(word: u32) -> f64 {
    f32::from_bits(word & 0xffff_e000) as f64
}

/// Registers of A by rows g, g + 8, then by blocks of columns.
fn unpack_a(registers: &Registers, mma: &Mma, a: &mut [[f64; MAX_K]; M]) {
    let is_tf32 = matches!(mma.kind, MmaKind::Tf32 { .. });
    // Columns that the two row halves of one block of registers cover.
    let block = if is_tf32 { 4 } else { 8 };
    for r in 0..2 * (mma.kind.k() / block) {
        let words = registers.get::<u32>(mma.a[r]);
        for lane in 0..LANES {
            let (row, t) = (lane / 4 + 8 * (r % 2), lane % 4);
            let first = block * (r / 2);
            if is_tf32 {
                a[row][first + t] = decode_tf32(words[lane]);
            } else {
                for i in 0..2 {
                    a[row][first + 2 * t + i] = decode16(mma.kind, words[lane], i);
                }
            }
        }
    }
}

fn unpack_b(registers: &Registers, mma: &Mma, b: &mut [[f64; N]; MAX_K]) {
    let is_tf32 = matches!(mma.kind, MmaKind::Tf32 { .. });
    let block = if is_tf32 { 4 } else { 8 };
    for r in 0..mma.kind.k() / block {
        let words = registers.get::<u32>(mma.b[r]);
        for lane in 0..LANES {
            let (column, t) = (lane / 4, lane % 4);
            if is_tf32 {
                b[block * r + t][column] = decode_tf32(words[lane]);
            } else {
                for i in 0..2 {
                    b[block * r + 2 * t + i][column] = decode16(mma.kind, words[lane], i);
                }
            }
        }
    }
}

/// Row and column of accumulator `r` of a lane.
fn position(lane: usize, r: usize) -> (usize, usize) {
    (lane / 4 + 8 * (r / 2), lane % 4 * 2 + r % 2)
}

fn read_f32(registers: &Registers, c: &[Reg; 4]) -> [[f64; N]; M] {
    let mut matrix = [[0.0; N]; M];
    for r in 0..4 {
        let values = registers.get::<f32>(c[r]);
        for lane in 0..LANES {
            let (row, column) = position(lane, r);
            matrix[row][column] = values[lane] as f64;
        }
    }
    matrix
}

fn write_f32(registers: &mut Registers, d: &[Reg; 4], matrix: &[[f64; N]; M]) {
    for r in 0..4 {
        let values: [f32; LANES] = std::array::from_fn(|lane| {
            let (row, column) = position(lane, r);
            crate::alu::float::canonical(matrix[row][column] as f32)
        });
        registers.put(d[r], Mask::MAX, &values);
    }
}

/// f16 accumulators: register r holds rows g + 8·r, columns 2t and 2t + 1.
fn read_half(registers: &Registers, c: &[Reg; 4]) -> [[f64; N]; M] {
    let mut matrix = [[0.0; N]; M];
    for r in 0..2 {
        let words = registers.get::<u32>(c[r]);
        for lane in 0..LANES {
            for i in 0..2 {
                matrix[lane / 4 + 8 * r][lane % 4 * 2 + i] = F16::to_f32((words[lane] >> (16 * i)) as u16) as f64;
            }
        }
    }
    matrix
}

fn write_half(registers: &mut Registers, d: &[Reg; 4], matrix: &[[f64; N]; M]) {
    for r in 0..2 {
        let words: [u32; LANES] = std::array::from_fn(|lane| {
            let at = |i: usize| F16::from_f32(matrix[lane / 4 + 8 * r][lane % 4 * 2 + i] as f32) as u32;
            at(0) | at(1) << 16
        });
        registers.put(d[r], Mask::MAX, &words);
    }
}

fn run_int8(registers: &mut Registers, mma: &Mma, k: usize, a_signed: bool, b_signed: bool) {
    let decode = |word: u32, i: usize, signed: bool| {
        let byte = word.to_le_bytes()[i];
        if signed { byte as i8 as i32 } else { byte as i32 }
    };
    let mut a = [[0i32; MAX_K]; M];
    let mut b = [[0i32; N]; MAX_K];
    for r in 0..k / 8 {
        let words = registers.get::<u32>(mma.a[r]);
        for lane in 0..LANES {
            for i in 0..4 {
                a[lane / 4 + 8 * (r % 2)][16 * (r / 2) + lane % 4 * 4 + i] = decode(words[lane], i, a_signed);
            }
        }
    }
    for r in 0..k / 16 {
        let words = registers.get::<u32>(mma.b[r]);
        for lane in 0..LANES {
            for i in 0..4 {
                b[16 * r + lane % 4 * 4 + i][lane / 4] = decode(words[lane], i, b_signed);
            }
        }
    }
    for r in 0..4 {
        let c = *registers.get::<i32>(mma.c[r]);
        let values: [i32; LANES] = std::array::from_fn(|lane| {
            let (row, column) = position(lane, r);
            (0..k).fold(c[lane], |sum, i| sum.wrapping_add(a[row][i].wrapping_mul(b[i][column])))
        });
        // D may be C: each register is read before it is written, and no other depends on it.
        registers.put(mma.d[r], Mask::MAX, &values);
    }
}
