//! An opcode's words, each to be claimed: a modifier nobody claimed is an error, never ignored.

use std::cell::Cell;

use crate::ptx::Type;

pub struct Words<'a> {
    words: &'a [String],
    types: Vec<Type>,
    claimed: Cell<u64>,
}

impl<'a> Words<'a> {
    pub fn new(words: &'a [String]) -> Self {
        let (mut types, mut claimed) = (Vec::new(), 1);
        for (i, word) in words.iter().enumerate().skip(1) {
            if let Some(ty) = Type::parse(word) {
                types.push(ty);
                claimed |= 1 << i;
            }
        }
        Words { words, types, claimed: Cell::new(claimed) }
    }

    /// The word before the first dot.
    pub fn base(&self) -> &'a str {
        &self.words[0]
    }

    /// The types among the modifiers, in order.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// Whether the modifier is there; claims it.
    pub fn take(&self, word: &str) -> bool {
        match self.words.iter().skip(1).position(|w| w == word) {
            Some(i) => {
                self.claimed.set(self.claimed.get() | 2 << i);
                true
            }
            None => false,
        }
    }

    /// The first of `words` that is there; claims it.
    pub fn take_one<'w>(&self, words: &[&'w str]) -> Option<&'w str> {
        words.iter().copied().find(|word| self.take(word))
    }

    /// Claims every modifier that starts with one of `prefixes` (cache hints and the like).
    pub fn take_prefixed(&self, prefixes: &[&str]) {
        for (i, word) in self.words.iter().enumerate().skip(1) {
            if prefixes.iter().any(|prefix| word.starts_with(prefix)) {
                self.claimed.set(self.claimed.get() | 1 << i);
            }
        }
    }

    /// A modifier nobody claimed.
    pub fn unclaimed(&self) -> Option<&'a str> {
        (0..self.words.len()).find(|i| self.claimed.get() >> i & 1 == 0).map(|i| self.words[i].as_str())
    }
}
