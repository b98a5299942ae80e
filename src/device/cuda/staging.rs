//! The way from the host to the device: through pinned memory, so that the host goes on while the device computes.
//!
//! From pageable memory the driver copies at its own convenience: the host waits, for large copies until everything launched
//! before is done. Here the values are put into one of a few pinned slots, whose copy is queued in the stream's order. A slot
//! is written again only after the event behind its last copy. An array larger than a slot goes in parts: while the device
//! fetches one, the host fills the next.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};

/// Bytes of a slot: more than a training step's tokens and masks, little beside a machine's memory.
pub(super) const SLOT: usize = 1 << 20;
pub(super) const SLOTS: usize = 4;

#[derive(Default)]
pub(super) struct Staging {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    /// As many as were needed so far.
    slots: Vec<Slot>,
    /// The one whose turn it is.
    next: usize,
}

struct Slot {
    host: *mut c_void,
    /// Recorded behind the slot's last copy.
    copied: CudaEvent,
}

// SAFETY: pinned memory belongs to the context, not to a thread; the slots are used under a lock.
unsafe impl Send for Slot {}

impl Slot {
    fn new(context: &Arc<CudaContext>) -> Result<Slot, DriverError> {
        let copied = context.new_event(None)?;
        // SAFETY: a size above 0; freed once, in `drop`.
        let host = unsafe { result::malloc_host(SLOT, 0) }?;
        Ok(Slot { host, copied })
    }

    /// Queues the copy of `bytes`, at most [`SLOT`], to `to`.
    fn copy(&mut self, to: sys::CUdeviceptr, bytes: &[u8], stream: &CudaStream) -> Result<(), DriverError> {
        self.copied.synchronize()?;
        // SAFETY: the slot has SLOT bytes, pinned, that nobody else knows of, and its last copy is done.
        let pinned = unsafe { std::slice::from_raw_parts_mut(self.host.cast::<u8>(), bytes.len()) };
        pinned.copy_from_slice(bytes);
        // SAFETY: the caller's block holds the bytes; the slot keeps them until the event.
        unsafe { result::memcpy_htod_async(to, pinned, stream.cu_stream()) }?;
        self.copied.record(stream)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A copy that failed is done, too.
        let _ = self.copied.synchronize();
        // SAFETY: from `malloc_host`, and no copy reads it any more.
        let _ = unsafe { result::free_host(self.host) };
    }
}

impl Staging {
    /// Copies `bytes` to the block `to` that holds as many, in the order of `stream`. They are free when this returns.
    pub fn write(
        &self,
        to: sys::CUdeviceptr,
        bytes: &[u8],
        context: &Arc<CudaContext>,
        stream: &CudaStream,
    ) -> Result<(), DriverError> {
        let mut state = self.slots.lock().unwrap_or_else(|e| e.into_inner());
        for (i, part) in bytes.chunks(SLOT).enumerate() {
            let at = state.next;
            if at == state.slots.len() {
                state.slots.push(Slot::new(context)?);
            }
            state.next = (at + 1) % SLOTS;
            state.slots[at].copy(to + (i * SLOT) as u64, part, stream)?;
        }
        Ok(())
    }

    /// Gives the pinned memory back, after the copies from it.
    pub fn release(&self) {
        *self.slots.lock().unwrap_or_else(|e| e.into_inner()) = Slots::default();
    }
}
