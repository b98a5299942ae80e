//! The outermost level: version, variables, functions, debug sections.

use super::ast::{Module, Symbol};
use super::cursor::{Cursor, describe};
use super::error::Result;
use super::function::parse_function;
use super::lexer::{Token, tokenize};
use super::variable::{parse_variables, space};

/// Parses a PTX text. Names are resolved; instructions are checked when they are decoded.
pub fn parse(text: &str) -> Result<Module> {
    let mut cursor = Cursor::new(text, tokenize(text)?);
    let mut module = Module::default();
    let mut is_extern = false;
    loop {
        let line = cursor.line();
        match cursor.next() {
            Token::End => return Ok(module),
            Token::Punct(';') => {}
            Token::Dot(word) => match word {
                "version" => module.version = parse_version(&mut cursor, line)?,
                "target" => parse_target(&mut cursor, &mut module)?,
                "address_size" => {
                    if cursor.integer()? != 64 {
                        return cursor.error("only 64-bit addresses are supported");
                    }
                }
                "visible" | "weak" | "common" => {}
                "extern" => is_extern = true,
                "file" => parse_file(&mut cursor, &mut module)?,
                "section" => {
                    cursor.next();
                    cursor.skip_block()?;
                }
                "pragma" | "alias" => cursor.skip_statement()?,
                "entry" | "func" => {
                    let function = parse_function(&mut cursor, &module, word == "entry")?;
                    module.functions.push(function);
                    is_extern = false;
                }
                _ => match space(word) {
                    Some(space) => {
                        module.variables.extend(parse_variables(&mut cursor, space, is_extern)?);
                        is_extern = false;
                    }
                    None => return cursor.error(format!("unknown directive `.{word}`")),
                },
            },
            other => return cursor.error(format!("expected a directive, found {}", describe(&other))),
        }
    }
}

fn parse_version(cursor: &mut Cursor, line: u32) -> Result<(u32, u32)> {
    match cursor.next() {
        // The lexer reads `9.0` as a decimal fraction; minor versions have one digit.
        Token::Float64(bits) => {
            let tenths = (f64::from_bits(bits) * 10.0).round() as u32;
            Ok((tenths / 10, tenths % 10))
        }
        other => Err(super::PtxError::new(line, format!("expected a version, found {}", describe(&other)))),
    }
}

fn parse_target(cursor: &mut Cursor, module: &mut Module) -> Result<()> {
    module.target = cursor.word()?.into();
    while cursor.take(',') {
        cursor.word()?;
    }
    Ok(())
}

fn parse_file(cursor: &mut Cursor, module: &mut Module) -> Result<()> {
    let index = cursor.integer()? as u32;
    if let Token::Text(path) = cursor.next() {
        module.files.push((index, path.into()));
    }
    while cursor.take(',') {
        cursor.integer()?;
    }
    Ok(())
}

/// What a name means at module level.
pub fn module_symbol(module: &Module, name: &str) -> Option<Symbol> {
    if let Some(index) = module.variables.iter().position(|v| v.name == name) {
        return Some(Symbol::Module(index));
    }
    module.functions.iter().any(|f| f.name == name).then(|| Symbol::Function(name.into()))
}

#[cfg(test)]
mod tests {
    use super::super::ast::Operand;
    use super::*;

    const HEADER: &str = ".version 9.0\n.target sm_80\n.address_size 64\n";

    #[test]
    fn parses_a_kernel() {
        let text = format!(
            "{HEADER}.extern .shared .align 16 .b8 smem[];\n.const .align 4 .f32 table[2] = {{0f3F800000, 2.5}};\n\
             .visible .entry add(.param .u64 add_param_0, .param .align 8 .b8 add_param_1[24])\n.maxntid 128, 1, 1\n{{\n\
             .reg .pred %p<2>;\n.reg .b32 %r<3>;\n mov.u32 %r1, %tid.x;\n$L_0:\n {{ .reg .b32 %r1; mov.u32 %r1, smem; }}\n\
             @!%p1 bra $L_0;\n ret;\n}}"
        );
        let module = parse(&text).unwrap();
        assert_eq!((module.version, module.target.as_str()), ((9, 0), "sm_80"));
        assert_eq!(module.variables[1].init, [0, 0, 128, 63, 0, 0, 32, 64]);
        let kernel = module.function("add").unwrap();
        assert_eq!((kernel.max_threads, kernel.parameters[1].size), (Some(128), 24));
        assert_eq!(kernel.labels, [("$L_0".to_string(), 1)]);
        // The inner %r1 is another register than the outer one.
        let destination = |i: usize| kernel.instructions[i].operands[0].clone();
        assert_ne!(destination(0), destination(1));
        assert_eq!(kernel.instructions[2].operands, [Operand::Label(0)]);
        assert!(kernel.instructions[2].guard.is_some_and(|(_, negated)| negated));
    }

    #[test]
    fn says_where_it_failed() {
        let error = parse(&format!("{HEADER}.entry f()\n{{\n mov.u32 %r1, 0;\n}}")).unwrap_err();
        assert_eq!(error.line, 6);
        assert!(error.message.contains("%r1"), "{error}");
    }
}
