//! Registers to columns. PTX names a new register for every value, and most values live within one basic block: those share
//! columns, so that a warp's register file stays in the cache.
//!
//! Sharing is safe where lanes diverge: a lane's values lie in the lane's own words of a column, and only its own path writes them.

use std::collections::HashMap;

use super::liveness::{Liveness, for_registers};
use crate::exec::registers::Reg;
use crate::ptx::ast::{Function, Instruction};

/// Where a register occurs: its block, and its last instruction there.
#[derive(Clone, Copy)]
struct Extent {
    block: usize,
    last: usize,
    /// Whether it occurs in other blocks too.
    is_split: bool,
}

/// The column of each of the function's registers, and how many columns they take.
pub fn assign(function: &Function, liveness: &Liveness) -> (Vec<Reg>, u32) {
    let extents = extents(function, liveness);
    let mut next = 0;
    let mut columns = vec![Reg(0); function.registers.len()];
    let width = |id: usize| width(function.registers[id].ty.size());
    let is_local = |id: usize| extents[id].is_some_and(|extent| !extent.is_split) && !liveness.crosses_blocks(id);
    for id in (0..columns.len()).filter(|id| !is_local(*id)) {
        columns[id] = Reg(next);
        next += width(id);
    }
    // Free columns by their number of adjacent ones; registers whose last instruction is reached give theirs back.
    let mut free: HashMap<u32, Vec<Reg>> = HashMap::new();
    let mut held = vec![false; columns.len()];
    for (at, instruction) in function.instructions.iter().enumerate() {
        let mut ending = Vec::new();
        for id in registers_of(instruction).into_iter().filter(|id| is_local(*id)) {
            if !held[id] {
                columns[id] = free.get_mut(&width(id)).and_then(Vec::pop).unwrap_or_else(|| {
                    next += width(id);
                    Reg(next - width(id))
                });
                held[id] = true;
            }
            if extents[id].is_some_and(|extent| extent.last == at) && !ending.contains(&id) {
                ending.push(id);
            }
        }
        // Given back only now: no destination shares a column with a source of the same instruction.
        ending.into_iter().for_each(|id| free.entry(width(id)).or_default().push(columns[id]));
    }
    (columns, next)
}

fn extents(function: &Function, liveness: &Liveness) -> Vec<Option<Extent>> {
    let mut extents: Vec<Option<Extent>> = vec![None; function.registers.len()];
    let mut block = 0;
    for (at, instruction) in function.instructions.iter().enumerate() {
        while liveness.starts.get(block + 1).is_some_and(|start| *start <= at) {
            block += 1;
        }
        for id in registers_of(instruction) {
            let is_split = extents[id].is_some_and(|extent| extent.is_split || extent.block != block);
            extents[id] = Some(Extent { block, last: at, is_split });
        }
    }
    extents
}

fn registers_of(instruction: &Instruction) -> Vec<usize> {
    let mut registers: Vec<usize> = instruction.guard.iter().map(|(id, _)| *id).collect();
    instruction.operands.iter().for_each(|operand| for_registers(operand, &mut |id| registers.push(id)));
    registers
}

/// Columns that a register of `size` bytes takes.
pub fn width(size: usize) -> u32 {
    match size {
        0..=4 => 1,
        5..=8 => 2,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::parse;

    #[test]
    fn values_of_one_block_share_columns() {
        let text = ".version 9.0\n.target sm_80\n.address_size 64\n.entry f() {\n.reg .b32 %r<9>;\n.reg .b64 %w<3>;\n.reg .pred %p;\n\
            mov.b32 %r0, 0;\n$L: add.u32 %r1, %r0, 1;\nadd.u32 %r2, %r1, 1;\nadd.u32 %r3, %r2, 1;\nmov.b32 %r0, %r3;\n\
            cvt.u64.u32 %w0, %r0;\nadd.u64 %w1, %w0, 1;\nsetp.lt.u64 %p, %w1, 9;\n@%p bra $L;\nret;\n}";
        let module = parse(text).unwrap();
        let function = module.function("f").unwrap();
        let (columns, count) = assign(function, &Liveness::new(function));
        let of = |name: &str| columns[function.registers.iter().position(|r| r.name == name).unwrap()];
        assert_ne!(of("%r1"), of("%r2"), "a destination and a source of one instruction");
        assert_eq!(of("%r1"), of("%r3"));
        assert!([of("%r1"), of("%r2")].iter().all(|reg| *reg != of("%r0")), "%r0 lives on");
        // %r0; two for r1..r3; four for w0 and w1; one for %p, which may take a free one.
        assert!(count <= 8, "{count}");
    }
}
