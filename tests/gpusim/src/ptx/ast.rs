//! What the parser makes of a PTX text: names resolved to indices, instructions still as words.

use super::types::Type;

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
    Generic,
}

/// A variable of a module, a function or a parameter list.
#[derive(Clone, Debug)]
pub struct Variable {
    pub space: Space,
    pub name: String,
    pub align: usize,
    /// Bytes; 0 for `.extern .shared x[]`, whose size the launch gives.
    pub size: usize,
    /// Initial bytes, shorter than `size` where the rest is zero; empty without an initialiser.
    pub init: Vec<u8>,
    /// Addresses of other variables inside `init`: (byte offset, variable's name, addend).
    pub relocations: Vec<(usize, String, i64)>,
    pub is_extern: bool,
}

/// A virtual register as declared.
#[derive(Clone, Debug)]
pub struct Register {
    pub name: String,
    pub ty: Type,
}

/// A name's meaning where an address or a function is expected.
#[derive(Clone, Debug, PartialEq)]
pub enum Symbol {
    /// Index into [`Module::variables`].
    Module(usize),
    /// Index into [`Function::variables`].
    Local(usize),
    /// Index into [`Function::parameters`].
    Parameter(usize),
    /// Index into [`Function::returns`].
    Return(usize),
    /// A device function (or a function the driver provides, such as `vprintf`).
    Function(String),
}

/// One operand of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// Index into [`Function::registers`]; `negated` for `!%p` as a source.
    Register {
        id: usize,
        negated: bool,
    },
    /// A component of a special register such as `%tid.x`.
    Special(String),
    Integer(i64),
    /// `0f3F800000`: the bits.
    Float32(u32),
    /// `0d…` or a decimal fraction.
    Float64(u64),
    Symbol {
        symbol: Symbol,
        offset: i64,
    },
    /// `[base + offset]`; the base is a register, a symbol or (alone) an integer.
    Address {
        base: Box<Operand>,
        offset: i64,
    },
    Vector(Vec<Operand>),
    /// `%p|%q` and `%r|%p`.
    Pair(Box<Operand>, Box<Operand>),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
    /// Index into [`Function::labels`].
    Label(usize),
    /// `_`: the value is not wanted.
    Sink,
}

/// An instruction as words.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The predicate register and whether it is negated.
    pub guard: Option<(usize, bool)>,
    /// `ld.global.f32` as `["ld", "global", "f32"]`.
    pub opcode: Vec<String>,
    pub operands: Vec<Operand>,
    pub line: u32,
    /// The instruction as written, white space squeezed.
    pub text: String,
    /// Source file (index of `.file`) and line of the last `.loc`.
    pub location: Option<(u32, u32)>,
}

/// `.entry` or `.func` with a body (declarations without one have `has_body` false).
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub is_entry: bool,
    pub has_body: bool,
    pub returns: Vec<Variable>,
    pub parameters: Vec<Variable>,
    pub registers: Vec<Register>,
    pub variables: Vec<Variable>,
    pub instructions: Vec<Instruction>,
    /// Per label: its name and the index of the instruction it stands before.
    pub labels: Vec<(String, usize)>,
    /// Lists of labels for `brx.idx`: name and label indices.
    pub branch_targets: Vec<(String, Vec<usize>)>,
    /// `.maxntid` or `.reqntid`, multiplied out.
    pub max_threads: Option<u32>,
    pub required_threads: Option<[u32; 3]>,
    pub line: u32,
}

/// A parsed PTX text.
#[derive(Clone, Debug, Default)]
pub struct Module {
    pub version: (u32, u32),
    pub target: String,
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
    /// `.file` directives: index and path.
    pub files: Vec<(u32, String)>,
}

impl Module {
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name && f.has_body)
    }
}
