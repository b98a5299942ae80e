//! One instruction: guard, opcode, operands.

use super::ast::{Function, Instruction, Operand, Symbol};
use super::cursor::{Cursor, describe};
use super::error::Result;
use super::function::Body;
use super::lexer::Token;
use super::module::module_symbol;

/// A name that can only be a label, to be resolved when the function has ended.
pub struct PendingLabel {
    pub name: String,
    pub scope: usize,
    pub line: u32,
    place: Place,
}

enum Place {
    Operand { instruction: usize, operand: usize },
    List { list: usize, at: usize },
}

impl PendingLabel {
    pub fn in_list(list: usize, at: usize, name: String, scope: usize, line: u32) -> Self {
        PendingLabel { name, scope, line, place: Place::List { list, at } }
    }

    pub fn store(&self, function: &mut Function, value: Operand) {
        match (&self.place, value) {
            (Place::Operand { instruction, operand }, value) => {
                function.instructions[*instruction].operands[*operand] = value
            }
            (Place::List { list, at }, Operand::Label(label)) => function.branch_targets[*list].1[*at] = label,
            (Place::List { .. }, _) => {}
        }
    }
}

/// Parses up to and including the semicolon.
pub fn parse_instruction(cursor: &mut Cursor, body: &mut Body) -> Result<Instruction> {
    let (start, line) = (cursor.start(), cursor.line());
    let guard = parse_guard(cursor, body)?;
    let mut opcode = vec![cursor.word()?.to_string()];
    while let Token::Dot(word) = *cursor.peek() {
        opcode.push(word.to_string());
        cursor.next();
    }
    let mut operands = Vec::new();
    while !cursor.take(';') {
        let operand = parse_operand(cursor, body, operands.len())?;
        operands.push(operand);
        if !cursor.take(',') && *cursor.peek() != Token::Punct(';') {
            return cursor.error(format!("expected ',' or ';', found {}", describe(cursor.peek())));
        }
    }
    let text = cursor.text[start..cursor.previous_end()].split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Instruction { guard, opcode, operands, line, text, location: body.location })
}

fn parse_guard(cursor: &mut Cursor, body: &mut Body) -> Result<Option<(usize, bool)>> {
    if !cursor.take('@') {
        return Ok(None);
    }
    let negated = cursor.take('!');
    let name = cursor.word()?;
    match body.scopes.register(name, &mut body.function.registers) {
        Some(id) => Ok(Some((id, negated))),
        None => cursor.error(format!("predicate `{name}` is not declared")),
    }
}

/// `index` is the operand's place, for labels that are resolved later.
fn parse_operand(cursor: &mut Cursor, body: &mut Body, index: usize) -> Result<Operand> {
    let operand = match *cursor.peek() {
        Token::Punct('{') => Operand::Vector(parse_group(cursor, body, '{', '}')?),
        Token::Punct('(') => Operand::List(parse_group(cursor, body, '(', ')')?),
        Token::Punct('[') => return parse_address(cursor, body),
        Token::Punct('!') => {
            cursor.next();
            let name = cursor.word()?;
            match body.scopes.register(name, &mut body.function.registers) {
                Some(id) => Operand::Register { id, negated: true },
                None => return cursor.error(format!("predicate `{name}` is not declared")),
            }
        }
        Token::Punct('-') | Token::Integer(_) => Operand::Integer(cursor.integer()?),
        Token::Float32(bits) => {
            cursor.next();
            Operand::Float32(bits)
        }
        Token::Float64(bits) => {
            cursor.next();
            Operand::Float64(bits)
        }
        Token::Word(name) => parse_name(cursor, body, name, index)?,
        ref other => return cursor.error(format!("expected an operand, found {}", describe(other))),
    };
    if cursor.take('|') {
        let second = parse_operand(cursor, body, index)?;
        return Ok(Operand::Pair(Box::new(operand), Box::new(second)));
    }
    // `name + 8` outside brackets.
    if let Operand::Symbol { symbol, .. } = &operand
        && cursor.take('+')
    {
        return Ok(Operand::Symbol { symbol: symbol.clone(), offset: cursor.integer()? });
    }
    Ok(operand)
}

fn parse_group(cursor: &mut Cursor, body: &mut Body, open: char, close: char) -> Result<Vec<Operand>> {
    cursor.expect(open)?;
    let mut operands = Vec::new();
    while !cursor.take(close) {
        operands.push(parse_operand(cursor, body, usize::MAX)?);
        if !cursor.take(',') && *cursor.peek() != Token::Punct(close) {
            return cursor.error(format!("expected ',' or '{close}', found {}", describe(cursor.peek())));
        }
    }
    Ok(operands)
}

fn parse_name(cursor: &mut Cursor, body: &mut Body, name: &str, index: usize) -> Result<Operand> {
    let (line, scope) = (cursor.line(), body.scopes.current());
    if name == "_" {
        cursor.next();
        return Ok(Operand::Sink);
    }
    if let Some(id) = body.scopes.register(name, &mut body.function.registers) {
        cursor.next();
        return Ok(Operand::Register { id, negated: false });
    }
    if let Some(operand) = body.scopes.variable(name) {
        cursor.next();
        return Ok(operand);
    }
    if let Some(symbol) = module_symbol(body.module, name) {
        cursor.next();
        return Ok(Operand::Symbol { symbol, offset: 0 });
    }
    if name == body.function.name {
        cursor.next();
        return Ok(Operand::Symbol { symbol: Symbol::Function(name.into()), offset: 0 });
    }
    if name.starts_with('%') {
        return parse_special(cursor, name);
    }
    if name == "WARP_SZ" {
        cursor.next();
        return Ok(Operand::Integer(32));
    }
    if index == usize::MAX {
        return cursor.error(format!("`{name}` is not declared"));
    }
    cursor.next();
    let place = Place::Operand { instruction: body.function.instructions.len(), operand: index };
    body.pending.push(PendingLabel { name: name.into(), scope, line, place });
    Ok(Operand::Sink)
}

/// `%tid.x` and the like; what is no special register is an undeclared name.
fn parse_special(cursor: &mut Cursor, name: &str) -> Result<Operand> {
    const WITH_COMPONENT: [&str; 8] =
        ["%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"];
    const SCALAR: [&str; 19] = [
        "%laneid",
        "%warpid",
        "%nwarpid",
        "%smid",
        "%nsmid",
        "%gridid",
        "%lanemask_eq",
        "%lanemask_le",
        "%lanemask_lt",
        "%lanemask_ge",
        "%lanemask_gt",
        "%clock",
        "%clock_hi",
        "%clock64",
        "%globaltimer",
        "%globaltimer_lo",
        "%globaltimer_hi",
        "%total_smem_size",
        "%dynamic_smem_size",
    ];
    if SCALAR.contains(&name) || name == "%is_explicit_cluster" {
        cursor.next();
        return Ok(Operand::Special(name.into()));
    }
    if WITH_COMPONENT.contains(&name)
        && let Token::Dot(component @ ("x" | "y" | "z")) = *cursor.peek_at(1)
    {
        cursor.next();
        cursor.next();
        return Ok(Operand::Special(format!("{name}.{component}")));
    }
    cursor.error(format!("`{name}` is not declared"))
}

fn parse_address(cursor: &mut Cursor, body: &mut Body) -> Result<Operand> {
    cursor.expect('[')?;
    let base = match *cursor.peek() {
        Token::Punct('-') | Token::Integer(_) => Operand::Integer(cursor.integer()?),
        Token::Word(name) => parse_name(cursor, body, name, usize::MAX)?,
        ref other => return cursor.error(format!("expected an address, found {}", describe(other))),
    };
    let has_offset = cursor.take('+') || *cursor.peek() == Token::Punct('-');
    let offset = if has_offset { cursor.integer()? } else { 0 };
    cursor.expect(']')?;
    Ok(Operand::Address { base: Box::new(base), offset })
}
