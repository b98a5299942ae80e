//! A position in the tokens, with the small questions a recursive-descent parser asks.

use super::error::{PtxError, Result};
use super::lexer::{Lexeme, Token};

pub struct Cursor<'a> {
    pub text: &'a str,
    tokens: Vec<Lexeme<'a>>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str, tokens: Vec<Lexeme<'a>>) -> Self {
        Cursor { text, tokens, at: 0 }
    }

    pub fn peek(&self) -> &Token<'a> {
        self.peek_at(0)
    }

    pub fn peek_at(&self, ahead: usize) -> &Token<'a> {
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)].token
    }

    pub fn line(&self) -> u32 {
        self.tokens[self.at].line
    }

    /// Byte offset of the next token.
    pub fn start(&self) -> usize {
        self.tokens[self.at].start
    }

    /// Byte offset of the end of the token before.
    pub fn previous_end(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].end
    }

    pub fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at].token.clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(PtxError::new(self.line(), message))
    }

    /// Takes `c` if it comes next.
    pub fn take(&mut self, c: char) -> bool {
        let found = *self.peek() == Token::Punct(c);
        if found {
            self.next();
        }
        found
    }

    pub fn expect(&mut self, c: char) -> Result<()> {
        if self.take(c) { Ok(()) } else { self.error(format!("expected '{c}', found {}", describe(self.peek()))) }
    }

    /// Takes the directive or modifier `.word` if it comes next.
    pub fn take_dot(&mut self, word: &str) -> bool {
        let found = *self.peek() == Token::Dot(word);
        if found {
            self.next();
        }
        found
    }

    /// The next token, which must be a name.
    pub fn word(&mut self) -> Result<&'a str> {
        match *self.peek() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            ref other => self.error(format!("expected a name, found {}", describe(other))),
        }
    }

    /// An integer, signed.
    pub fn integer(&mut self) -> Result<i64> {
        let negative = self.take('-');
        match *self.peek() {
            Token::Integer(value) => {
                self.next();
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            ref other => self.error(format!("expected a number, found {}", describe(other))),
        }
    }

    /// Skips to after the closing brace of a block whose opening brace comes next.
    pub fn skip_block(&mut self) -> Result<()> {
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Token::Punct('{') => depth += 1,
                Token::Punct('}') => depth -= 1,
                Token::End => return self.error("a block without end"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Skips to after the next semicolon.
    pub fn skip_statement(&mut self) -> Result<()> {
        loop {
            match self.next() {
                Token::Punct(';') => return Ok(()),
                Token::End => return self.error("expected ';', found the end"),
                _ => {}
            }
        }
    }

    /// Skips tokens while they are on `line`.
    pub fn skip_line(&mut self, line: u32) {
        while self.line() == line && *self.peek() != Token::End {
            self.next();
        }
    }
}

/// A token in words, for messages.
pub fn describe(token: &Token) -> String {
    match token {
        Token::Word(word) => format!("`{word}`"),
        Token::Dot(word) => format!("`.{word}`"),
        Token::Integer(value) => format!("`{value}`"),
        Token::Float32(_) | Token::Float64(_) => "a float".into(),
        Token::Text(_) => "a string".into(),
        Token::Punct(c) => format!("'{c}'"),
        Token::End => "the end".into(),
    }
}
