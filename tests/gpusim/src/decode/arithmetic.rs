//! Arithmetic, comparison, selection, moves and conversions.

use super::decoder::Decoder;
use super::inst::{Class, Clock, Logic, Op, Predicate};
use super::words::Words;
use crate::alu::convert::{self, Method};
use crate::alu::lanes::{Args, Run, lanes};
use crate::alu::{bits, compare, float, half, integer};
use crate::exec::registers::Reg;
use crate::ptx::ast::Operand;
use crate::ptx::{Result, Type};

type Decoded = Result<Option<(Op, Class)>>;

impl Decoder<'_> {
    pub fn arithmetic(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        match words.base() {
            "mov" => self.mov(words, operands),
            "cvt" => self.cvt(words, operands),
            "setp" => self.setp(words, operands),
            "set" => self.set(words, operands),
            "selp" => self.selp(words, operands),
            "slct" => self.slct(words, operands),
            "testp" => self.testp(words, operands),
            "and" | "or" | "xor" | "not" if words.types() == [Type::Pred] => self.predicate_logic(words, operands),
            _ => self.per_lane(words, operands),
        }
    }

    /// An instruction with one destination, whose sources have the types that its name implies.
    fn per_lane(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let Some(&ty) = words.types().first() else { return Ok(None) };
        let base = words.base();
        let special = ["rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"].contains(&base);
        let is_logic = [
            "and", "or", "xor", "not", "cnot", "shl", "shr", "shf", "lop3", "prmt", "popc", "clz", "brev", "bfind",
            "fns", "bfe", "bfi", "dp4a",
        ]
        .contains(&base);
        let mut imm = 0;
        let class = match () {
            _ if special => Class::Special,
            _ if ty.is_float() && !is_logic => Class::Float,
            _ => Class::Integer,
        };
        let run: Option<Run> = if is_logic {
            bits::select(words, ty)
        } else if matches!(ty, Type::F32 | Type::F64) {
            float::select(words, ty).map(|(run, mode)| {
                imm = mode;
                run
            })
        } else if ty.is_float() {
            half::select(words, ty)
        } else {
            integer::select(words, ty)
        };
        let Some(run) = run else { return Ok(None) };
        let wide = words.take("wide");
        let (target, sources) = signature(base, ty, wide);
        let mut operands = operands.to_vec();
        match base {
            "prmt" => imm = bits::permute_mode(words),
            "lop3" => {
                let Some(Operand::Integer(table)) = operands.pop() else { return self.error("lop3 wants a table") };
                imm = table as u32;
            }
            _ => {}
        }
        if operands.len() != sources.len() + 1 {
            return self.error(format!("{} operands, expected {}", operands.len(), sources.len() + 1));
        }
        let mut s = [Reg(0); 4];
        for (i, ty) in sources.iter().enumerate() {
            s[i] = self.source(&operands[i + 1], *ty)?;
        }
        let d = self.destination(&operands[0], target)?;
        Ok(Some((Op::Lanes(run, Args { d, s, imm }), class)))
    }

    fn mov(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let ([ty], [d, s]) = (words.types(), operands) else { return Ok(None) };
        let size = ty.size() as u8;
        let op = match (d, s) {
            (_, Operand::Vector(_)) => {
                let parts = self.parts(s, *ty)?;
                Op::Pack { d: self.destination(d, *ty)?, size, parts }
            }
            (Operand::Vector(_), _) => {
                let parts = self.parts(d, *ty)?;
                Op::Unpack { s: self.source(s, *ty)?, size, parts }
            }
            (_, Operand::Special(name)) if clock(name).is_some() => {
                let clock = clock(name).unwrap_or(Clock::Wide);
                Op::Clock { d: self.destination(d, *ty)?, clock }
            }
            _ if *ty == Type::Pred => {
                let a = self.predicate(s)?;
                Op::PredicateLogic { logic: Logic::And, d: self.destination(d, Type::Pred)?, a, b: a }
            }
            _ => {
                let args = Args { s: [self.source(s, *ty)?; 4], d: self.destination(d, *ty)?, imm: 0 };
                let run: Run = match ty.size() {
                    2 => lanes!(|a: u16| -> u16 { a }),
                    4 => lanes!(|a: u32| -> u32 { a }),
                    8 => lanes!(|a: u64| -> u64 { a }),
                    _ => return Ok(None),
                };
                Op::Lanes(run, args)
            }
        };
        Ok(Some((op, Class::Move)))
    }

    /// The parts of a packed `ty`: registers of its size over their number.
    fn parts(&mut self, operand: &Operand, ty: Type) -> Result<Box<[super::inst::Element]>> {
        let Operand::Vector(operands) = operand else { return self.error("expected a vector") };
        let size = ty.size() / operands.len().max(1);
        let part = match size {
            1 => Type::B8,
            2 => Type::B16,
            4 => Type::B32,
            8 => Type::B64,
            _ => return self.error("a vector of this many parts"),
        };
        operands.iter().map(|operand| self.element(operand, part)).collect()
    }

    fn cvt(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let [to, from] = *words.types() else { return Ok(None) };
        if matches!(from, Type::E4m3x2 | Type::E5m2x2) {
            let Some(run) = convert::select_unpacked(words, from) else { return Ok(None) };
            return self.one_source(run, 0, to, from, operands);
        }
        if matches!(to, Type::F16x2 | Type::Bf16x2 | Type::E4m3x2 | Type::E5m2x2) {
            let ([d, a, b], Some((run, imm))) = (operands, convert::select_packed(words, to)) else { return Ok(None) };
            let s = [self.source(a, from)?, self.source(b, from)?, Reg(0), Reg(0)];
            return Ok(Some((Op::Lanes(run, Args { d: self.destination(d, to)?, s, imm }), Class::Convert)));
        }
        let [d, s] = operands else { return Ok(None) };
        let (d, s) = (self.element(d, to)?, self.element(s, from)?);
        let op = match convert::select(words, to, from) {
            Method::Lanes(run) if d.width as usize == to.size() && s.width as usize == from.size() => {
                Op::Lanes(run, Args { d: d.reg, s: [s.reg; 4], imm: 0 })
            }
            Method::Lanes(_) => {
                let conversion = convert::scalar(words, to, from);
                Op::Convert { conversion, d: d.reg, target_size: d.width, s: s.reg, source_size: s.width }
            }
            Method::Scalar(conversion) => {
                Op::Convert { conversion, d: d.reg, target_size: d.width, s: s.reg, source_size: s.width }
            }
        };
        Ok(Some((op, Class::Convert)))
    }

    fn one_source(&mut self, run: Run, imm: u32, to: Type, from: Type, operands: &[Operand]) -> Decoded {
        let [d, a] = operands else { return Ok(None) };
        let args = Args { s: [self.source(a, from)?; 4], d: self.destination(d, to)?, imm };
        Ok(Some((Op::Lanes(run, args), Class::Convert)))
    }

    /// The boolean operation and third source of `setp.lt.and…` and `set.lt.and…`.
    fn combine(&mut self, words: &Words, operand: Option<&Operand>) -> Result<Option<(Logic, Predicate)>> {
        let logic = match words.take_one(&["and", "or", "xor"]) {
            Some("and") => Logic::And,
            Some("or") => Logic::Or,
            Some(_) => Logic::Xor,
            None if operand.is_none() => return Ok(None),
            None => return self.error("an operand too many"),
        };
        match operand {
            Some(operand) => Ok(Some((logic, self.predicate(operand)?))),
            None => self.error("a predicate is missing"),
        }
    }

    fn setp(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let ([ty], [d, a, b, rest @ ..]) = (words.types(), operands) else { return Ok(None) };
        let Some(compare) = compare::select(words, *ty) else { return Ok(None) };
        let (a, b) = (self.source(a, *ty)?, self.source(b, *ty)?);
        let combine = self.combine(words, rest.first())?;
        let (p, q) = match d {
            Operand::Pair(p, q) => (self.wanted_predicate(p)?, self.wanted_predicate(q)?),
            _ => (self.wanted_predicate(d)?, None),
        };
        Ok(Some((Op::SetPredicate { compare, a, b, combine, p, q }, Class::Predicate)))
    }

    fn wanted_predicate(&mut self, operand: &Operand) -> Result<Option<Reg>> {
        match operand {
            Operand::Sink => Ok(None),
            _ => Ok(Some(self.destination(operand, Type::Pred)?)),
        }
    }

    fn set(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let ([to, from], [d, a, b, rest @ ..]) = (words.types(), operands) else { return Ok(None) };
        let Some(compare) = compare::select(words, *from) else { return Ok(None) };
        let ones = match to {
            Type::F32 => 1f32.to_bits(),
            Type::U32 | Type::S32 => u32::MAX,
            _ => return Ok(None),
        };
        let (a, b) = (self.source(a, *from)?, self.source(b, *from)?);
        let combine = self.combine(words, rest.first())?;
        Ok(Some((Op::Set { compare, a, b, combine, d: self.destination(d, *to)?, ones }, Class::Predicate)))
    }

    fn testp(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let ([ty], [d, a]) = (words.types(), operands) else { return Ok(None) };
        let Some(compare) = float::select_test(words, *ty) else { return Ok(None) };
        let a = self.source(a, *ty)?;
        let p = self.wanted_predicate(d)?;
        Ok(Some((Op::SetPredicate { compare, a, b: a, combine: None, p, q: None }, Class::Predicate)))
    }

    fn selp(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let ([ty], [d, a, b, p]) = (words.types(), operands) else { return Ok(None) };
        let (a, b, predicate) = (self.source(a, *ty)?, self.source(b, *ty)?, self.predicate(p)?);
        let op = Op::Select { d: self.destination(d, *ty)?, a, b, predicate, size: ty.size() as u8 };
        Ok(Some((op, Class::Move)))
    }

    fn slct(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let ([ty, sign], [d, a, b, c]) = (words.types(), operands) else { return Ok(None) };
        words.take("ftz"); // a subnormal and the zero it would become are selected alike
        let (a, b, c) = (self.source(a, *ty)?, self.source(b, *ty)?, self.source(c, *sign)?);
        let (is_float, size) = (*sign == Type::F32, ty.size() as u8);
        Ok(Some((Op::SelectSign { d: self.destination(d, *ty)?, a, b, c, is_float, size }, Class::Move)))
    }

    fn predicate_logic(&mut self, words: &Words, operands: &[Operand]) -> Decoded {
        let (logic, d, a, b) = match (words.base(), operands) {
            ("and", [d, a, b]) => (Logic::And, d, self.predicate(a)?, self.predicate(b)?),
            ("or", [d, a, b]) => (Logic::Or, d, self.predicate(a)?, self.predicate(b)?),
            ("xor", [d, a, b]) => (Logic::Xor, d, self.predicate(a)?, self.predicate(b)?),
            ("not", [d, a]) => {
                let a = self.predicate(a)?;
                let negated = Predicate { negated: !a.negated, ..a };
                (Logic::And, d, negated, negated)
            }
            _ => return Ok(None),
        };
        Ok(Some((Op::PredicateLogic { logic, d: self.destination(d, Type::Pred)?, a, b }, Class::Predicate)))
    }
}

/// Types of the destination and of the sources.
fn signature(base: &str, ty: Type, wide: bool) -> (Type, Vec<Type>) {
    let double = match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        _ => Type::S64,
    };
    match base {
        "mul" if wide => (double, vec![ty; 2]),
        "mad" if wide => (double, vec![ty, ty, double]),
        "abs" | "neg" | "not" | "cnot" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "brev" => {
            (ty, vec![ty])
        }
        "popc" | "clz" | "bfind" => (Type::U32, vec![ty]),
        "shl" | "shr" => (ty, vec![ty, Type::U32]),
        "bfe" => (ty, vec![ty, Type::U32, Type::U32]),
        "bfi" => (ty, vec![ty, ty, Type::U32, Type::U32]),
        "fma" | "mad" | "mad24" | "sad" | "shf" | "prmt" | "lop3" | "fns" | "dp4a" => (ty, vec![ty; 3]),
        _ => (ty, vec![ty; 2]),
    }
}

fn clock(name: &str) -> Option<Clock> {
    Some(match name {
        "%clock" => Clock::Low32,
        "%clock_hi" => Clock::High32,
        "%clock64" => Clock::Wide,
        "%globaltimer" => Clock::GlobalTimer,
        _ => return None,
    })
}
