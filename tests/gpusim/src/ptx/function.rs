//! `.entry` and `.func`: parameters, tuning directives, and the body.

use super::ast::{Function, Module, Operand, Space, Symbol, Variable};
use super::cursor::{Cursor, describe};
use super::error::{PtxError, Result};
use super::instruction::{PendingLabel, parse_instruction};
use super::lexer::Token;
use super::scope::Scopes;
use super::types::Type;
use super::variable::{parse_parameter, parse_variables, space};

/// A function being parsed: what instructions need to resolve names.
pub struct Body<'m> {
    pub module: &'m Module,
    pub function: Function,
    pub scopes: Scopes,
    pub location: Option<(u32, u32)>,
    /// Operands that name labels, to be resolved at the function's end.
    pub pending: Vec<PendingLabel>,
}

/// Parses from after `.entry` or `.func` to the closing brace or semicolon.
pub fn parse_function(cursor: &mut Cursor, module: &Module, is_entry: bool) -> Result<Function> {
    let line = cursor.line();
    let returns = if !is_entry && *cursor.peek() == Token::Punct('(') { parse_parameters(cursor)? } else { Vec::new() };
    let name = cursor.word()?.to_string();
    let parameters = if *cursor.peek() == Token::Punct('(') { parse_parameters(cursor)? } else { Vec::new() };
    let function = Function {
        name,
        is_entry,
        has_body: false,
        returns,
        parameters,
        registers: Vec::new(),
        variables: Vec::new(),
        instructions: Vec::new(),
        labels: Vec::new(),
        branch_targets: Vec::new(),
        max_threads: None,
        required_threads: None,
        line,
    };
    let mut body = Body { module, function, scopes: Scopes::new(), location: None, pending: Vec::new() };
    parse_tuning(cursor, &mut body.function)?;
    if cursor.take(';') {
        return Ok(body.function);
    }
    body.declare_parameters();
    cursor.expect('{')?;
    body.function.has_body = true;
    body.parse_statements(cursor)?;
    body.resolve_labels()?;
    Ok(body.function)
}

/// `( .param .u64 a, .reg .b32 b )`.
fn parse_parameters(cursor: &mut Cursor) -> Result<Vec<Variable>> {
    cursor.expect('(')?;
    let mut parameters = Vec::new();
    while !cursor.take(')') {
        if !cursor.take_dot("param") {
            return cursor.error(format!("expected `.param`, found {}", describe(cursor.peek())));
        }
        parameters.push(parse_parameter(cursor)?);
        cursor.take(',');
    }
    Ok(parameters)
}

fn parse_tuning(cursor: &mut Cursor, function: &mut Function) -> Result<()> {
    while let Token::Dot(word) = *cursor.peek() {
        cursor.next();
        match word {
            "maxntid" => {
                let extents = parse_extents(cursor)?;
                function.max_threads = Some(extents.iter().product());
            }
            "reqntid" => {
                let extents = parse_extents(cursor)?;
                function.max_threads = Some(extents.iter().product());
                function.required_threads = Some(extents);
            }
            "minnctapersm" | "maxnctapersm" | "maxnreg" | "reqnctapercluster" | "maxclusterrank" => {
                parse_extents(cursor)?;
            }
            "explicitcluster" | "noreturn" | "blocksareclusters" => {}
            "pragma" => cursor.skip_statement()?,
            _ => return cursor.error(format!("unknown directive `.{word}`")),
        }
    }
    Ok(())
}

fn parse_extents(cursor: &mut Cursor) -> Result<[u32; 3]> {
    let mut extents = [1u32; 3];
    for i in 0..3 {
        extents[i] = match u32::try_from(cursor.integer()?) {
            Ok(extent) if (1..=1 << 16).contains(&extent) => extent,
            _ => return cursor.error("an extent outside 1..65536"),
        };
        if !cursor.take(',') {
            break;
        }
    }
    Ok(extents)
}

impl Body<'_> {
    fn declare_parameters(&mut self) {
        for (i, parameter) in self.function.parameters.iter().enumerate() {
            self.scopes.declare_variable(&parameter.name, Symbol::Parameter(i));
        }
        for (i, value) in self.function.returns.iter().enumerate() {
            self.scopes.declare_variable(&value.name, Symbol::Return(i));
        }
    }

    fn parse_statements(&mut self, cursor: &mut Cursor) -> Result<()> {
        loop {
            match *cursor.peek() {
                Token::Punct('}') => {
                    cursor.next();
                    if !self.scopes.close() {
                        return Ok(());
                    }
                }
                Token::Punct('{') => {
                    cursor.next();
                    self.scopes.open();
                }
                Token::Punct(';') => {
                    cursor.next();
                }
                Token::Dot(word) => self.parse_directive(cursor, word)?,
                Token::Word(name) if *cursor.peek_at(1) == Token::Punct(':') => self.parse_label(cursor, name)?,
                Token::End => return cursor.error("a function without end"),
                _ => {
                    let instruction = parse_instruction(cursor, self)?;
                    self.function.instructions.push(instruction);
                }
            }
        }
    }

    fn parse_label(&mut self, cursor: &mut Cursor, name: &str) -> Result<()> {
        cursor.next();
        cursor.next();
        if *cursor.peek() == Token::Dot("branchtargets") {
            return self.parse_branch_targets(cursor, name);
        }
        if *cursor.peek() == Token::Dot("callprototype") {
            return cursor.error("calls through pointers are not supported");
        }
        let label = self.function.labels.len();
        self.function.labels.push((name.into(), self.function.instructions.len()));
        if self.scopes.declare_label(name, label) {
            Ok(())
        } else {
            cursor.error(format!("label `{name}` declared twice"))
        }
    }

    /// `ts: .branchtargets a, b;`: the labels are resolved with the others.
    fn parse_branch_targets(&mut self, cursor: &mut Cursor, name: &str) -> Result<()> {
        cursor.next();
        let list = self.function.branch_targets.len();
        self.function.branch_targets.push((name.into(), Vec::new()));
        let mut at = 0;
        loop {
            let (line, name) = (cursor.line(), cursor.word()?.to_string());
            self.function.branch_targets[list].1.push(usize::MAX);
            self.pending.push(PendingLabel::in_list(list, at, name, self.scopes.current(), line));
            at += 1;
            if !cursor.take(',') {
                return cursor.expect(';');
            }
        }
    }

    fn parse_directive(&mut self, cursor: &mut Cursor, word: &str) -> Result<()> {
        cursor.next();
        match word {
            "reg" => self.parse_registers(cursor),
            "loc" => {
                let line = cursor.line();
                let (file, source_line) = (cursor.integer()? as u32, cursor.integer()? as u32);
                self.location = Some((file, source_line));
                cursor.skip_line(line);
                Ok(())
            }
            "pragma" => cursor.skip_statement(),
            _ => match space(word) {
                Some(space) => self.parse_body_variables(cursor, space),
                None => cursor.error(format!("unknown directive `.{word}`")),
            },
        }
    }

    fn parse_body_variables(&mut self, cursor: &mut Cursor, space: Space) -> Result<()> {
        for variable in parse_variables(cursor, space, false)? {
            self.scopes.declare_variable(&variable.name, Symbol::Local(self.function.variables.len()));
            self.function.variables.push(variable);
        }
        Ok(())
    }

    /// `.b32 %r<10>, %x;`.
    fn parse_registers(&mut self, cursor: &mut Cursor) -> Result<()> {
        let Token::Dot(word) = cursor.next() else { return cursor.error("expected a register's type") };
        let Some(ty) = Type::parse(word) else {
            return cursor.error(format!("registers of type `.{word}` are not supported"));
        };
        loop {
            let name = cursor.word()?;
            if cursor.take('<') {
                let count = cursor.integer()?;
                self.scopes.declare_registers(name, ty, u32::try_from(count).unwrap_or(0));
                cursor.expect('>')?;
            } else {
                self.scopes.declare_register(name, ty, &mut self.function.registers);
            }
            if !cursor.take(',') {
                return cursor.expect(';');
            }
        }
    }

    fn resolve_labels(&mut self) -> Result<()> {
        for pending in std::mem::take(&mut self.pending) {
            let Some(label) = self.scopes.label(pending.scope, &pending.name) else {
                if let Some(list) = self.function.branch_targets.iter().position(|(name, _)| *name == pending.name) {
                    pending.store(&mut self.function, Operand::Integer(list as i64));
                    continue;
                }
                return Err(PtxError::new(pending.line, format!("`{}` is not declared", pending.name)));
            };
            pending.store(&mut self.function, Operand::Label(label));
        }
        Ok(())
    }
}
