//! Operands to columns.

use super::decoder::Decoder;
use super::inst::{Address, Base, Constant, Element, Predicate, Special};
use crate::exec::registers::Reg;
use crate::exec::space::window;
use crate::ptx::ast::{Operand, Space};
use crate::ptx::{Result, Type};

impl Decoder<'_> {
    /// The column of a source of type `ty`: a register of that width, or a constant.
    pub fn source(&mut self, operand: &Operand, ty: Type) -> Result<Reg> {
        match operand {
            Operand::Register { id, negated: false } => {
                let declared = self.register_type(*id);
                let fits = (ty == Type::Pred) == (declared == Type::Pred) && declared.size() == ty.size();
                if fits { Ok(self.columns[*id]) } else { self.mismatch(*id, ty) }
            }
            Operand::Register { .. } => self.error("a negated predicate where a value is expected"),
            Operand::Special(name) => match special(name) {
                Some(special) if ty.size() == 4 => Ok(self.constant(Constant::Special(special))),
                Some(_) => self.error(format!("`{name}` has 32 bits")),
                None => self.error(format!("`{name}` can only be moved to a register")),
            },
            Operand::Symbol { symbol, offset } => {
                let Some((_, address)) = self.layout.address(symbol) else {
                    return self.error("not the name of a variable");
                };
                Ok(self.constant_bits(address.wrapping_add_signed(*offset), ty.size()))
            }
            _ => match self.literal(operand, ty) {
                Some(bits) if ty == Type::Pred => Ok(self.constant(Constant::Predicate(bits != 0))),
                Some(bits) => Ok(self.constant_bits(bits, ty.size())),
                None => self.error("an operand of the wrong kind"),
            },
        }
    }

    /// The bits of a literal as type `ty`.
    fn literal(&self, operand: &Operand, ty: Type) -> Option<u64> {
        match (operand, ty) {
            (Operand::Integer(value), Type::F32) => Some((*value as f32).to_bits() as u64),
            (Operand::Integer(value), Type::F64) => Some((*value as f64).to_bits()),
            (Operand::Integer(value), _) => Some(*value as u64),
            (Operand::Float32(bits), Type::F64) => Some((f32::from_bits(*bits) as f64).to_bits()),
            (Operand::Float32(bits), _) => Some(*bits as u64),
            (Operand::Float64(bits), Type::F32) => Some((f64::from_bits(*bits) as f32).to_bits() as u64),
            (Operand::Float64(bits), _) => Some(*bits),
            _ => None,
        }
    }

    pub fn constant_bits(&mut self, bits: u64, size: usize) -> Reg {
        self.constant(match size {
            0..=2 => Constant::Bits16(bits as u16),
            4 => Constant::Bits32(bits as u32),
            _ => Constant::Bits64(bits),
        })
    }

    fn mismatch<T>(&self, id: usize, ty: Type) -> Result<T> {
        let register = &self.function.registers[id];
        self.error(format!("`{}` is declared {:?}, the instruction wants {ty:?}", register.name, register.ty))
    }

    /// The column of a destination of type `ty`; `_` writes to a column nobody reads.
    pub fn destination(&mut self, operand: &Operand, ty: Type) -> Result<Reg> {
        match operand {
            Operand::Sink => Ok(self.scratch(ty.size())),
            Operand::Register { negated: false, .. } => self.source(operand, ty),
            _ => self.error("the destination is not a register"),
        }
    }

    /// A predicate source, perhaps negated.
    pub fn predicate(&mut self, operand: &Operand) -> Result<Predicate> {
        match operand {
            Operand::Register { id, negated } if self.register_type(*id) == Type::Pred => {
                Ok(Predicate { reg: self.columns[*id], negated: *negated })
            }
            Operand::Integer(value) => {
                Ok(Predicate { reg: self.constant(Constant::Predicate(*value != 0)), negated: false })
            }
            _ => self.error("expected a predicate"),
        }
    }

    /// `d|p`: the destination and, where it is wanted, the predicate.
    pub fn destination_pair(&mut self, operand: &Operand, ty: Type) -> Result<(Reg, Option<Reg>)> {
        match operand {
            Operand::Pair(first, second) => {
                let first = self.destination(first, ty)?;
                Ok((first, Some(self.destination(second, Type::Pred)?)))
            }
            _ => Ok((self.destination(operand, ty)?, None)),
        }
    }

    /// A register or constant of whatever width it has, at least `size` bytes: what loads, stores, `mov` and `cvt` allow.
    pub fn element(&mut self, operand: &Operand, ty: Type) -> Result<Element> {
        match operand {
            Operand::Sink => Ok(Element::default()),
            Operand::Register { id, negated: false } if self.register_type(*id) != Type::Pred => {
                let width = self.register_type(*id).size();
                if width < ty.size() {
                    return self.mismatch(*id, ty);
                }
                Ok(Element { reg: self.columns[*id], width: width as u8 })
            }
            Operand::Register { .. } => self.error("a predicate where a value is expected"),
            _ => Ok(Element { reg: self.source(operand, ty)?, width: ty.size().max(2) as u8 }),
        }
    }

    /// One element, or those of a vector.
    pub fn elements(&mut self, operand: &Operand, ty: Type) -> Result<Vec<Element>> {
        match operand {
            Operand::Vector(operands) => operands.iter().map(|operand| self.element(operand, ty)).collect(),
            _ => Ok(vec![self.element(operand, ty)?]),
        }
    }

    /// `[base + offset]` in `space`.
    pub fn address(&mut self, operand: &Operand, space: Space) -> Result<Address> {
        let Operand::Address { base, offset } = operand else { return self.error("expected an address in brackets") };
        match &**base {
            Operand::Register { id, negated: false } => {
                let base = match self.register_type(*id).size() {
                    4 if self.register_type(*id) != Type::Pred => Base::Narrow(self.columns[*id]),
                    8 => Base::Wide(self.columns[*id]),
                    _ => return self.error("an address register has 32 or 64 bits"),
                };
                Ok(Address { space, base, offset: *offset })
            }
            Operand::Symbol { symbol, offset: symbol_offset } => {
                let Some((declared, address)) = self.layout.address(symbol) else {
                    return self.error("not the name of a variable");
                };
                // A body's `.param` variables are local; a generic access to a variable needs its generic address.
                let space = match (space, declared) {
                    (Space::Param, Space::Local) => Space::Local,
                    (Space::Generic, _) => declared,
                    _ if space == declared => space,
                    _ => return self.error(format!("the variable is in {declared:?} memory, the access in {space:?}")),
                };
                Ok(Address { space, base: Base::None, offset: (address as i64).wrapping_add(offset + symbol_offset) })
            }
            Operand::Integer(address) => Ok(Address { space, base: Base::None, offset: address.wrapping_add(*offset) }),
            _ => self.error("unsupported address"),
        }
    }

    /// First generic address of `space`.
    pub fn window(&mut self, space: Space) -> Reg {
        self.constant(Constant::Bits64(window(space)))
    }
}

/// A special register that is fixed while a thread runs.
fn special(name: &str) -> Option<Special> {
    let component = |name: &str| match name.as_bytes().last() {
        Some(b'x') => 0,
        Some(b'y') => 1,
        _ => 2,
    };
    Some(match name.split('.').next()? {
        "%tid" => Special::Tid(component(name)),
        "%ntid" => Special::Ntid(component(name)),
        "%ctaid" | "%clusterid" => Special::Ctaid(component(name)),
        "%nctaid" | "%nclusterid" => Special::Nctaid(component(name)),
        "%cluster_ctaid" | "%is_explicit_cluster" | "%gridid" => Special::Zero,
        "%cluster_nctaid" => Special::One,
        "%laneid" => Special::Laneid,
        "%warpid" => Special::Warpid,
        "%nwarpid" => Special::Nwarpid,
        "%smid" => Special::Smid,
        "%nsmid" => Special::Nsmid,
        "%lanemask_eq" => Special::LanemaskEq,
        "%lanemask_le" => Special::LanemaskLe,
        "%lanemask_lt" => Special::LanemaskLt,
        "%lanemask_ge" => Special::LanemaskGe,
        "%lanemask_gt" => Special::LanemaskGt,
        "%total_smem_size" => Special::TotalSharedSize,
        "%dynamic_smem_size" => Special::DynamicSharedSize,
        _ => return None,
    })
}
