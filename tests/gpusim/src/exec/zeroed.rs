//! Zeroed memory. Much of it costs nothing until it is touched, so that kernels can be run at the end of tensors that this
//! machine could not hold.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Bytes from which on pages are asked for one by one, as they are touched.
pub const SPARSE: usize = 64 << 20;

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, len: usize) -> c_int;
    fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int;
}
/// PROT_READ | PROT_WRITE.
const READ_WRITE: c_int = 1 | 2;
/// MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE.
const NOT_RESERVED: c_int = 0x2 | 0x20 | 0x4000;
const MADV_DONTNEED: c_int = 4;

/// Numbers that are valid with all bits 0.
pub trait Zero {}
impl Zero for AtomicU8 {}
impl Zero for AtomicU32 {}
impl Zero for AtomicU64 {}

/// `len` zeros, aligned to 512 bytes.
pub struct Zeroed<T: Zero> {
    data: *mut T,
    len: usize,
    layout: Layout,
}

// SAFETY: it owns its memory, of numbers that threads may share.
unsafe impl<T: Zero + Send> Send for Zeroed<T> {}
unsafe impl<T: Zero + Sync> Sync for Zeroed<T> {}

impl<T: Zero> Zeroed<T> {
    /// `None` where the machine has no room.
    pub fn new(len: usize) -> Option<Zeroed<T>> {
        let layout = Layout::array::<T>(len).ok()?.align_to(512).ok()?;
        let data = match layout.size() {
            0 => layout.align() as *mut T,
            // SAFETY: fresh pages, of which none is reserved.
            SPARSE.. => match unsafe { mmap(null_mut(), layout.size(), READ_WRITE, NOT_RESERVED, -1, 0) } as isize {
                -1 => return None,
                pages => pages as *mut T,
            },
            // SAFETY: the size is not zero.
            _ => unsafe { alloc_zeroed(layout) }.cast(),
        };
        (!data.is_null()).then_some(Zeroed { data, len, layout })
    }

    pub fn as_ptr(&self) -> *mut T {
        self.data
    }

    /// Sets all to 0 again.
    pub fn clear(&self, zero: impl Fn(&T)) {
        match self.layout.size() {
            // SAFETY: whole pages of this mapping, which are zeros when they are touched again.
            SPARSE.. => {
                unsafe { madvise(self.data.cast(), self.layout.size(), MADV_DONTNEED) };
            }
            _ => self.iter().for_each(zero),
        }
    }
}

impl<T: Zero> Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many are there, and zeros are valid.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl<T: Zero> Drop for Zeroed<T> {
    fn drop(&mut self) {
        match self.layout.size() {
            0 => {}
            // SAFETY: mapped in `new`, unmapped once.
            SPARSE.. => {
                unsafe { munmap(self.data.cast(), self.layout.size()) };
            }
            // SAFETY: allocated with this layout in `new`, freed once.
            _ => unsafe { dealloc(self.data.cast(), self.layout) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn is_zero_and_can_be_cleared() {
        for len in [0, 5, SPARSE / 8, 1 << 37] {
            let zeroed: Zeroed<AtomicU64> = Zeroed::new(len).unwrap();
            assert_eq!(zeroed.len(), len);
            let Some(last) = zeroed.last() else { continue };
            assert_eq!(last.swap(7, Relaxed), 0);
            zeroed.clear(|cell| cell.store(0, Relaxed));
            assert_eq!(last.load(Relaxed), 0);
        }
        assert!(Zeroed::<AtomicU64>::new(usize::MAX / 4).is_none());
    }
}
