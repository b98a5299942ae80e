//! Syntax tree to [`inst::Kernel`]: every instruction is understood here, once, or refused with its line.

mod arithmetic;
mod collective;
mod columns;
mod control;
mod decoder;
mod inline;
pub mod inst;
mod layout;
mod liveness;
mod memory;
mod operand;
pub mod words;

pub use decoder::decode;
