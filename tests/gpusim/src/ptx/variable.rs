//! Variables: their type, extent and initial bytes.

use super::ast::{Space, Variable};
use super::cursor::{Cursor, describe};
use super::error::Result;
use super::lexer::Token;
use super::types::Type;

/// The space a directive such as `.shared` opens a declaration in.
pub fn space(word: &str) -> Option<Space> {
    Some(match word {
        "global" => Space::Global,
        "const" => Space::Const,
        "shared" => Space::Shared,
        "local" => Space::Local,
        "param" => Space::Param,
        _ => return None,
    })
}

/// What stands before the names of a declaration.
struct Shape {
    align: Option<usize>,
    vector: usize,
    ty: Type,
}

/// `.align 8 .b8 name[40]`: one parameter, its space word already taken.
pub fn parse_parameter(cursor: &mut Cursor) -> Result<Variable> {
    let shape = parse_shape(cursor)?;
    let name = cursor.word()?;
    parse_declarator(cursor, Space::Param, &shape, name, false)
}

/// `.align 4 .b8 a[16], b = 3;`: the declarations up to the semicolon, the space word already taken.
pub fn parse_variables(cursor: &mut Cursor, space: Space, is_extern: bool) -> Result<Vec<Variable>> {
    let shape = parse_shape(cursor)?;
    let mut variables = Vec::new();
    loop {
        let name = cursor.word()?;
        variables.push(parse_declarator(cursor, space, &shape, name, is_extern)?);
        if !cursor.take(',') {
            cursor.expect(';')?;
            return Ok(variables);
        }
    }
}

fn parse_shape(cursor: &mut Cursor) -> Result<Shape> {
    let (mut align, mut vector) = (None, 1);
    loop {
        let Token::Dot(word) = *cursor.peek() else {
            return cursor.error(format!("expected a type, found {}", describe(cursor.peek())));
        };
        cursor.next();
        match word {
            "align" => align = Some(cursor.integer()? as usize),
            "v2" => vector = 2,
            "v4" => vector = 4,
            "attribute" => skip_parentheses(cursor)?,
            _ => match Type::parse(word) {
                Some(ty) => {
                    skip_pointer_attributes(cursor)?;
                    return Ok(Shape { align, vector, ty });
                }
                None => return cursor.error(format!("unknown type `.{word}`")),
            },
        }
    }
}

/// `.ptr .global .align 16`: what a pointer parameter points at.
fn skip_pointer_attributes(cursor: &mut Cursor) -> Result<()> {
    if cursor.take_dot("ptr") {
        while let Token::Dot("global" | "shared" | "const" | "local" | "param" | "align") = *cursor.peek() {
            if cursor.next() == Token::Dot("align") {
                cursor.integer()?;
            }
        }
    }
    Ok(())
}

fn skip_parentheses(cursor: &mut Cursor) -> Result<()> {
    cursor.expect('(')?;
    while !cursor.take(')') {
        if cursor.next() == Token::End {
            return cursor.error("expected ')', found the end");
        }
    }
    Ok(())
}

fn parse_declarator(cursor: &mut Cursor, space: Space, shape: &Shape, name: &str, is_extern: bool) -> Result<Variable> {
    let element = shape.ty.size() * shape.vector;
    let (mut count, mut is_open) = (1usize, false);
    while cursor.take('[') {
        if cursor.take(']') {
            is_open = true;
            continue;
        }
        let extent = cursor.integer()?;
        count = match usize::try_from(extent).ok().and_then(|n| count.checked_mul(n)) {
            Some(count) => count,
            None => return cursor.error(format!("extent {extent} of `{name}`")),
        };
        cursor.expect(']')?;
    }
    let mut variable = Variable {
        space,
        name: name.into(),
        align: shape.align.unwrap_or(element),
        size: if is_open { 0 } else { count * element },
        init: Vec::new(),
        relocations: Vec::new(),
        is_extern,
    };
    if cursor.take('=') {
        parse_initializer(cursor, shape.ty, &mut variable)?;
        if is_open {
            variable.size = variable.init.len();
        } else if variable.init.len() > variable.size {
            return cursor.error(format!(
                "{} bytes of initial values for the {} of `{name}`",
                variable.init.len(),
                variable.size
            ));
        }
    }
    Ok(variable)
}

fn parse_initializer(cursor: &mut Cursor, ty: Type, variable: &mut Variable) -> Result<()> {
    if cursor.take('{') {
        while !cursor.take('}') {
            parse_initializer(cursor, ty, variable)?;
            cursor.take(',');
        }
        return Ok(());
    }
    let value = match *cursor.peek() {
        Token::Float32(bits) if ty.size() == 8 => (f32::from_bits(bits) as f64).to_bits(),
        Token::Float32(bits) => bits as u64,
        Token::Float64(bits) if ty == Type::F32 => (f64::from_bits(bits) as f32).to_bits() as u64,
        Token::Float64(bits) => bits,
        Token::Word(name) => {
            cursor.next();
            // `generic(name)`: every address here is generic.
            let name = if name == "generic" && cursor.take('(') {
                let inner = cursor.word()?;
                cursor.expect(')')?;
                inner
            } else {
                name
            };
            let addend = if cursor.take('+') { cursor.integer()? } else { 0 };
            variable.relocations.push((variable.init.len(), name.into(), addend));
            variable.init.extend(std::iter::repeat_n(0, ty.size()));
            return Ok(());
        }
        _ => {
            let value = cursor.integer()? as u64;
            variable.init.extend(&value.to_le_bytes()[..ty.size().min(8)]);
            return Ok(());
        }
    };
    cursor.next();
    variable.init.extend(&value.to_le_bytes()[..ty.size().min(8)]);
    Ok(())
}
