//! Branches, exits and barriers.

use super::decoder::Decoder;
use super::inst::{Barrier, BarrierKind, Class, Constant, Op};
use super::words::Words;
use crate::ptx::ast::{Function, Instruction, Operand, Symbol};
use crate::ptx::{Result, Type};

type Decoded = Result<Option<(Op, Class)>>;

/// Labels an instruction may branch to.
pub fn branch_labels<'a>(function: &'a Function, instruction: &'a Instruction) -> impl Iterator<Item = usize> + 'a {
    let is_table = instruction.opcode[0] == "brx";
    let direct = instruction.operands.iter().filter_map(|operand| match operand {
        Operand::Label(label) => Some(*label),
        _ => None,
    });
    let lists = instruction.operands.iter().filter_map(move |operand| match operand {
        Operand::Integer(list) if is_table => function.branch_targets.get(*list as usize),
        _ => None,
    });
    direct.chain(lists.flat_map(|(_, labels)| labels.iter().copied()))
}

impl Decoder<'_> {
    pub fn control(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let op = match (words.base(), operands) {
            ("bra", [Operand::Label(label)]) => {
                words.take("uni");
                Op::Branch { target: self.target(*label) }
            }
            ("brx", [index, Operand::Integer(list)]) if words.take("idx") => {
                words.take("uni");
                let targets = match self.function.branch_targets.get(*list as usize) {
                    Some((_, labels)) => labels.iter().map(|label| self.target(*label)).collect(),
                    None => return Ok(None),
                };
                Op::BranchTable { index: self.source(index, Type::U32)?, targets }
            }
            ("ret" | "exit", []) => {
                words.take("uni");
                Op::Exit
            }
            ("trap" | "brkpt", []) => Op::Trap,
            ("call", _) => {
                words.take("uni");
                return self.runtime_call(operands);
            }
            // No time passes here.
            ("nanosleep" | "pmevent" | "griddepcontrol" | "setmaxnreg", _) => {
                words.take_prefixed(&["u32", "launch_dependents", "wait", "inc", "dec", "sync", "aligned", "mask"]);
                Op::Nop
            }
            ("membar", []) => {
                words.take_one(&["cta", "gl", "sys"]);
                Op::Fence
            }
            ("fence", []) => {
                words.take_one(&["sc", "acq_rel", "acquire", "release"]);
                words.take_one(&["cta", "cluster", "gpu", "sys"]);
                Op::Fence
            }
            ("bar" | "barrier", _) => return self.barrier(words, operands),
            _ => return Ok(None),
        };
        let class = if matches!(op, Op::Fence) { Class::Barrier } else { Class::Control };
        Ok(Some((op, class)))
    }

    /// A call that was not inlined: of a function the driver provides.
    fn runtime_call(&mut self, operands: &[Operand]) -> Decoded {
        let name = operands.iter().find_map(|operand| match operand {
            Operand::Symbol { symbol: Symbol::Function(name), .. } => Some(name.as_str()),
            _ => None,
        });
        match name {
            Some("__assertfail") => Ok(Some((Op::Assert { message: "assertion failed".into() }, Class::Control))),
            Some(name) => self.error(format!("calls of `{name}` are not supported")),
            None => self.error("calls through pointers are not supported"),
        }
    }

    fn barrier(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let aligned = words.base() == "bar" || words.take("aligned");
        words.take("aligned");
        if words.take("warp") {
            let ([members], true) = (operands, words.take("sync")) else { return Ok(None) };
            return Ok(Some((Op::WarpBarrier { members: self.source(members, Type::B32)? }, Class::Barrier)));
        }
        words.take("cta");
        let kind = match words.take_one(&["sync", "arrive", "red"]) {
            Some("sync") => BarrierKind::Sync,
            Some("arrive") => BarrierKind::Arrive,
            Some(_) => match words.take_one(&["popc", "and", "or"]) {
                Some("popc") => BarrierKind::Popc,
                Some("and") => BarrierKind::And,
                Some(_) => BarrierKind::Or,
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        let mut operands = operands;
        let mut d = self.constant(Constant::Bits32(0));
        let mut predicate = None;
        if let BarrierKind::Popc | BarrierKind::And | BarrierKind::Or = kind {
            let [first, rest @ .., last] = operands else { return Ok(None) };
            let ty = if kind == BarrierKind::Popc { Type::U32 } else { Type::Pred };
            d = self.destination(first, ty)?;
            predicate = Some(self.predicate(last)?);
            operands = rest;
        }
        let (id, count) = match operands {
            [id] => (id, None),
            [id, count] => (id, Some(self.source(count, Type::U32)?)),
            _ => return Ok(None),
        };
        let id = self.source(id, Type::U32)?;
        Ok(Some((Op::Barrier(Barrier { kind, id, count, d, predicate, aligned }), Class::Barrier)))
    }
}
