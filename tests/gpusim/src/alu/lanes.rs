//! The form of every per-lane instruction: a function over columns, made by the macro `lanes!` from an expression over scalars.

use crate::exec::registers::{Mask, Reg, Registers};

/// Registers of a per-lane instruction: destination, sources, and a constant for those that need one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Args {
    pub d: Reg,
    pub s: [Reg; 4],
    pub imm: u32,
}

/// Executes a per-lane instruction for the lanes in the mask.
pub type Run = fn(&mut Registers, &Args, Mask);

/// A comparison: the lanes where it holds.
pub type Compare = fn(&Registers, Reg, Reg) -> Mask;

/// `lanes!(|a: u32, b: u32| -> u32 { a & b })`: a [`Run`] that applies the expression lane by lane. The loop is over all 32
/// lanes, so that it becomes vector code; the mask decides what is kept. A first parameter `imm;` binds [`Args::imm`].
macro_rules! lanes {
    (@run |$imm:ident; $($name:ident: $T:ty = $index:literal),*| -> $D:ty $body:block) => {{
        let run: $crate::alu::lanes::Run = |registers, args, mask| {
            #[allow(unused_variables)]
            let $imm = args.imm;
            let mut out = [<$D>::default(); $crate::exec::registers::LANES];
            $(let $name = registers.get::<$T>(args.s[$index]);)*
            for lane in 0..$crate::exec::registers::LANES {
                $(let $name = $name[lane];)*
                out[lane] = $body;
            }
            registers.put(args.d, mask, &out);
        };
        run
    }};
    (|$imm:ident; $a:ident: $A:ty| -> $D:ty $body:block) =>
        { $crate::alu::lanes::lanes!(@run |$imm; $a: $A = 0| -> $D $body) };
    (|$imm:ident; $a:ident: $A:ty, $b:ident: $B:ty| -> $D:ty $body:block) =>
        { $crate::alu::lanes::lanes!(@run |$imm; $a: $A = 0, $b: $B = 1| -> $D $body) };
    (|$imm:ident; $a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| -> $D:ty $body:block) =>
        { $crate::alu::lanes::lanes!(@run |$imm; $a: $A = 0, $b: $B = 1, $c: $C = 2| -> $D $body) };
    (|$a:ident: $A:ty| -> $D:ty $body:block) =>
        { $crate::alu::lanes::lanes!(@run |_imm; $a: $A = 0| -> $D $body) };
    (|$a:ident: $A:ty, $b:ident: $B:ty| -> $D:ty $body:block) =>
        { $crate::alu::lanes::lanes!(@run |_imm; $a: $A = 0, $b: $B = 1| -> $D $body) };
    (|$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| -> $D:ty $body:block) =>
        { $crate::alu::lanes::lanes!(@run |_imm; $a: $A = 0, $b: $B = 1, $c: $C = 2| -> $D $body) };
    (|$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty, $e:ident: $E:ty| -> $D:ty $body:block) =>
        { $crate::alu::lanes::lanes!(@run |_imm; $a: $A = 0, $b: $B = 1, $c: $C = 2, $e: $E = 3| -> $D $body) };
}

/// `compare!(|a: i32, b: i32| a < b)`: a [`Compare`].
macro_rules! compare {
    (|$a:ident: $A:ty, $b:ident: $B:ty| $body:expr) => {{
        fn compare(
            registers: &$crate::exec::registers::Registers,
            a: $crate::exec::registers::Reg,
            b: $crate::exec::registers::Reg,
        ) -> $crate::exec::registers::Mask {
            let (a, b) = (registers.get::<$A>(a), registers.get::<$B>(b));
            let mut bits = 0;
            for lane in 0..$crate::exec::registers::LANES {
                let ($a, $b) = (a[lane], b[lane]);
                bits |= ($body as $crate::exec::registers::Mask) << lane;
            }
            bits
        }
        compare as $crate::alu::lanes::Compare
    }};
}

pub(crate) use {compare, lanes};
