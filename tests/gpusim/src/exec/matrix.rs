//! `ldmatrix`: 8×8 matrices of 16-bit elements, from rows in shared memory to the fragments that `mma` takes.

use super::access::{Request, addresses};
use super::env::{Env, Outcome, lanes};
use super::registers::{LANES, Mask, Reg, Registers};
use super::space::{space_of, window};
use super::view::Intent;
use crate::decode::inst::Address;
use crate::ptx::ast::Space;

/// Lanes 8·m … 8·m + 7 hold the row addresses of matrix m. Lane l gets elements 2·(l mod 4) and the next of row l/4 (transposed:
/// of column l/4).
pub fn load(
    env: &mut Env,
    registers: &mut Registers,
    warp: usize,
    pc: usize,
    address: &Address,
    transposed: bool,
    d: &[Reg],
) -> Outcome<()> {
    let mut rows = addresses(registers, address);
    if address.space == Space::Generic && space_of(rows[0]) == Space::Shared {
        rows = rows.map(|a| a.wrapping_sub(window(Space::Shared)));
    }
    env.counters.insts[pc].shared_requests += 1;
    for (m, d) in d.iter().enumerate() {
        let mask: Mask = 0xff << (8 * m);
        let intent = Intent::Read;
        env.check_matrix_rows(&Request {
            space: Space::Shared,
            addresses: rows,
            mask,
            bytes: 16,
            intent,
            strong: false,
            warp,
            pc,
        })?;
        let mut matrix = [[0u16; 8]; 8];
        for (row, lane) in matrix.iter_mut().zip(lanes(mask)) {
            let bytes = env.shared.bytes(rows[lane] as usize, 16);
            *row = std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
        }
        let fragment: [u32; LANES] = std::array::from_fn(|l| {
            let (row, column) = (l / 4, l % 4 * 2);
            let at = |i: usize| if transposed { matrix[column + i][row] } else { matrix[row][column + i] };
            at(0) as u32 | (at(1) as u32) << 16
        });
        registers.put(*d, Mask::MAX, &fragment);
    }
    Ok(())
}
