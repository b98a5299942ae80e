//! Cuts a PTX text into tokens.

use super::error::{PtxError, Result};

#[derive(Clone, Debug, PartialEq)]
pub enum Token<'a> {
    /// A name, a register (`%r1`), an opcode's first word, or `_`.
    Word(&'a str),
    /// A dot and what follows it: directives, modifiers, `.x`. Without the dot.
    Dot(&'a str),
    Integer(i64),
    Float32(u32),
    Float64(u64),
    Text(&'a str),
    Punct(char),
    End,
}

/// A token, its line (from 1) and where it starts and ends in the text.
#[derive(Clone, Debug)]
pub struct Lexeme<'a> {
    pub token: Token<'a>,
    pub line: u32,
    pub start: usize,
    pub end: usize,
}

/// All tokens of `text`, with one `End` at the end.
pub fn tokenize(text: &str) -> Result<Vec<Lexeme<'_>>> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut lexemes = Vec::with_capacity(text.len() / 4);
    loop {
        lexer.skip_blank()?;
        let (start, line) = (lexer.at, lexer.line);
        let token = lexer.token()?;
        let is_end = token == Token::End;
        lexemes.push(Lexeme { token, line, start, end: lexer.at });
        if is_end {
            return Ok(lexemes);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

fn is_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$'
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(PtxError::new(self.line, message))
    }

    fn skip_blank(&mut self) -> Result<()> {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    while self.at < self.text.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                b'/' if self.peek(1) == b'*' => {
                    let Some(length) = self.text[self.at..].find("*/") else {
                        return self.error("comment without end");
                    };
                    self.line += self.text[self.at..self.at + length].matches('\n').count() as u32;
                    self.at += length + 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn token(&mut self) -> Result<Token<'a>> {
        let c = self.peek(0);
        match c {
            0 if self.at >= self.text.len() => Ok(Token::End),
            b'0'..=b'9' => self.number(),
            b'"' => {
                let Some(length) = self.text[self.at + 1..].find('"') else { return self.error("string without end") };
                let text = &self.text[self.at + 1..self.at + 1 + length];
                self.line += text.matches('\n').count() as u32;
                self.at += length + 2;
                Ok(Token::Text(text))
            }
            b'.' => {
                self.at += 1;
                let word = self.name();
                if word.is_empty() { self.error("a dot with no word") } else { Ok(Token::Dot(word)) }
            }
            b'%' | b'_' | b'$' | b'a'..=b'z' | b'A'..=b'Z' => {
                let start = self.at;
                self.at += 1;
                self.name();
                Ok(Token::Word(&self.text[start..self.at]))
            }
            _ => match self.text[self.at..].chars().next() {
                Some(c) if c.is_ascii() => {
                    self.at += 1;
                    Ok(Token::Punct(c))
                }
                _ => self.error("a character outside ASCII"),
            },
        }
    }

    /// Letters, digits, `_`, `$`, and `::` inside (`L2::128B`).
    fn name(&mut self) -> &'a str {
        let start = self.at;
        loop {
            if is_name(self.peek(0)) {
                self.at += 1;
            } else if self.peek(0) == b':' && self.peek(1) == b':' {
                self.at += 2;
            } else {
                return &self.text[start..self.at];
            }
        }
    }

    fn number(&mut self) -> Result<Token<'a>> {
        let start = self.at;
        while is_name(self.peek(0)) {
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let value = match word.as_bytes() {
            [b'0', b'f' | b'F', rest @ ..] if rest.len() == 8 => return self.bits32(&word[2..]),
            [b'0', b'd' | b'D', rest @ ..] if rest.len() == 16 => {
                return match hex(&word[2..]) {
                    Some(bits) => Ok(Token::Float64(bits)),
                    None => self.error(format!("not a number: {word}")),
                };
            }
            _ if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() => return self.decimal_fraction(start),
            [b'0', b'x' | b'X', ..] => hex(word[2..].trim_end_matches('U')),
            [b'0', b'b' | b'B', ..] => u64::from_str_radix(word[2..].trim_end_matches('U'), 2).ok(),
            [b'0', _, ..] => u64::from_str_radix(word[1..].trim_end_matches('U'), 8).ok(),
            _ => word.trim_end_matches('U').parse::<u64>().ok(),
        };
        match value {
            Some(value) => Ok(Token::Integer(value as i64)),
            None => self.error(format!("not a number: {word}")),
        }
    }

    fn bits32(&self, digits: &str) -> Result<Token<'a>> {
        match u32::from_str_radix(digits, 16) {
            Ok(bits) => Ok(Token::Float32(bits)),
            Err(_) => self.error(format!("not a number: 0f{digits}")),
        }
    }

    fn decimal_fraction(&mut self, start: usize) -> Result<Token<'a>> {
        self.at += 1;
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
        if matches!(self.peek(0), b'e' | b'E') {
            self.at += if matches!(self.peek(1), b'+' | b'-') { 2 } else { 1 };
            while self.peek(0).is_ascii_digit() {
                self.at += 1;
            }
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(value) => Ok(Token::Float64(value.to_bits())),
            Err(_) => self.error(format!("not a number: {}", &self.text[start..self.at])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_an_instruction() {
        let tokens: Vec<Token> = tokenize("@!%p1 ld.global.L2::128B.f32 %f1, [%rd2+-4]; // end")
            .unwrap()
            .into_iter()
            .map(|l| l.token)
            .collect();
        use Token::*;
        let expected = [
            Punct('@'),
            Punct('!'),
            Word("%p1"),
            Word("ld"),
            Dot("global"),
            Dot("L2::128B"),
            Dot("f32"),
            Word("%f1"),
            Punct(','),
            Punct('['),
            Word("%rd2"),
            Punct('+'),
            Punct('-'),
            Integer(4),
            Punct(']'),
            Punct(';'),
            End,
        ];
        assert_eq!(tokens, expected);
    }

    #[test]
    fn reads_numbers() {
        for (text, token) in [
            ("0x10", Token::Integer(16)),
            ("010", Token::Integer(8)),
            ("0b101", Token::Integer(5)),
            ("18446744073709551615U", Token::Integer(-1)),
            ("0f3F800000", Token::Float32(0x3f80_0000)),
            ("0d3FF0000000000000", Token::Float64(0x3ff0_0000_0000_0000)),
            ("1.5e2", Token::Float64(150f64.to_bits())),
        ] {
            assert_eq!(tokenize(text).unwrap()[0].token, token, "{text}");
        }
        assert!(tokenize("0xZZ").is_err());
    }
}
