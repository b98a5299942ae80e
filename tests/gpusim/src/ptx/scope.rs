//! Names inside a function: braces open a scope, inner declarations hide outer ones.

use std::collections::HashMap;

use super::ast::{Operand, Register, Symbol};
use super::types::Type;

#[derive(Default)]
struct Scope {
    registers: HashMap<String, usize>,
    /// `.reg .b32 %r<10>`: prefix, type, count. Members become registers when first named.
    ranges: Vec<(String, Type, u32)>,
    variables: HashMap<String, Symbol>,
    labels: HashMap<String, usize>,
}

/// All scopes of a function, also closed ones: labels may be used before they are declared.
pub struct Scopes {
    scopes: Vec<Scope>,
    parents: Vec<usize>,
    current: usize,
}

impl Scopes {
    pub fn new() -> Self {
        Scopes { scopes: vec![Scope::default()], parents: vec![0], current: 0 }
    }

    pub fn open(&mut self) {
        self.scopes.push(Scope::default());
        self.parents.push(self.current);
        self.current = self.scopes.len() - 1;
    }

    /// Closes the innermost scope; false if only the function's own is open.
    pub fn close(&mut self) -> bool {
        let is_inner = self.current != 0;
        self.current = self.parents[self.current];
        is_inner
    }

    pub fn current(&self) -> usize {
        self.current
    }

    pub fn declare_register(&mut self, name: &str, ty: Type, registers: &mut Vec<Register>) {
        registers.push(Register { name: name.into(), ty });
        self.scopes[self.current].registers.insert(name.into(), registers.len() - 1);
    }

    pub fn declare_registers(&mut self, prefix: &str, ty: Type, count: u32) {
        self.scopes[self.current].ranges.push((prefix.into(), ty, count));
    }

    pub fn declare_variable(&mut self, name: &str, symbol: Symbol) {
        self.scopes[self.current].variables.insert(name.into(), symbol);
    }

    pub fn declare_label(&mut self, name: &str, label: usize) -> bool {
        self.scopes[self.current].labels.insert(name.into(), label).is_none()
    }

    /// The register called `name`, seen from the current scope.
    pub fn register(&mut self, name: &str, registers: &mut Vec<Register>) -> Option<usize> {
        let mut at = self.current;
        loop {
            let scope = &mut self.scopes[at];
            if let Some(&id) = scope.registers.get(name) {
                return Some(id);
            }
            if let Some(ty) =
                scope.ranges.iter().find_map(|(prefix, ty, count)| in_range(name, prefix, *count).then_some(*ty))
            {
                registers.push(Register { name: name.into(), ty });
                scope.registers.insert(name.into(), registers.len() - 1);
                return Some(registers.len() - 1);
            }
            if at == 0 {
                return None;
            }
            at = self.parents[at];
        }
    }

    pub fn variable(&self, name: &str) -> Option<Operand> {
        let symbol = self.search(self.current, |scope| scope.variables.get(name).cloned())?;
        Some(Operand::Symbol { symbol, offset: 0 })
    }

    /// The label called `name`, seen from scope `from`.
    pub fn label(&self, from: usize, name: &str) -> Option<usize> {
        self.search(from, |scope| scope.labels.get(name).copied())
    }

    fn search<T>(&self, from: usize, find: impl Fn(&Scope) -> Option<T>) -> Option<T> {
        let mut at = from;
        loop {
            if let Some(found) = find(&self.scopes[at]) {
                return Some(found);
            }
            if at == 0 {
                return None;
            }
            at = self.parents[at];
        }
    }
}

/// Whether `name` is `prefix` and a decimal number below `count`.
fn in_range(name: &str, prefix: &str, count: u32) -> bool {
    let Some(digits) = name.strip_prefix(prefix) else { return false };
    let is_canonical = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|c| c.is_ascii_digit()));
    is_canonical && digits.parse::<u32>().is_ok_and(|index| index < count)
}
