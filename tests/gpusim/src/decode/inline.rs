//! Calls of device functions, replaced by the function's body: a kernel then is one stretch of code with one set of registers.
//! What cannot be inlined (recursion, pointers) is refused.

use std::borrow::Cow;

use crate::ptx::ast::{Function, Instruction, Module, Operand, Symbol};
use crate::ptx::{PtxError, Result};

/// Deepest chain of calls.
const MAX_DEPTH: usize = 32;

/// `function` with every call of a function that has a body replaced by it.
pub fn inline_calls<'a>(module: &Module, function: &'a Function) -> Result<Cow<'a, Function>> {
    let mut function = Cow::Borrowed(function);
    for _ in 0..MAX_DEPTH {
        let Some(at) = function.instructions.iter().position(|i| callee(module, i).is_some()) else {
            return Ok(function);
        };
        let mut expanded = function.into_owned();
        let mut changed = Some(at);
        // One round replaces the calls now there; calls inside what was put in wait for the next.
        let mut from = at;
        while let Some(at) = changed {
            let Some(callee) = callee(module, &expanded.instructions[at]) else { break };
            let length = expand(&mut expanded, at, callee)?;
            from = from.max(at) + length;
            changed = (from..expanded.instructions.len()).find(|i| {
                expanded.instructions[*i].opcode[0] == "call"
                    && self::callee(module, &expanded.instructions[*i]).is_some()
            });
        }
        function = Cow::Owned(expanded);
    }
    Err(PtxError::new(function.line, format!("`{}` calls itself, or too deep", function.name)))
}

/// The function a call names, if it has a body.
fn callee<'m>(module: &'m Module, instruction: &Instruction) -> Option<&'m Function> {
    if instruction.opcode[0] != "call" {
        return None;
    }
    instruction.operands.iter().find_map(|operand| match operand {
        Operand::Symbol { symbol: Symbol::Function(name), .. } => module.function(name),
        _ => None,
    })
}

/// Replaces the call at `at`; gives the number of instructions put in its place.
fn expand(caller: &mut Function, at: usize, callee: &Function) -> Result<usize> {
    let call = caller.instructions[at].clone();
    let error = |message: &str| PtxError::new(call.line, format!("{message}: `{}`", call.text));
    if call.guard.is_some() {
        return Err(error("a predicated call"));
    }
    let (returns, arguments) = arguments(&call).ok_or_else(|| error("arguments in registers"))?;
    if arguments.len() != callee.parameters.len() || returns.len() != callee.returns.len() {
        return Err(error("arguments that do not match the function"));
    }
    let shift = Shift {
        registers: caller.registers.len(),
        variables: caller.variables.len(),
        labels: caller.labels.len(),
        lists: caller.branch_targets.len(),
        arguments: &arguments,
        returns: &returns,
    };
    let end_label = caller.labels.len() + callee.labels.len();
    let body: Vec<Instruction> = callee.instructions.iter().map(|i| shift.instruction(i, end_label)).collect();
    let length = body.len();
    caller.registers.extend(callee.registers.iter().cloned());
    caller.variables.extend(callee.variables.iter().cloned());
    caller.branch_targets.extend(
        callee
            .branch_targets
            .iter()
            .map(|(name, labels)| (name.clone(), labels.iter().map(|label| label + shift.labels).collect())),
    );
    caller.instructions.splice(at..=at, body);
    for (_, position) in caller.labels.iter_mut().filter(|(_, position)| *position > at) {
        *position += length;
        *position -= 1;
    }
    caller.labels.extend(callee.labels.iter().map(|(name, position)| (name.clone(), at + position)));
    caller.labels.push((format!("{} returns", callee.name), at + length));
    Ok(length)
}

/// Return and argument variables of `call (r), f, (a, b)`.
fn arguments(call: &Instruction) -> Option<(Vec<Symbol>, Vec<Symbol>)> {
    let symbols = |operand: &Operand| -> Option<Vec<Symbol>> {
        let Operand::List(operands) = operand else { return None };
        operands
            .iter()
            .map(|operand| match operand {
                Operand::Symbol { symbol, offset: 0 } => Some(symbol.clone()),
                _ => None,
            })
            .collect()
    };
    match &call.operands[..] {
        [Operand::Symbol { .. }] => Some((Vec::new(), Vec::new())),
        [Operand::Symbol { .. }, arguments] => Some((Vec::new(), symbols(arguments)?)),
        [returns, Operand::Symbol { .. }] => Some((symbols(returns)?, Vec::new())),
        [returns, Operand::Symbol { .. }, arguments] => Some((symbols(returns)?, symbols(arguments)?)),
        _ => None,
    }
}

/// How a callee's indices become the caller's.
struct Shift<'a> {
    registers: usize,
    variables: usize,
    labels: usize,
    lists: usize,
    arguments: &'a [Symbol],
    returns: &'a [Symbol],
}

impl Shift<'_> {
    fn instruction(&self, instruction: &Instruction, end_label: usize) -> Instruction {
        let mut moved = instruction.clone();
        moved.guard = moved.guard.map(|(id, negated)| (id + self.registers, negated));
        if moved.opcode[0] == "ret" {
            moved.opcode = vec!["bra".into()];
            moved.operands = vec![Operand::Label(end_label)];
            return moved;
        }
        let is_table = moved.opcode[0] == "brx";
        for (i, operand) in moved.operands.iter_mut().enumerate() {
            match operand {
                Operand::Integer(list) if is_table && i == 1 => *list += self.lists as i64,
                _ => self.operand(operand),
            }
        }
        moved
    }

    fn operand(&self, operand: &mut Operand) {
        match operand {
            Operand::Register { id, .. } => *id += self.registers,
            Operand::Label(label) => *label += self.labels,
            Operand::Symbol { symbol, .. } => match symbol {
                Symbol::Local(index) => *index += self.variables,
                Symbol::Parameter(index) => *symbol = self.arguments[*index].clone(),
                Symbol::Return(index) => *symbol = self.returns[*index].clone(),
                Symbol::Module(_) | Symbol::Function(_) => {}
            },
            Operand::Address { base, .. } => self.operand(base),
            Operand::Vector(operands) | Operand::List(operands) => operands.iter_mut().for_each(|o| self.operand(o)),
            Operand::Pair(a, b) => {
                self.operand(a);
                self.operand(b);
            }
            _ => {}
        }
    }
}
