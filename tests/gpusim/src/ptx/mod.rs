//! PTX text to syntax tree. The grammar is that of the PTX ISA 9.0 as nvcc 13.0 writes it, inline assembly included.

pub mod ast;
mod cursor;
pub mod error;
mod function;
mod instruction;
mod lexer;
mod module;
mod scope;
pub mod types;
mod variable;

pub use error::{PtxError, Result};
pub use module::parse;
pub use types::Type;
