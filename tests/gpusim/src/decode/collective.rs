//! Instructions in which the lanes of a warp take part together.

use super::decoder::Decoder;
use super::inst::{Class, Mma, MmaKind, Op, ReduceOp, ShuffleMode, VoteMode};
use super::words::Words;
use crate::exec::registers::Reg;
use crate::ptx::ast::Operand;
use crate::ptx::{Result, Type};

type Decoded = Result<Option<(Op, Class)>>;

impl Decoder<'_> {
    pub fn collective(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        if words.base() != "activemask" && words.base() != "elect" && !words.take("sync") {
            return self.error("only the `.sync` form is supported");
        }
        match words.base() {
            "shfl" => self.shuffle(words, operands),
            "vote" => self.vote(words, operands),
            "match" => self.matching(words, operands),
            "redux" => self.reduce(words, operands),
            "mma" => self.mma(words, operands),
            "elect" => {
                words.take("sync");
                let [Operand::Pair(d, p), members] = operands else { return Ok(None) };
                let d = if **d == Operand::Sink { None } else { Some(self.destination(d, Type::B32)?) };
                let op =
                    Op::Elect { d, p: self.destination(p, Type::Pred)?, members: self.source(members, Type::B32)? };
                Ok(Some((op, Class::Warp)))
            }
            _ => {
                let [d] = operands else { return Ok(None) };
                Ok(Some((Op::ActiveMask { d: self.destination(d, Type::B32)? }, Class::Warp)))
            }
        }
    }

    fn shuffle(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let mode = match words.take_one(&["up", "down", "bfly", "idx"]) {
            Some("up") => ShuffleMode::Up,
            Some("down") => ShuffleMode::Down,
            Some("bfly") => ShuffleMode::Butterfly,
            Some(_) => ShuffleMode::Index,
            None => return Ok(None),
        };
        let ([Type::B32], [d, a, b, c, members]) = (words.types(), operands) else { return Ok(None) };
        let [a, b, c, members] = self.sources32([a, b, c, members])?;
        let (d, p) = self.destination_pair(d, Type::B32)?;
        Ok(Some((Op::Shuffle { mode, d, p, a, b, c, members }, Class::Warp)))
    }

    fn sources32<const N: usize>(&mut self, operands: [&Operand; N]) -> Result<[Reg; N]> {
        let mut registers = [Reg(0); N];
        for (register, operand) in registers.iter_mut().zip(operands) {
            *register = self.source(operand, Type::B32)?;
        }
        Ok(registers)
    }

    fn vote(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let mode = match words.take_one(&["all", "any", "uni", "ballot"]) {
            Some("all") => VoteMode::All,
            Some("any") => VoteMode::Any,
            Some("uni") => VoteMode::Uniform,
            Some(_) => VoteMode::Ballot,
            None => return Ok(None),
        };
        let ([ty], [d, predicate, members]) = (words.types(), operands) else { return Ok(None) };
        if (mode == VoteMode::Ballot) == (*ty == Type::Pred) {
            return Ok(None);
        }
        let predicate = self.predicate(predicate)?;
        let members = self.source(members, Type::B32)?;
        Ok(Some((Op::Vote { mode, d: self.destination(d, *ty)?, predicate, members }, Class::Warp)))
    }

    fn matching(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let all = words.take("all");
        if !all && !words.take("any") {
            return Ok(None);
        }
        let ([ty @ (Type::B32 | Type::B64)], [d, a, members]) = (words.types(), operands) else { return Ok(None) };
        let (a, members) = (self.source(a, *ty)?, self.source(members, Type::B32)?);
        let (d, p) = self.destination_pair(d, Type::B32)?;
        Ok(Some((Op::Match { all, d, p, a, size: ty.size() as u8, members }, Class::Warp)))
    }

    fn reduce(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let op = match words.take_one(&["add", "min", "max", "and", "or", "xor"]) {
            Some("add") => ReduceOp::Add,
            Some("min") => ReduceOp::Min,
            Some("max") => ReduceOp::Max,
            Some("and") => ReduceOp::And,
            Some("or") => ReduceOp::Or,
            Some(_) => ReduceOp::Xor,
            None => return Ok(None),
        };
        let ([ty @ (Type::U32 | Type::S32 | Type::B32)], [d, a, members]) = (words.types(), operands) else {
            return Ok(None);
        };
        let [a, members] = self.sources32([a, members])?;
        let d = self.destination(d, Type::B32)?;
        Ok(Some((Op::Reduce { op, signed: ty.is_signed(), d, a, members }, Class::Warp)))
    }

    fn mma(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let is_known = words.take("aligned") && words.take("row") && words.take("col");
        let k = match words.take_one(&["m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"]) {
            Some("m16n8k4") => 4,
            Some("m16n8k8") => 8,
            Some("m16n8k16") => 16,
            Some(_) => 32,
            None => return Ok(None),
        };
        // 8-bit types are not register types, but they are parsed as such: [d, a, b, c].
        let ([td, ta, tb, tc], [d, a, b, c], true) = (words.types(), operands, is_known) else { return Ok(None) };
        let half_accumulator = *td == Type::F16;
        let is_int8 = |ty: &Type| matches!(ty, Type::U8 | Type::S8);
        let kind = match (td, ta, tb, k) {
            (Type::F32, Type::Bf16, Type::Bf16, 8 | 16) => MmaKind::Bf16 { k },
            (Type::F32 | Type::F16, Type::F16, Type::F16, 8 | 16) => MmaKind::F16 { k, half_accumulator },
            (Type::F32, Type::Tf32, Type::Tf32, 4 | 8) => MmaKind::Tf32 { k },
            (Type::S32, a, b, 16 | 32) if is_int8(a) && is_int8(b) => {
                MmaKind::Int8 { k, a_signed: a.is_signed(), b_signed: b.is_signed() }
            }
            _ => return Ok(None),
        };
        if td != tc {
            return self.error("accumulators of different types");
        }
        let accumulators = if half_accumulator { 2 } else { 4 };
        // 16 rows (A) and 8 columns (B) of k factors, 32 bits a register, over 32 lanes.
        let factor = match kind {
            MmaKind::Bf16 { .. } | MmaKind::F16 { .. } => 2,
            MmaKind::Tf32 { .. } => 4,
            MmaKind::Int8 { .. } => 1,
        };
        let (a_count, b_count) = (16 * k * factor / 128, 8 * k * factor / 128);
        let accumulator_type = if half_accumulator { Type::B32 } else { *td };
        let a = self.fragment::<4>(a, Type::B32, a_count, false)?;
        let b = self.fragment::<2>(b, Type::B32, b_count, false)?;
        let c = self.fragment::<4>(c, accumulator_type, accumulators, false)?;
        let d = self.fragment::<4>(d, accumulator_type, accumulators, true)?;
        Ok(Some((Op::Mma(Box::new(Mma { kind, d, a, b, c })), Class::Matrix)))
    }

    fn fragment<const N: usize>(&mut self, operand: &Operand, ty: Type, count: usize, write: bool) -> Result<[Reg; N]> {
        let values = match operand {
            Operand::Vector(values) => values.clone(),
            _ => vec![operand.clone()],
        };
        if values.len() != count {
            return self.error(format!("a fragment of {} registers, expected {count}", values.len()));
        }
        let mut registers = [Reg(0); N];
        for (register, value) in registers.iter_mut().zip(&values) {
            *register = if write { self.destination(value, ty)? } else { self.source(value, ty)? };
        }
        Ok(registers)
    }
}
