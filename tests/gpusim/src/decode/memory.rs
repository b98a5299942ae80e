//! Loads, stores, atomics, asynchronous copies and addresses.

use super::decoder::Decoder;
use super::inst::{Access, Atomic, AtomicOp, AtomicType, Class, Element, Op};
use super::words::Words;
use crate::alu::lanes::{Args, Run, compare, lanes};
use crate::exec::registers::Reg;
use crate::exec::space::space_of;
use crate::ptx::ast::{Operand, Space};
use crate::ptx::{Result, Type};

type Decoded = Result<Option<(Op, Class)>>;

/// Modifiers that say where data should be cached, which changes no result.
const CACHE_HINTS: [&str; 12] = ["L1::", "L2::", "level::", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"];

impl Decoder<'_> {
    pub fn memory(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        match (words.base(), operands) {
            ("ld" | "ldu", _) => self.load_or_store(words, operands, true),
            ("st", _) => self.load_or_store(words, operands, false),
            ("atom" | "red", _) => self.atomic(words, operands),
            ("cp", _) => self.async_copy(words, operands),
            ("ldmatrix", _) => self.matrix_load(words, operands),
            ("cvta", _) => self.cvta(words, operands),
            ("isspacep", _) => self.isspacep(words, operands),
            // A cache policy is a hint, too: any number will do.
            ("createpolicy", [d, ..]) => {
                words.take_prefixed(&["fractional", "range", "L2", "cvt", "global"]);
                let args = Args { d: self.destination(d, Type::B64)?, s: [self.constant_bits(0, 8); 4], imm: 0 };
                Ok(Some((Op::Lanes(lanes!(|a: u64| -> u64 { a }), args), Class::Move)))
            }
            // Hints that move data between caches.
            ("prefetch" | "prefetchu" | "discard" | "applypriority", _) => {
                words.take_prefixed(&["L1", "L2"]);
                space(words);
                Ok(Some((Op::Nop, Class::Control)))
            }
            _ => Ok(None),
        }
    }

    /// Notes how small accesses to shared memory get.
    fn note_granule(&mut self, space: Space, size: usize) {
        if matches!(space, Space::Shared | Space::Generic) {
            self.granule = self.granule.min(size);
        }
    }

    fn load_or_store(&mut self, words: &Words, operands: &[Operand], is_load: bool) -> Decoded {
        words.take("weak");
        words.take_prefixed(&CACHE_HINTS);
        let strong = words.take_one(&["volatile", "relaxed", "acquire", "release", "mmio"]).is_some();
        words.take_one(&["cta", "cluster", "gpu", "sys"]);
        let space = space(words);
        words.take_prefixed(&["param::"]);
        let count = match words.take_one(&["v2", "v4"]) {
            Some("v2") => 2,
            Some(_) => 4,
            None => 1,
        };
        let ([ty], [first, second, ..]) = (words.types(), operands) else { return Ok(None) };
        let (value, address) = if is_load { (first, second) } else { (second, first) };
        let address = self.address(address, space)?;
        let values = self.elements(value, *ty)?;
        if values.len() != count {
            return self.error(format!("{} registers for {count} elements", values.len()));
        }
        let mut elements = [Element::default(); 4];
        elements[..count].copy_from_slice(&values);
        let size = ty.size();
        self.note_granule(address.space, size);
        let access = Access { address, size: size as u8, count: count as u8, signed: ty.is_signed(), strong, elements };
        Ok(Some(if is_load { (Op::Load(access), Class::Load) } else { (Op::Store(access), Class::Store) }))
    }

    fn atomic(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        words.take_prefixed(&["L1::", "L2::"]);
        words.take_one(&["relaxed", "acquire", "release", "acq_rel"]);
        words.take_one(&["cta", "cluster", "gpu", "sys"]);
        words.take("noftz");
        let space = space(words);
        let op = match words.take_one(&["and", "or", "xor", "exch", "cas", "add", "inc", "dec", "min", "max"]) {
            Some("and") => AtomicOp::And,
            Some("or") => AtomicOp::Or,
            Some("xor") => AtomicOp::Xor,
            Some("exch") => AtomicOp::Exchange,
            Some("cas") => AtomicOp::CompareSwap,
            Some("add") => AtomicOp::Add,
            Some("inc") => AtomicOp::Increment,
            Some("dec") => AtomicOp::Decrement,
            Some("min") => AtomicOp::Min,
            Some("max") => AtomicOp::Max,
            _ => return Ok(None),
        };
        let [ty] = *words.types() else { return Ok(None) };
        let Some(atomic_type) = atomic_type(op, ty) else { return Ok(None) };
        let is_red = words.base() == "red";
        let operands = if is_red { [&[Operand::Sink], operands].concat() } else { operands.to_vec() };
        let [d, address, b, rest @ ..] = &operands[..] else { return Ok(None) };
        let address = self.address(address, space)?;
        self.note_granule(address.space, ty.size());
        let b = self.source(b, ty)?;
        let c = match (op, rest) {
            (AtomicOp::CompareSwap, [c]) => self.source(c, ty)?,
            (AtomicOp::CompareSwap, _) | (_, [_, ..]) => return Ok(None),
            _ => b,
        };
        let d = if *d == Operand::Sink { None } else { Some(self.destination(d, ty)?) };
        Ok(Some((Op::Atomic(Atomic { address, op, ty: atomic_type, d, b, c }), Class::Atomic)))
    }

    fn async_copy(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        if !words.take("async") {
            return Ok(None);
        }
        let op = if words.take("commit_group") {
            Op::AsyncCommit
        } else if words.take("wait_all") {
            Op::AsyncWait { groups: None }
        } else if words.take("wait_group") {
            let [Operand::Integer(groups)] = operands else { return Ok(None) };
            Op::AsyncWait { groups: Some(*groups as u32) }
        } else {
            words.take_prefixed(&["ca", "cg", "L2::"]);
            if !words.take("shared") && !words.take("shared::cta") || !words.take("global") {
                return Ok(None);
            }
            let [to, from, Operand::Integer(size @ (4 | 8 | 16)), rest @ ..] = operands else { return Ok(None) };
            let to = self.address(to, Space::Shared)?;
            let from = self.address(from, Space::Global)?;
            let (source_size, ignore) = match rest {
                [] => (None, None),
                [Operand::Register { id, .. }, ..] if self.register_type(*id) == Type::Pred => {
                    (None, Some(self.predicate(&rest[0])?))
                }
                [source_size] => (Some(self.source(source_size, Type::U32)?), None),
                _ => return Ok(None),
            };
            Op::AsyncCopy { to, from, size: *size as u8, source_size, ignore }
        };
        Ok(Some((op, Class::AsyncCopy)))
    }

    fn matrix_load(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let is_known = words.take("sync") && words.take("aligned") && words.take("m8n8");
        let count = match words.take_one(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2,
            Some(_) => 4,
            None => return Ok(None),
        };
        let transposed = words.take("trans");
        let space = space(words);
        let ([Type::B16], [d, address], true) = (words.types(), operands, is_known) else { return Ok(None) };
        let address = self.address(address, space)?;
        let values = match d {
            Operand::Vector(values) => values.clone(),
            _ => vec![d.clone()],
        };
        if values.len() != count {
            return self.error(format!("{} registers for {count} matrices", values.len()));
        }
        let mut registers = [Reg(0); 4];
        for (register, value) in registers.iter_mut().zip(&values) {
            *register = self.destination(value, Type::B32)?;
        }
        Ok(Some((Op::MatrixLoad { address, count: count as u8, transposed, d: registers }, Class::Load)))
    }

    fn cvta(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let to_space = words.take("to");
        let ([ty], [d, a]) = (words.types(), operands) else { return Ok(None) };
        if ty.size() != 8 {
            return self.error("only 64-bit generic addresses are supported");
        }
        let a = self.source(a, *ty)?;
        let space = space(words);
        words.take_prefixed(&["param::"]);
        let window = self.window(space);
        let run: Run = if to_space {
            lanes!(|a: u64, window: u64| -> u64 { a.wrapping_sub(window) })
        } else {
            lanes!(|a: u64, window: u64| -> u64 { a.wrapping_add(window) })
        };
        let args = Args { d: self.destination(d, *ty)?, s: [a, window, Reg(0), Reg(0)], imm: 0 };
        Ok(Some((Op::Lanes(run, args), Class::Integer)))
    }

    fn isspacep(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let [d, a] = operands else { return Ok(None) };
        let a = self.source(a, Type::U64)?;
        let p = Some(self.destination(d, Type::Pred)?);
        let compare = match space(words) {
            Space::Shared => compare!(|a: u64, _b: u64| space_of(a) == Space::Shared),
            Space::Local => compare!(|a: u64, _b: u64| space_of(a) == Space::Local),
            Space::Param => compare!(|a: u64, _b: u64| space_of(a) == Space::Param),
            Space::Global => compare!(|a: u64, _b: u64| space_of(a) == Space::Global),
            _ => return Ok(None),
        };
        Ok(Some((Op::SetPredicate { compare, a, b: a, combine: None, p, q: None }, Class::Predicate)))
    }
}

/// The state space among the modifiers; without one, generic.
fn space(words: &Words) -> Space {
    match words.take_one(&["global", "shared", "shared::cta", "local", "param", "param::entry", "param::func", "const"])
    {
        Some("global") => Space::Global,
        Some("shared" | "shared::cta") => Space::Shared,
        Some("local") => Space::Local,
        Some("param" | "param::entry" | "param::func") => Space::Param,
        Some(_) => Space::Const,
        None => Space::Generic,
    }
}

fn atomic_type(op: AtomicOp, ty: Type) -> Option<AtomicType> {
    let is_add = op == AtomicOp::Add;
    Some(match ty {
        Type::U32 | Type::B32 => AtomicType::U32,
        Type::S32 => AtomicType::S32,
        Type::U64 | Type::B64 => AtomicType::U64,
        Type::S64 => AtomicType::S64,
        Type::B16 => AtomicType::U16,
        Type::F32 if is_add => AtomicType::F32,
        Type::F64 if is_add => AtomicType::F64,
        Type::F16 if is_add => AtomicType::F16,
        Type::F16x2 if is_add => AtomicType::F16x2,
        Type::Bf16 if is_add => AtomicType::Bf16,
        Type::Bf16x2 if is_add => AtomicType::Bf16x2,
        _ => return None,
    })
}
