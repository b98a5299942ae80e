//! Mutation: one instruction of a kernel altered, to see whether tests notice.

use std::fmt;

use crate::ptx::Type;
use crate::ptx::ast::{Function, Instruction, Operand};

/// What was altered.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    pub kernel: String,
    pub line: u32,
    /// The instruction as it was.
    pub before: String,
    /// The change in words.
    pub change: String,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}: `{}`: {}", self.kernel, self.line, self.before, self.change)
    }
}

/// Words of an opcode that are exchanged for one another.
const EXCHANGES: [(&str, &str); 16] = [
    ("add", "sub"),
    ("sub", "add"),
    ("min", "max"),
    ("max", "min"),
    ("and", "or"),
    ("or", "and"),
    ("shl", "shr"),
    ("shr", "shl"),
    ("lt", "le"),
    ("le", "lt"),
    ("gt", "ge"),
    ("ge", "gt"),
    ("eq", "ne"),
    ("ne", "eq"),
    // Not `down`: the first lane's sum, which is often the only one in use, would be the same.
    ("bfly", "up"),
    ("lg2", "ex2"),
];

/// One change to one instruction.
enum Change {
    Word { index: usize, to: &'static str },
    Guard,
    Swap,
    Immediate { operand: usize, to: i64 },
    Offset { operand: usize, by: i64 },
    Remove,
}

/// Alters one instruction, chosen by `seed`; None if the kernel has nothing that could be.
pub fn mutate(function: &mut Function, seed: u64) -> Option<Mutation> {
    let mut candidates = Vec::new();
    for (i, instruction) in function.instructions.iter().enumerate() {
        candidates.extend(changes(instruction, function).into_iter().map(|change| (i, change)));
    }
    // A step of splitmix64, so that neighbouring seeds choose far apart.
    let mut hash = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let chosen = ((hash ^ hash >> 31) % candidates.len().max(1) as u64) as usize;
    let (i, change) = candidates.into_iter().nth(chosen)?;
    let before = function.instructions[i].text.clone();
    let instruction = &mut function.instructions[i];
    let change = apply(instruction, change);
    instruction.text = format!("{before} [mutated: {change}]");
    Some(Mutation { kernel: function.name.clone(), line: instruction.line, before, change })
}

fn changes(instruction: &Instruction, function: &Function) -> Vec<Change> {
    let mut changes = Vec::new();
    let base = instruction.opcode[0].as_str();
    if instruction.guard.is_some() {
        changes.push(Change::Guard);
    }
    // The word `sub` of `sub.f32`, the `lt` of `setp.lt`; not the `add` of `mad`, which has none.
    for (index, word) in instruction.opcode.iter().enumerate() {
        let is_operation = index == 0 || matches!(base, "setp" | "set" | "shfl" | "atom" | "red" | "redux");
        let fits = !matches!((base, word.as_str()), ("atom" | "red" | "redux", "add" | "sub")) && base != "lg2";
        if let Some((_, to)) = EXCHANGES.iter().find(|(from, _)| from == word)
            && is_operation
            && fits
            && is_legal(base, to, instruction)
        {
            // Of floats and a constant hardly any are equal, and those that are fare the same: turned round instead.
            let to = if base == "setp" && has_float(instruction) { turned(to) } else { to };
            changes.push(Change::Word { index, to });
        }
    }
    // Of `eq` and `ne` the sources have no order.
    let has_order = matches!(base, "sub" | "div" | "rem" | "shl" | "shr" | "selp")
        || (base == "setp" && !instruction.opcode.iter().any(|word| matches!(word.as_str(), "eq" | "ne")));
    if has_order && instruction.operands.len() >= 3 {
        let ty = |operand: &Operand| match operand {
            Operand::Register { id, .. } => Some(function.registers[*id].ty),
            _ => None,
        };
        if ty(&instruction.operands[1]).is_some() && ty(&instruction.operands[1]) == ty(&instruction.operands[2]) {
            changes.push(Change::Swap);
        }
    }
    let is_arithmetic =
        matches!(base, "add" | "sub" | "mul" | "mad" | "setp" | "and" | "or" | "shl" | "shr" | "mov" | "min" | "max");
    for (operand, value) in instruction.operands.iter().enumerate().skip(1) {
        match value {
            Operand::Integer(value) if base == "and" => {
                changes.push(Change::Immediate { operand, to: without_a_bit(*value) })
            }
            // A 0 that stands for what is left out: 1 would be a subnormal number, which vanishes in every sum; this is NaN.
            Operand::Integer(0) if base == "mov" => changes.push(Change::Immediate { operand, to: -1 }),
            Operand::Integer(value) if is_arithmetic => {
                changes.push(Change::Immediate { operand, to: changed(*value, instruction, function) })
            }
            Operand::Address { .. } if matches!(base, "ld" | "st") && !instruction.opcode.contains(&"param".into()) => {
                changes.push(Change::Offset { operand, by: access_size(instruction) });
            }
            _ => {}
        }
    }
    if base == "bar" || (base == "st" && !instruction.opcode.contains(&"param".into())) {
        changes.push(Change::Remove);
    }
    changes
}

/// Whether a mask leaves the remainder of a division by a small power of two.
fn is_remainder(mask: i64) -> bool {
    (2..256).contains(&mask) && mask & (mask + 1) == 0
}

/// A mask without one of its bits: one more could be of a bit that is always 0, as behind a shift. That is the lowest, but for
/// a remainder the highest: the lowest bits of an address are 0.
fn without_a_bit(mask: i64) -> i64 {
    if is_remainder(mask) { mask >> 1 } else { mask & mask.wrapping_sub(1) }
}

fn has_float(instruction: &Instruction) -> bool {
    instruction.operands.iter().any(|operand| matches!(operand, Operand::Float32(_) | Operand::Float64(_)))
}

/// The comparison the other way round.
fn turned(comparison: &'static str) -> &'static str {
    match comparison {
        "lt" => "gt",
        "le" => "ge",
        "gt" => "lt",
        "ge" => "le",
        other => other,
    }
}

/// What an immediate becomes: its successor, but for even distances of butterflies. Over 16, 8, 5, 2, 1 every lane still meets
/// every other once, as over 16, 8, 4, 2, 1: nothing but the order of the sum would change. Over 0 a lane meets itself.
fn changed(value: i64, instruction: &Instruction, function: &Function) -> i64 {
    match &instruction.operands[0] {
        // An address, of numbers of 2 bytes and more, leaves no remainder of 1: the middle instead.
        _ if instruction.opcode[0] == "setp" && value == 0 => {
            remainder(instruction, function).map_or(1, |mask| mask / 2 + 1)
        }
        Operand::Register { id, .. }
            if instruction.opcode[0] == "mov" && value > 0 && value % 2 == 0 && is_distance(*id, function) =>
        {
            0
        }
        _ => value.wrapping_add(1),
    }
}

/// The mask whose remainder an instruction compares.
fn remainder(instruction: &Instruction, function: &Function) -> Option<i64> {
    let Some(Operand::Register { id: compared, .. }) = instruction.operands.get(1) else { return None };
    if function.registers[*compared].ty.size() < 8 {
        return None; // no address
    }
    let mut made = function
        .instructions
        .iter()
        .filter(|other| matches!(other.operands.first(), Some(Operand::Register { id, .. }) if id == compared));
    match (made.next(), made.next()) {
        (Some(and), None) if and.opcode[0] == "and" => match and.operands.get(2) {
            Some(Operand::Integer(mask)) if is_remainder(*mask) => Some(*mask),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a register is used, and as the distance of a butterfly alone.
fn is_distance(register: usize, function: &Function) -> bool {
    let reads = |operand: &Operand| matches!(operand, Operand::Register { id, .. } if *id == register);
    let mut uses = function.instructions.iter().flat_map(|instruction| {
        let operands = instruction.operands.iter().enumerate().skip(1).filter(|(_, operand)| reads(operand));
        operands.map(move |(at, _)| at == 2 && instruction.opcode.iter().any(|word| word == "bfly"))
    });
    uses.next() == Some(true) && uses.all(|is_distance| is_distance)
}

/// Whether the exchanged opcode exists for the instruction's type.
fn is_legal(base: &str, to: &str, instruction: &Instruction) -> bool {
    let ty = instruction.opcode.iter().rev().find_map(|word| Type::parse(word));
    let is_pred = ty == Some(Type::Pred);
    match base {
        "and" | "or" => to != "xor",
        "shl" | "shr" => !instruction.opcode.iter().any(|w| w == "pred"),
        "setp" | "set" => !is_pred,
        _ => true,
    }
}

/// Bytes of one access, so that a shifted address stays aligned.
fn access_size(instruction: &Instruction) -> i64 {
    let element = instruction.opcode.iter().rev().find_map(|word| Type::parse(word)).map_or(4, Type::size) as i64;
    let count = match () {
        _ if instruction.opcode.iter().any(|w| w == "v4") => 4,
        _ if instruction.opcode.iter().any(|w| w == "v2") => 2,
        _ => 1,
    };
    element * count
}

/// Makes the change; says it in words.
fn apply(instruction: &mut Instruction, change: Change) -> String {
    match change {
        Change::Word { index, to } => {
            let from = std::mem::replace(&mut instruction.opcode[index], to.into());
            format!("`{from}` became `{to}`")
        }
        Change::Guard => {
            if let Some((_, negated)) = &mut instruction.guard {
                *negated = !*negated;
            }
            "the guard was negated".into()
        }
        Change::Swap => {
            instruction.operands.swap(1, 2);
            "the sources were swapped".into()
        }
        Change::Immediate { operand, to } => {
            instruction.operands[operand] = Operand::Integer(to);
            format!("the constant became {to}")
        }
        Change::Offset { operand, by } => {
            if let Operand::Address { offset, .. } = &mut instruction.operands[operand] {
                *offset += by;
            }
            format!("the address was moved by {by} bytes")
        }
        Change::Remove => {
            instruction.opcode = vec!["nanosleep".into(), "u32".into()];
            instruction.operands = vec![Operand::Integer(0)];
            "it was removed".into()
        }
    }
}
