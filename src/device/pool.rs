//! CPU memory: aligned buffers that are recycled, and counters of what is live.
//!
//! A training step allocates the same hundreds of megabytes again and again. Handing them back to the operating system
//! would cost a page fault per 4 KiB on the next step, so freed buffers are kept, by size class.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytemuck::Pod;

/// Bytes; a cache line, and the widest vector register.
const ALIGN: usize = 64;
/// Buffers below this many bytes are cheap to allocate and are not kept.
const SMALLEST_KEPT: usize = 16 << 10;
/// Kept bytes beyond which freed buffers go back to the system.
const MOST_KEPT: usize = 4 << 30;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicUsize = AtomicUsize::new(0);
static POISON: AtomicBool = AtomicBool::new(false);
static FREE: Mutex<Option<HashMap<usize, Vec<Block>>>> = Mutex::new(None);

struct Block(NonNull<u8>);
// SAFETY: a block in the free list is owned by the list alone.
unsafe impl Send for Block {}

/// Bytes in buffers that are in use, the most there ever were since [`reset_peak`], and bytes kept for reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    pub live: usize,
    pub peak: usize,
    pub kept: usize,
}

pub fn stats() -> MemoryStats {
    MemoryStats {
        live: LIVE.load(Ordering::Relaxed),
        peak: PEAK.load(Ordering::Relaxed),
        kept: KEPT.load(Ordering::Relaxed),
    }
}

/// Forgets the peak: from here on it is the peak of what follows.
pub fn reset_peak() {
    PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// For tests: buffers that callers promised to write in full start as NaN (all bits set), so that an element that was not
/// written shows.
pub fn poison_allocations(on: bool) {
    POISON.store(on, Ordering::Relaxed);
}

/// A fixed-length array of plain numbers from the pool.
pub struct Buffer<T: Pod> {
    ptr: NonNull<T>,
    len: usize,
    /// Bytes of the size class.
    bytes: usize,
}

// SAFETY: a buffer owns its memory; T is plain data.
unsafe impl<T: Pod + Send> Send for Buffer<T> {}
unsafe impl<T: Pod + Sync> Sync for Buffer<T> {}

impl<T: Pod> Buffer<T> {
    /// Zeros.
    pub fn zeroed(len: usize) -> Buffer<T> {
        let (mut buffer, fresh) = Buffer::take(len);
        if !fresh {
            buffer.fill(T::zeroed());
        }
        buffer
    }

    /// Any contents: the caller writes every element.
    pub fn unwritten(len: usize) -> Buffer<T> {
        let (mut buffer, _) = Buffer::take(len);
        if POISON.load(Ordering::Relaxed) {
            bytemuck::cast_slice_mut::<T, u8>(&mut buffer).fill(0xFF);
        }
        buffer
    }

    pub fn from_slice(values: &[T]) -> Buffer<T> {
        let (mut buffer, _) = Buffer::take(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    /// A buffer, and whether it is fresh from the system (and so zero).
    fn take(len: usize) -> (Buffer<T>, bool) {
        assert!(align_of::<T>() <= ALIGN);
        let bytes = size_class(len.checked_mul(size_of::<T>()).expect("a tensor's bytes fit in an address"));
        let kept = if bytes >= SMALLEST_KEPT {
            FREE.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert_default().get_mut(&bytes).and_then(Vec::pop)
        } else {
            None
        };
        let fresh = kept.is_none();
        let ptr = match kept {
            Some(block) => {
                KEPT.fetch_sub(bytes, Ordering::Relaxed);
                block.0
            }
            None => {
                let layout = layout(bytes);
                // SAFETY: the layout's size is not zero (`size_class`).
                NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
            }
        };
        let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(live, Ordering::Relaxed);
        (Buffer { ptr: ptr.cast(), len, bytes }, fresh)
    }
}

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        LIVE.fetch_sub(self.bytes, Ordering::Relaxed);
        let block = Block(self.ptr.cast());
        if self.bytes >= SMALLEST_KEPT && KEPT.load(Ordering::Relaxed) + self.bytes <= MOST_KEPT {
            KEPT.fetch_add(self.bytes, Ordering::Relaxed);
            let mut free = FREE.lock().unwrap_or_else(|e| e.into_inner());
            free.get_or_insert_default().entry(self.bytes).or_default().push(block);
        } else {
            // SAFETY: `take` allocated it with this layout.
            unsafe { dealloc(block.0.as_ptr(), layout(self.bytes)) }
        }
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `ptr` holds `len` initialised values (zeroed at first, later any earlier contents of plain data).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Pod> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Buffer::from_slice(self)
    }
}

/// The bytes that a buffer of `bytes` takes. Eight classes per power of two: at most an eighth is wasted, and sizes that
/// vary a little share a class.
pub fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(ALIGN);
    let step = (bytes.next_power_of_two() / 16).max(ALIGN);
    bytes.next_multiple_of(step)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("a tensor's bytes fit in an address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_hold_what_was_asked_and_waste_little() {
        for bytes in [0, 1, 63, 64, 65, 1000, 4097, 123_457, 10_485_761] {
            let class = size_class(bytes);
            assert!(class >= bytes.max(1) && class.is_multiple_of(ALIGN));
            assert!(class <= bytes + bytes / 8 + ALIGN, "{bytes} {class}");
        }
    }

    #[test]
    fn zeroed_is_zero_on_a_recycled_buffer() {
        let mut a = Buffer::<f32>::unwritten(54_321);
        a.fill(f32::NAN);
        drop(a);
        assert!(Buffer::<f32>::zeroed(54_321).iter().all(|v| v.to_bits() == 0));
    }
}
