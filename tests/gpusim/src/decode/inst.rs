//! The compact form of an instruction: operands are register columns (constants and special registers too), labels are
//! program counters, and what a per-lane instruction computes is a function.

use crate::alu::convert::Conversion;
use crate::alu::lanes::{Args, Compare, Run};
use crate::exec::registers::Reg;
use crate::ptx::ast::Space;

/// A predicate: its register, and whether it is taken negated.
#[derive(Clone, Copy, Debug)]
pub struct Predicate {
    pub reg: Reg,
    pub negated: bool,
}

pub struct Inst {
    pub guard: Option<Predicate>,
    pub op: Op,
}

/// Register and width in bytes of one element of a load, store or atomic.
#[derive(Clone, Copy, Debug, Default)]
pub struct Element {
    pub reg: Reg,
    /// 2, 4 or 8; 0 where the value is not wanted.
    pub width: u8,
}

/// What an address is made of.
#[derive(Clone, Copy, Debug)]
pub enum Base {
    None,
    /// A 32-bit register (shared memory).
    Narrow(Reg),
    Wide(Reg),
}

#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub space: Space,
    pub base: Base,
    pub offset: i64,
}

/// A load or store: `count` elements of `size` bytes, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub address: Address,
    pub size: u8,
    pub count: u8,
    /// Sub-word loads extend their sign.
    pub signed: bool,
    /// `.volatile`, `.relaxed`, `.acquire`, `.release`: meant to meet other threads' accesses.
    pub strong: bool,
    pub elements: [Element; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    And,
    Or,
    Xor,
    Exchange,
    CompareSwap,
    Add,
    Increment,
    Decrement,
    Min,
    Max,
}

/// How an atomic reads its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicType {
    U32,
    S32,
    U64,
    S64,
    F32,
    F64,
    F16x2,
    Bf16x2,
    U16,
    F16,
    Bf16,
}

impl AtomicType {
    pub fn size(self) -> usize {
        match self {
            AtomicType::U16 | AtomicType::F16 | AtomicType::Bf16 => 2,
            AtomicType::U64 | AtomicType::S64 | AtomicType::F64 => 8,
            _ => 4,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    pub address: Address,
    pub op: AtomicOp,
    pub ty: AtomicType,
    /// None for `red`.
    pub d: Option<Reg>,
    pub b: Reg,
    pub c: Reg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// `bar.sync`, `bar.arrive`, `bar.red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    Sync,
    Arrive,
    Popc,
    And,
    Or,
}

#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    pub kind: BarrierKind,
    pub id: Reg,
    /// Threads expected; None: all of the CTA.
    pub count: Option<Reg>,
    pub d: Reg,
    pub predicate: Option<Predicate>,
    /// `bar` and `.aligned`: all threads of a warp take part together.
    pub aligned: bool,
}

/// Shape and types of an `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmaKind {
    /// m16n8k16 and m16n8k8 with bf16 factors.
    Bf16 {
        k: usize,
    },
    F16 {
        k: usize,
        half_accumulator: bool,
    },
    Tf32 {
        k: usize,
    },
    /// m16n8k16 and m16n8k32 with 8-bit factors.
    Int8 {
        k: usize,
        a_signed: bool,
        b_signed: bool,
    },
}

impl MmaKind {
    pub fn k(self) -> usize {
        match self {
            MmaKind::Bf16 { k } | MmaKind::F16 { k, .. } | MmaKind::Tf32 { k } | MmaKind::Int8 { k, .. } => k,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Mma {
    pub kind: MmaKind,
    pub d: [Reg; 4],
    pub a: [Reg; 4],
    pub b: [Reg; 2],
    pub c: [Reg; 4],
}

/// A value that changes while a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Low32,
    High32,
    Wide,
    GlobalTimer,
}

/// How two predicates are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    And,
    Or,
    Xor,
}

pub enum Op {
    Lanes(Run, Args),
    Convert {
        conversion: Conversion,
        d: Reg,
        target_size: u8,
        s: Reg,
        source_size: u8,
    },
    /// `p|q = compare(a, b) logic c`.
    SetPredicate {
        compare: Compare,
        a: Reg,
        b: Reg,
        combine: Option<(Logic, Predicate)>,
        p: Option<Reg>,
        q: Option<Reg>,
    },
    /// `set`: all ones or 1.0 where the comparison holds.
    Set {
        compare: Compare,
        a: Reg,
        b: Reg,
        combine: Option<(Logic, Predicate)>,
        d: Reg,
        ones: u32,
    },
    PredicateLogic {
        logic: Logic,
        d: Reg,
        a: Predicate,
        b: Predicate,
    },
    /// `selp` and, with the predicate as a mask, `slct`.
    Select {
        d: Reg,
        a: Reg,
        b: Reg,
        predicate: Predicate,
        size: u8,
    },
    /// `slct`: `a` where `c` ≥ 0.
    SelectSign {
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
        is_float: bool,
        size: u8,
    },
    /// `mov.b64 d, {a, b, …}`: parts of equal width, low first.
    Pack {
        d: Reg,
        size: u8,
        parts: Box<[Element]>,
    },
    Unpack {
        s: Reg,
        size: u8,
        parts: Box<[Element]>,
    },
    Clock {
        d: Reg,
        clock: Clock,
    },
    ActiveMask {
        d: Reg,
    },

    Branch {
        target: u32,
    },
    BranchTable {
        index: Reg,
        targets: Box<[u32]>,
    },
    Exit,
    Trap,
    Assert {
        message: Box<str>,
    },
    Nop,

    Load(Access),
    Store(Access),
    Atomic(Atomic),
    /// `cp.async`: `size` bytes, of which the first `source_size` are read and the rest are zero.
    AsyncCopy {
        to: Address,
        from: Address,
        size: u8,
        source_size: Option<Reg>,
        ignore: Option<Predicate>,
    },
    AsyncCommit,
    /// Waits until at most so many groups are in flight; None: until no copy at all is.
    AsyncWait {
        groups: Option<u32>,
    },
    MatrixLoad {
        address: Address,
        count: u8,
        transposed: bool,
        d: [Reg; 4],
    },

    Barrier(Barrier),
    WarpBarrier {
        members: Reg,
    },
    Fence,
    Shuffle {
        mode: ShuffleMode,
        d: Reg,
        p: Option<Reg>,
        a: Reg,
        b: Reg,
        c: Reg,
        members: Reg,
    },
    Vote {
        mode: VoteMode,
        d: Reg,
        predicate: Predicate,
        members: Reg,
    },
    Match {
        all: bool,
        d: Reg,
        p: Option<Reg>,
        a: Reg,
        size: u8,
        members: Reg,
    },
    Reduce {
        op: ReduceOp,
        signed: bool,
        d: Reg,
        a: Reg,
        members: Reg,
    },
    Elect {
        d: Option<Reg>,
        p: Reg,
        members: Reg,
    },
    Mma(Box<Mma>),
}

/// What counters group instructions by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    Integer,
    Float,
    Special,
    Convert,
    Move,
    Predicate,
    Control,
    Load,
    Store,
    Atomic,
    AsyncCopy,
    Barrier,
    Warp,
    Matrix,
}

impl Class {
    pub const ALL: [Class; 14] = [
        Class::Integer,
        Class::Float,
        Class::Special,
        Class::Convert,
        Class::Move,
        Class::Predicate,
        Class::Control,
        Class::Load,
        Class::Store,
        Class::Atomic,
        Class::AsyncCopy,
        Class::Barrier,
        Class::Warp,
        Class::Matrix,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Class::Integer => "integer",
            Class::Float => "float",
            Class::Special => "special",
            Class::Convert => "convert",
            Class::Move => "move",
            Class::Predicate => "predicate",
            Class::Control => "control",
            Class::Load => "load",
            Class::Store => "store",
            Class::Atomic => "atomic",
            Class::AsyncCopy => "async_copy",
            Class::Barrier => "barrier",
            Class::Warp => "warp",
            Class::Matrix => "matrix",
        }
    }
}

/// What is known of an instruction beside what it does.
#[derive(Clone, Debug)]
pub struct Meta {
    pub class: Class,
    pub line: u32,
    pub text: String,
    pub location: Option<(u32, u32)>,
}

/// What a constant column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    Bits16(u16),
    Bits32(u32),
    Bits64(u64),
    /// All lanes or none.
    Predicate(bool),
    Special(Special),
}

/// Special registers that are fixed while a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Zero,
    One,
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    TotalSharedSize,
    DynamicSharedSize,
}

/// A kernel ready to run.
pub struct Kernel {
    pub name: String,
    pub code: Vec<Inst>,
    pub meta: Vec<Meta>,
    /// Columns of a warp's register file.
    pub columns: usize,
    pub constants: Vec<(Reg, Constant)>,
    /// Bytes of parameters, and per parameter its offset and size.
    pub parameter_size: usize,
    pub parameters: Vec<(usize, usize)>,
    /// Bytes of statically declared shared memory; dynamic memory follows.
    pub static_shared: usize,
    /// Alignment of the dynamic shared memory's start.
    pub local_size: usize,
    pub max_threads: Option<u32>,
    pub required_threads: Option<[u32; 3]>,
    /// The smallest access to shared memory, in bytes, at most 4: the granule races are tracked in.
    pub shared_granule: usize,
    /// Registers that some path reads before it writes them: they start as 0.
    pub read_before_written: Vec<Reg>,
    /// Paths of the source files that locations name.
    pub files: Vec<(u32, String)>,
}
