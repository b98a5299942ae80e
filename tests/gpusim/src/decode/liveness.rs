//! Which registers are live where blocks begin: a backward data-flow analysis.

use super::control::branch_labels;
use crate::ptx::ast::{Function, Instruction, Operand};

/// Instructions whose first operand is read, not written, though it is no address.
const NO_DESTINATION: [&str; 7] = ["bra", "brx", "bar", "barrier", "call", "nanosleep", "setmaxnreg"];

/// A function's basic blocks and the registers live at their starts.
pub struct Liveness {
    /// First instruction of each block.
    pub starts: Vec<usize>,
    /// Bit sets of register ids.
    live: Vec<Vec<u64>>,
}

impl Liveness {
    pub fn new(function: &Function) -> Self {
        let count = function.instructions.len();
        let words = function.registers.len().div_ceil(64);
        let starts = block_starts(function);
        let block_of = |at: usize| starts.partition_point(|start| *start <= at) - 1;
        let mut live = vec![vec![0u64; words]; starts.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..starts.len()).rev() {
                let range = starts[block]..starts.get(block + 1).copied().unwrap_or(count);
                let mut set = vec![0u64; words];
                for successor in successors(function, range.end - 1).into_iter().filter(|at| *at < count) {
                    set.iter_mut().zip(&live[block_of(successor)]).for_each(|(set, live)| *set |= live);
                }
                for instruction in function.instructions[range].iter().rev() {
                    step_back(instruction, &mut set);
                }
                changed |= set != live[block];
                live[block] = set;
            }
        }
        Liveness { starts, live }
    }

    /// Registers that some path reads before it writes them.
    pub fn at_entry(&self) -> impl Iterator<Item = usize> {
        let entry = self.live.first().map_or(&[][..], Vec::as_slice);
        (0..64 * entry.len()).filter(|id| entry[id / 64] >> (id % 64) & 1 != 0)
    }

    /// Whether a register carries a value into any block.
    pub fn crosses_blocks(&self, id: usize) -> bool {
        self.live.iter().any(|set| set[id / 64] >> (id % 64) & 1 != 0)
    }
}

/// First instructions of basic blocks: the function's, those after branches, and those at labels.
fn block_starts(function: &Function) -> Vec<usize> {
    let count = function.instructions.len();
    let after_branches = function.instructions.iter().enumerate().filter(|(_, i)| ends_block(i)).map(|(at, _)| at + 1);
    let labels = function.labels.iter().map(|(_, at)| *at);
    let mut starts: Vec<usize> =
        std::iter::once(0).chain(after_branches).chain(labels).filter(|at| *at < count).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

fn ends_block(instruction: &Instruction) -> bool {
    matches!(instruction.opcode[0].as_str(), "bra" | "brx" | "ret" | "exit" | "trap")
}

/// Instructions that may come after the one at `at`.
fn successors(function: &Function, at: usize) -> Vec<usize> {
    let instruction = &function.instructions[at];
    let mut next: Vec<usize> = branch_labels(function, instruction).map(|label| function.labels[label].1).collect();
    if instruction.guard.is_some() || !ends_block(instruction) {
        next.push(at + 1);
    }
    next
}

/// From the registers live after an instruction to those live before it.
fn step_back(instruction: &Instruction, live: &mut [u64]) {
    let has_destination = !NO_DESTINATION.contains(&instruction.opcode[0].as_str())
        && instruction.operands.first().is_some_and(|operand| !matches!(operand, Operand::Address { .. }));
    let (destinations, sources) = instruction.operands.split_at(usize::from(has_destination));
    if instruction.guard.is_none() {
        destinations.iter().for_each(|operand| for_registers(operand, &mut |id| live[id / 64] &= !(1 << (id % 64))));
    }
    let mut read = |id: usize| live[id / 64] |= 1 << (id % 64);
    // `bar.red` has a destination, and reading it too is harmless.
    sources.iter().for_each(|operand| for_registers(operand, &mut read));
    if let Some((id, _)) = instruction.guard {
        read(id);
    }
}

/// Calls `visit` with every register an operand names.
pub fn for_registers(operand: &Operand, visit: &mut impl FnMut(usize)) {
    match operand {
        Operand::Register { id, .. } => visit(*id),
        Operand::Address { base, .. } => for_registers(base, visit),
        Operand::Vector(operands) | Operand::List(operands) => operands.iter().for_each(|o| for_registers(o, visit)),
        Operand::Pair(a, b) => {
            for_registers(a, visit);
            for_registers(b, visit);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::parse;

    #[test]
    fn finds_what_is_read_first() {
        let text = ".version 9.0\n.target sm_80\n.address_size 64\n.entry f() {\n.reg .b32 %r<5>;\n.reg .pred %p;\n\
            mov.b32 %r0, 0;\n$L: setp.lt.s32 %p, %r0, 3;\n@%p add.s32 %r1, %r1, %r0;\n@!%p mov.b32 %r2, 1;\n\
            @%p bra $L;\nadd.s32 %r3, %r2, %r0;\nret;\n}";
        let module = parse(text).unwrap();
        let function = module.function("f").unwrap();
        let liveness = Liveness::new(function);
        let names: Vec<&str> = liveness.at_entry().map(|id| function.registers[id].name.as_str()).collect();
        assert_eq!(names, ["%r1", "%r2"], "a guarded write is no write on every path");
    }
}
