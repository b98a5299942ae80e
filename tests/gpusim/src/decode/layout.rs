//! Where a kernel's variables lie: parameters, shared memory, local memory.

use std::collections::{HashMap, HashSet};

use crate::ptx::ast::{Function, Module, Operand, Space, Symbol};

pub struct Layout {
    /// Offset and size of each parameter.
    pub parameters: Vec<(usize, usize)>,
    pub parameter_size: usize,
    pub static_shared: usize,
    pub local_size: usize,
    /// Space and address of module variables the function names, and of its own.
    module: HashMap<usize, (Space, u64)>,
    local: Vec<(Space, u64)>,
}

impl Layout {
    pub fn new(module: &Module, function: &Function, global_address: &dyn Fn(usize) -> u64) -> Self {
        let mut layout = Layout {
            parameters: Vec::new(),
            parameter_size: 0,
            static_shared: 0,
            local_size: 0,
            module: HashMap::new(),
            local: Vec::new(),
        };
        for parameter in &function.parameters {
            let offset = layout.parameter_size.next_multiple_of(parameter.align.max(1));
            layout.parameters.push((offset, parameter.size));
            layout.parameter_size = offset + parameter.size;
        }
        for variable in &function.variables {
            let place = match variable.space {
                Space::Shared => (Space::Shared, place(&mut layout.static_shared, variable.align, variable.size)),
                // `.param` variables of a body pass arguments to calls, which are inlined: they are local memory.
                _ => (Space::Local, place(&mut layout.local_size, variable.align, variable.size)),
            };
            layout.local.push(place);
        }
        let named = named_variables(function);
        let mut dynamic = Vec::new();
        for (index, variable) in module.variables.iter().enumerate().filter(|(index, _)| named.contains(index)) {
            match variable.space {
                Space::Shared if variable.is_extern => dynamic.push((index, variable.align)),
                Space::Shared => {
                    let address = place(&mut layout.static_shared, variable.align, variable.size);
                    layout.module.insert(index, (Space::Shared, address));
                }
                space => {
                    layout.module.insert(index, (space, global_address(index)));
                }
            }
        }
        // All `.extern .shared` arrays begin where the static ones end.
        let align = dynamic.iter().map(|(_, align)| *align).max().unwrap_or(1);
        if !dynamic.is_empty() {
            layout.static_shared = layout.static_shared.next_multiple_of(align);
        }
        for (index, _) in dynamic {
            layout.module.insert(index, (Space::Shared, layout.static_shared as u64));
        }
        layout
    }

    /// Space and address of a variable; None for functions.
    pub fn address(&self, symbol: &Symbol) -> Option<(Space, u64)> {
        match symbol {
            Symbol::Module(index) => self.module.get(index).copied(),
            Symbol::Local(index) => self.local.get(*index).copied(),
            Symbol::Parameter(index) => self.parameters.get(*index).map(|(offset, _)| (Space::Param, *offset as u64)),
            Symbol::Return(_) | Symbol::Function(_) => None,
        }
    }
}

fn place(end: &mut usize, align: usize, size: usize) -> u64 {
    let offset = end.next_multiple_of(align.max(1));
    *end = offset + size;
    offset as u64
}

/// Indices of the module variables that a function's operands name.
fn named_variables(function: &Function) -> HashSet<usize> {
    fn visit(operand: &Operand, named: &mut HashSet<usize>) {
        match operand {
            Operand::Symbol { symbol: Symbol::Module(index), .. } => {
                named.insert(*index);
            }
            Operand::Address { base, .. } => visit(base, named),
            Operand::Vector(operands) | Operand::List(operands) => operands.iter().for_each(|o| visit(o, named)),
            Operand::Pair(a, b) => {
                visit(a, named);
                visit(b, named);
            }
            _ => {}
        }
    }
    let mut named = HashSet::new();
    function.instructions.iter().flat_map(|i| &i.operands).for_each(|operand| visit(operand, &mut named));
    named
}
