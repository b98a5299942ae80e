//! A warp's registers: one column of 32 lanes per virtual register.

/// Threads of a warp.
pub const LANES: usize = 32;

/// A set of lanes: bit `l` is lane `l`.
pub type Mask = u32;

/// Index of a column. A 64-bit register takes two adjacent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Reg(pub u32);

/// 32 lanes of 32 bits, aligned for any vector unit. 16-bit registers use its first half, predicates bit `l` of its first word.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Column([u32; LANES]);

/// A value a lane can hold.
///
/// # Safety
/// Implementors are plain bits of at most 8 bytes, with every bit pattern valid.
pub unsafe trait Lane: Copy + Default + 'static {}

// SAFETY: primitive numbers.
unsafe impl Lane for u16 {}
unsafe impl Lane for i16 {}
unsafe impl Lane for u32 {}
unsafe impl Lane for i32 {}
unsafe impl Lane for f32 {}
unsafe impl Lane for u64 {}
unsafe impl Lane for i64 {}
unsafe impl Lane for f64 {}

/// All registers of a warp, constants and special registers included.
pub struct Registers {
    columns: Box<[Column]>,
}

impl Registers {
    pub fn new(columns: usize) -> Self {
        // One column more, so that a 64-bit view of the last one stays inside.
        Registers { columns: vec![Column([0; LANES]); columns + 1].into_boxed_slice() }
    }

    /// The 32 lanes of a register. `T` has the register's width: the decoder sees to it.
    #[inline(always)]
    pub fn get<T: Lane>(&self, reg: Reg) -> &[T; LANES] {
        assert!((reg.0 as usize) < self.columns.len() - 1);
        // SAFETY: the column and the one after it exist (checked above, and one is kept in reserve), they are 64-byte
        // aligned and adjacent, `[T; 32]` takes at most two, and any bits are a valid `T`.
        unsafe { &*self.columns.as_ptr().add(reg.0 as usize).cast() }
    }

    #[inline(always)]
    pub fn get_mut<T: Lane>(&mut self, reg: Reg) -> &mut [T; LANES] {
        assert!((reg.0 as usize) < self.columns.len() - 1);
        // SAFETY: as in `get`; the borrow of self is exclusive.
        unsafe { &mut *self.columns.as_mut_ptr().add(reg.0 as usize).cast() }
    }

    /// Writes the lanes in `mask`.
    #[inline(always)]
    pub fn put<T: Lane>(&mut self, reg: Reg, mask: Mask, values: &[T; LANES]) {
        let column = self.get_mut::<T>(reg);
        if mask == Mask::MAX {
            *column = *values;
        } else {
            for lane in 0..LANES {
                column[lane] = if mask >> lane & 1 != 0 { values[lane] } else { column[lane] };
            }
        }
    }

    #[inline(always)]
    pub fn predicate(&self, reg: Reg) -> Mask {
        self.get::<u32>(reg)[0]
    }

    #[inline(always)]
    pub fn put_predicate(&mut self, reg: Reg, mask: Mask, bits: Mask) {
        let word = &mut self.get_mut::<u32>(reg)[0];
        *word = (*word & !mask) | (bits & mask);
    }

    pub fn fill<T: Lane>(&mut self, reg: Reg, value: T) {
        *self.get_mut(reg) = [value; LANES];
    }
}
