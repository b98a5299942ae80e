//! Device memory: freed blocks are kept by size class, as in [`crate::device::pool`], and counted.
//!
//! Asking the driver for memory waits for the device; a training step asks for the same blocks again and again. There is
//! one stream, so a block that is handed out again is written only after everything launched before has read it.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

use super::error::{CudaError, describe};
use super::staging::Staging;
use crate::device::pool::{MemoryStats, size_class};

pub(super) struct Memory {
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub device: String,
    staging: Staging,
    state: Mutex<State>,
}

struct State {
    live: usize,
    peak: usize,
    kept: usize,
    most_kept: usize,
    free: HashMap<usize, Vec<sys::CUdeviceptr>>,
    /// The last kernel launched: where a copy fails, it is the one to look at.
    last: String,
}

impl Memory {
    pub fn new(context: Arc<CudaContext>, stream: Arc<CudaStream>, device: String) -> Memory {
        let state =
            State { live: 0, peak: 0, kept: 0, most_kept: usize::MAX, free: HashMap::new(), last: String::new() };
        Memory { context, stream, device, staging: Staging::default(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn launched(&self, symbol: &str) {
        let mut state = self.state();
        state.last.clear();
        state.last.push_str(symbol);
    }

    pub fn failure(&self, call: &'static str, error: DriverError) -> CudaError {
        CudaError::Driver { call, kernel: self.state().last.clone(), error: describe(error) }
    }

    pub fn stats(&self) -> MemoryStats {
        let state = self.state();
        MemoryStats { live: state.live, peak: state.peak, kept: state.kept }
    }

    pub fn reset_peak(&self) {
        let mut state = self.state();
        state.peak = state.live;
    }

    pub fn keep_at_most(&self, bytes: usize) {
        let mut state = self.state();
        state.most_kept = bytes;
        if state.kept > bytes {
            release(&mut state);
        }
    }

    /// A block and its bytes.
    fn take(&self, asked: usize) -> Result<(sys::CUdeviceptr, usize), CudaError> {
        let mut state = self.state();
        // Where nothing is kept, a block ends where the buffer ends: a checker sees accesses behind it.
        let bytes = if state.most_kept == 0 { asked.max(1) } else { size_class(asked) };
        let kept = state.free.get_mut(&bytes).and_then(Vec::pop);
        let block = match kept {
            Some(block) => {
                state.kept -= bytes;
                block
            }
            None => {
                self.context.bind_to_thread().map_err(|e| driver("cuCtxSetCurrent", &state, e))?;
                // SAFETY: a size above 0; the block is freed once, in `release` or `give`.
                match unsafe { result::malloc_sync(bytes) } {
                    Err(e) if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                        release(&mut state);
                        // SAFETY: as above.
                        unsafe { result::malloc_sync(bytes) }.map_err(|e| self.refused(asked, &state, e))?
                    }
                    other => other.map_err(|e| driver("cuMemAlloc", &state, e))?,
                }
            }
        };
        state.live += bytes;
        state.peak = state.peak.max(state.live);
        Ok((block, bytes))
    }

    fn refused(&self, asked: usize, state: &State, error: DriverError) -> CudaError {
        if error.0 != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return driver("cuMemAlloc", state, error);
        }
        let (free, total) = result::mem_get_info().unwrap_or((0, 0));
        CudaError::OutOfMemory { device: self.device.clone(), asked, free, total }
    }

    fn give(&self, block: sys::CUdeviceptr, bytes: usize) {
        let mut state = self.state();
        state.live -= bytes;
        if state.kept.saturating_add(bytes) <= state.most_kept {
            state.kept += bytes;
            state.free.entry(bytes).or_default().push(block);
        } else {
            let _ = self.context.bind_to_thread();
            // SAFETY: the buffer that owned the block is gone; cuMemFree waits for what still uses it.
            let _ = unsafe { result::free_sync(block) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        self.staging.release();
        release(&mut self.state());
    }
}

fn driver(call: &'static str, state: &State, error: DriverError) -> CudaError {
    CudaError::Driver { call, kernel: state.last.clone(), error: describe(error) }
}

/// Gives all kept blocks back to the driver.
fn release(state: &mut State) {
    for block in state.free.drain().flat_map(|(_, blocks)| blocks) {
        // SAFETY: a kept block is owned by the list alone.
        let _ = unsafe { result::free_sync(block) };
    }
    state.kept = 0;
}

/// A fixed-length array of plain numbers in device memory.
pub struct DeviceBuffer<T: Pod> {
    memory: Arc<Memory>,
    block: sys::CUdeviceptr,
    bytes: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Any contents: a kernel writes every element.
    pub(super) fn unwritten(memory: &Arc<Memory>, len: usize) -> Result<DeviceBuffer<T>, CudaError> {
        let asked = len.checked_mul(size_of::<T>()).ok_or_else(|| CudaError::OutOfMemory {
            device: memory.device.clone(),
            asked: usize::MAX,
            free: 0,
            total: 0,
        })?;
        let (block, bytes) = memory.take(asked)?;
        Ok(DeviceBuffer { memory: memory.clone(), block, bytes, len, element: PhantomData })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device address, as the pointer that a kernel's arguments want. It must not be read or written on the host.
    pub fn ptr<P>(&self) -> *mut P {
        std::ptr::without_provenance_mut(self.block as usize)
    }

    fn bind(&self) -> Result<(), CudaError> {
        self.memory.context.bind_to_thread().map_err(|e| self.memory.failure("cuCtxSetCurrent", e))
    }

    /// Copies `values`, as many as the buffer holds, from the host, in the stream's order, without waiting for the device.
    ///
    /// # Errors
    /// [`CudaError::Driver`]; [`CudaError::Limit`] where the lengths differ.
    pub fn write(&mut self, values: &[T]) -> Result<(), CudaError> {
        self.same_len(values.len())?;
        if values.is_empty() {
            return Ok(());
        }
        self.bind()?;
        let Memory { context, stream, staging, .. } = &*self.memory;
        staging
            .write(self.block, bytemuck::cast_slice(values), context, stream)
            .map_err(|e| self.memory.failure("cuMemcpyHtoDAsync", e))
    }

    /// Copies the contents to the host, after all that was launched before.
    ///
    /// # Errors
    /// [`CudaError::Driver`], also for the fault of an earlier kernel.
    pub fn read(&self) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::zeroed(); self.len];
        if self.len == 0 {
            return Ok(values);
        }
        self.bind()?;
        let stream = self.memory.stream.cu_stream();
        // SAFETY: the block holds `len` elements, T takes any bits, and the values live until the copy has been waited for.
        unsafe { result::memcpy_dtoh_async(&mut values, self.block, stream) }
            .and_then(|()| self.memory.stream.synchronize())
            .map_err(|e| self.memory.failure("cuMemcpyDtoHAsync", e))?;
        Ok(values)
    }

    /// As [`DeviceBuffer::write`], of the elements from `first` on.
    ///
    /// # Errors
    /// [`CudaError::Driver`]; [`CudaError::Limit`] where they are more than there are.
    pub fn write_at(&mut self, first: usize, values: &[T]) -> Result<(), CudaError> {
        self.inside(first, values.len())?;
        self.bind()?;
        let Memory { context, stream, staging, .. } = &*self.memory;
        staging
            .write(self.at(first), bytemuck::cast_slice(values), context, stream)
            .map_err(|e| self.memory.failure("cuMemcpyHtoDAsync", e))
    }

    /// As [`DeviceBuffer::read`], of `count` elements from `first` on.
    ///
    /// # Errors
    /// [`CudaError::Driver`]; [`CudaError::Limit`] where there are not so many.
    pub fn read_at(&self, first: usize, count: usize) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::zeroed(); count];
        // SAFETY: the values live until the copy has been waited for.
        unsafe { self.start_read(first, &mut values) }?;
        self.wait()?;
        Ok(values)
    }

    /// Sets every byte.
    pub fn fill_bytes(&mut self, byte: u8) -> Result<(), CudaError> {
        let bytes = self.len * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the block holds at least `bytes` bytes.
        unsafe { result::memset_d8_async(self.block, byte, bytes, self.memory.stream.cu_stream()) }
            .map_err(|e| self.memory.failure("cuMemsetD8Async", e))
    }

    /// Starts a copy of the elements from `first` on into `values`, which are whole after [`DeviceBuffer::wait`] alone.
    ///
    /// # Safety
    /// `values` live, and nobody reads them, until then.
    pub(crate) unsafe fn start_read(&self, first: usize, values: &mut [T]) -> Result<(), CudaError> {
        if values.is_empty() {
            return Ok(());
        }
        self.inside(first, values.len())?;
        self.bind()?;
        let (from, stream) = (self.at(first), self.memory.stream.cu_stream());
        // SAFETY: inside the block, T takes any bits, and the caller keeps the values.
        unsafe { result::memcpy_dtoh_async(values, from, stream) }
            .map_err(|e| self.memory.failure("cuMemcpyDtoHAsync", e))
    }

    /// Waits for everything launched and for the copies started.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        self.memory.stream.synchronize().map_err(|e| self.memory.failure("cuStreamSynchronize", e))
    }

    /// Copies `count` elements from `source`, at `from`, to `to` of this buffer, in the stream's order. The two do not overlap.
    pub(crate) fn copy(&self, to: usize, source: &DeviceBuffer<T>, from: usize, count: usize) -> Result<(), CudaError> {
        if count == 0 {
            return Ok(());
        }
        self.inside(to, count)?;
        source.inside(from, count)?;
        self.bind()?;
        let stream = self.memory.stream.cu_stream();
        // SAFETY: both stretches lie inside their blocks.
        unsafe { result::memcpy_dtod_async(self.at(to), source.at(from), count * size_of::<T>(), stream) }
            .map_err(|e| self.memory.failure("cuMemcpyDtoDAsync", e))
    }

    /// The address of element `first`.
    fn at(&self, first: usize) -> sys::CUdeviceptr {
        self.block + (first * size_of::<T>()) as u64
    }

    fn inside(&self, first: usize, count: usize) -> Result<(), CudaError> {
        if first.checked_add(count).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let (found, limit) = (format!("{count} elements from {first}"), format!("{}", self.len));
        Err(CudaError::Limit { symbol: "copy on the device".into(), found, limit })
    }

    fn same_len(&self, len: usize) -> Result<(), CudaError> {
        if len == self.len {
            return Ok(());
        }
        let (found, limit) = (format!("{len} elements"), format!("{}", self.len));
        Err(CudaError::Limit { symbol: "copy to the device".into(), found, limit })
    }
}

impl<T: Pod> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        self.memory.give(self.block, self.bytes);
    }
}
