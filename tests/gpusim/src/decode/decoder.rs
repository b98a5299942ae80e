//! The decoder's frame: registers to columns, labels to program counters, one instruction after the other.

use std::collections::HashMap;

use super::columns::{self, width};
use super::inline::inline_calls;
use super::inst::{Class, Constant, Inst, Kernel, Meta, Op, Predicate};
use super::layout::Layout;
use super::liveness::Liveness;
use super::words::Words;
use crate::exec::registers::Reg;
use crate::ptx::ast::{Function, Instruction, Module};
use crate::ptx::{PtxError, Result, Type};

pub struct Decoder<'a> {
    pub function: &'a Function,
    pub layout: Layout,
    /// Column of each of the function's registers.
    pub columns: Vec<Reg>,
    next_column: u32,
    constants: HashMap<Constant, Reg>,
    /// The instruction being decoded.
    pub line: u32,
    /// The smallest access to shared (or generic) memory so far.
    pub granule: usize,
}

/// Decodes the kernel `function` of `module`; `global_address` gives the address of a module variable.
pub fn decode(module: &Module, function: &Function, global_address: &dyn Fn(usize) -> u64) -> Result<Kernel> {
    let function = inline_calls(module, function)?;
    let layout = Layout::new(module, &function, global_address);
    let liveness = Liveness::new(&function);
    let (columns, next_column) = columns::assign(&function, &liveness);
    let mut decoder = Decoder {
        function: &function,
        layout,
        columns,
        next_column,
        constants: HashMap::new(),
        line: function.line,
        granule: 4,
    };
    let mut code = Vec::with_capacity(function.instructions.len() + 1);
    let mut meta = Vec::with_capacity(function.instructions.len() + 1);
    for instruction in &function.instructions {
        let (inst, class) = decoder.instruction(instruction)?;
        code.push(inst);
        let Instruction { line, text, location, .. } = instruction;
        meta.push(Meta { class, line: *line, text: text.clone(), location: *location });
    }
    // A body may end without `ret`.
    code.push(Inst { guard: None, op: Op::Exit });
    let line = meta.last().map_or(function.line, |m| m.line);
    meta.push(Meta { class: Class::Control, line, text: "(end of the function)".into(), location: None });
    let layout = &decoder.layout;
    Ok(Kernel {
        name: function.name.clone(),
        code,
        meta,
        columns: decoder.next_column as usize,
        constants: decoder.constants.iter().map(|(constant, reg)| (*reg, *constant)).collect(),
        parameter_size: layout.parameter_size,
        parameters: layout.parameters.clone(),
        static_shared: layout.static_shared,
        local_size: layout.local_size,
        max_threads: function.max_threads,
        required_threads: function.required_threads,
        shared_granule: decoder.granule,
        read_before_written: decoder.columns_live_at_entry(&liveness),
        files: module.files.clone(),
    })
}

impl Decoder<'_> {
    /// Columns of the registers that some path reads before it writes them.
    fn columns_live_at_entry(&self, liveness: &Liveness) -> Vec<Reg> {
        let columns = |id: usize| {
            let first = self.columns[id].0;
            (first..first + width(self.register_type(id).size())).map(Reg)
        };
        liveness.at_entry().flat_map(columns).collect()
    }

    /// A column of `size` bytes a lane that no register has.
    pub fn scratch(&mut self, size: usize) -> Reg {
        let reg = Reg(self.next_column);
        self.next_column += width(size);
        reg
    }

    /// The column that holds a constant.
    pub fn constant(&mut self, constant: Constant) -> Reg {
        if let Some(&reg) = self.constants.get(&constant) {
            return reg;
        }
        let size = if matches!(constant, Constant::Bits64(_)) { 8 } else { 4 };
        let reg = self.scratch(size);
        self.constants.insert(constant, reg);
        reg
    }

    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(PtxError::new(self.line, message))
    }

    pub fn register_type(&self, id: usize) -> Type {
        self.function.registers[id].ty
    }

    fn instruction(&mut self, instruction: &Instruction) -> Result<(Inst, Class)> {
        self.line = instruction.line;
        let words = Words::new(&instruction.opcode);
        let guard = match instruction.guard {
            None => None,
            Some((id, negated)) if self.register_type(id) == Type::Pred => {
                Some(Predicate { reg: self.columns[id], negated })
            }
            Some(_) => return self.error(format!("the guard is not a predicate: `{}`", instruction.text)),
        };
        let decoded = self
            .dispatch(&words, instruction)
            .map_err(|error| PtxError::new(error.line, format!("{}: `{}`", error.message, instruction.text)))?;
        match words.unclaimed() {
            None => Ok((Inst { guard, op: decoded.0 }, decoded.1)),
            Some(word) => self.error(format!("unsupported modifier `.{word}`: `{}`", instruction.text)),
        }
    }

    fn dispatch(&mut self, words: &Words, instruction: &Instruction) -> Result<(Op, Class)> {
        let operands = &instruction.operands[..];
        let decoded = match words.base() {
            "ld" | "ldu" | "st" | "atom" | "red" | "cp" | "ldmatrix" | "prefetch" | "prefetchu" | "discard"
            | "applypriority" | "createpolicy" | "isspacep" | "cvta" => self.memory(words, operands)?,
            "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt" | "call" | "nanosleep" | "pmevent" | "griddepcontrol"
            | "setmaxnreg" | "bar" | "barrier" | "membar" | "fence" => self.control(words, operands)?,
            "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" | "mma" => self.collective(words, operands)?,
            _ => self.arithmetic(words, operands)?,
        };
        match decoded {
            Some(decoded) => Ok(decoded),
            None => self.error("unsupported instruction"),
        }
    }

    /// Program counter of a label.
    pub fn target(&self, label: usize) -> u32 {
        self.function.labels[label].1 as u32
    }
}
