//! Allocation, copies and fills.

use std::ffi::{c_int, c_void};

use super::error;
use super::state::{Api, CuResult, Driver, Handle, call, checked, give};
use super::work::{HostPointer, Work};
use crate::exec::heap::BadFree;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> CuResult {
    // SAFETY: the caller gives a place.
    checked("cuMemAlloc_v2", |driver| unsafe { allocate(driver, address, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) -> CuResult {
    checked("cuMemAllocAsync", |driver| {
        driver.check_not_capturing(stream)?;
        // SAFETY: the caller gives a place.
        unsafe { allocate(driver, address, bytes) }
    })
}

/// # Safety
/// `address` is null or a place for an address.
pub unsafe fn allocate(driver: &Driver, address: *mut u64, bytes: usize) -> Api {
    if bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    let allocation = driver.device.allocate(bytes).ok_or(error::OUT_OF_MEMORY)?;
    // SAFETY: the caller's promise.
    unsafe { give(address, allocation.base) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> CuResult {
    checked("cuMemFree_v2", |driver| free(driver, address))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, _stream: Handle) -> CuResult {
    checked("cuMemFreeAsync", |driver| free(driver, address))
}

fn free(driver: &Driver, address: u64) -> Api {
    match driver.device.free(address) {
        Ok(()) => Ok(()),
        Err(BadFree::Twice(_) | BadFree::Unknown(_)) if address == 0 => Ok(()),
        Err(_) => Err(error::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, _flags: u32) -> CuResult {
    checked("cuMemHostAlloc", |driver| {
        let allocation = driver.device.allocate_shared(bytes.max(1)).ok_or(error::OUT_OF_MEMORY)?;
        // SAFETY: the caller gives a place.
        unsafe { give(pointer, allocation.base as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) -> CuResult {
    // SAFETY: the same contract.
    unsafe { cuMemHostAlloc(pointer, bytes, 0) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> CuResult {
    call("cuMemFreeHost", |driver| free(driver, pointer as u64))
}

/// Device and host share addresses of such memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, _flags: u32) -> CuResult {
    // SAFETY: the caller gives a place.
    checked("cuMemHostGetDevicePointer_v2", |_| unsafe { give(address, pointer as u64) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(address: *mut u64, bytes: usize, _flags: u32) -> CuResult {
    checked("cuMemAllocManaged", |driver| {
        if bytes == 0 {
            return Err(error::INVALID_VALUE);
        }
        let allocation = driver.device.allocate_shared(bytes).ok_or(error::OUT_OF_MEMORY)?;
        // SAFETY: the caller gives a place.
        unsafe { give(address, allocation.base) }
    })
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryLocation {
    kind: u32,
    id: c_int,
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAdvise_v2(_address: u64, _count: usize, _advice: u32, _location: MemoryLocation) -> CuResult {
    checked("cuMemAdvise_v2", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchAsync_v2(
    _address: u64,
    _count: usize,
    _location: MemoryLocation,
    _flags: u32,
    _stream: Handle,
) -> CuResult {
    checked("cuMemPrefetchAsync_v2", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamAttachMemAsync(_stream: Handle, _address: u64, _length: usize, _flags: u32) -> CuResult {
    checked("cuStreamAttachMemAsync", |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CuResult {
    // SAFETY: the caller gives places.
    checked("cuMemGetInfo_v2", |driver| unsafe {
        give(free, driver.device.memory.saturating_sub(driver.device.used()))?;
        give(total, driver.device.memory)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) -> CuResult {
    checked("cuMemGetAddressRange_v2", |driver| {
        let (allocation, _) = driver.device.find_memory(address, 1).map_err(|_| error::NOT_FOUND)?;
        // SAFETY: null, or places.
        unsafe {
            if !base.is_null() {
                give(base, allocation.base)?;
            }
            if size.is_null() { Ok(()) } else { give(size, allocation.len) }
        }
    })
}

fn copy_in(name: &str, to: u64, from: *const c_void, len: usize, stream: Handle) -> CuResult {
    checked(name, |driver| {
        if from.is_null() && len > 0 {
            return Err(error::INVALID_VALUE);
        }
        driver.submit(stream, Work::CopyIn { to, from: HostPointer(from.cast_mut()), len })
    })
}

fn copy_out(name: &str, to: *mut c_void, from: u64, len: usize, stream: Handle) -> CuResult {
    checked(name, |driver| {
        if to.is_null() && len > 0 {
            return Err(error::INVALID_VALUE);
        }
        driver.submit(stream, Work::CopyOut { to: HostPointer(to), from, len })
    })
}

fn copy(name: &str, to: u64, from: u64, len: usize, stream: Handle) -> CuResult {
    checked(name, |driver| driver.submit(stream, Work::Copy { to, from, len }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, len: usize) -> CuResult {
    copy_in("cuMemcpyHtoD_v2", to, from, len, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, stream: Handle) -> CuResult {
    copy_in("cuMemcpyHtoDAsync_v2", to, from, len, stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, len: usize) -> CuResult {
    copy_out("cuMemcpyDtoH_v2", to, from, len, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, len: usize, stream: Handle) -> CuResult {
    copy_out("cuMemcpyDtoHAsync_v2", to, from, len, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, len: usize) -> CuResult {
    copy("cuMemcpyDtoD_v2", to, from, len, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: Handle) -> CuResult {
    copy("cuMemcpyDtoDAsync_v2", to, from, len, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    _to_context: Handle,
    from: u64,
    _from_context: Handle,
    len: usize,
    stream: Handle,
) -> CuResult {
    copy("cuMemcpyPeerAsync", to, from, len, stream)
}

fn fill(name: &str, to: u64, pattern: &[u8], count: usize, stream: Handle) -> CuResult {
    checked(name, |driver| {
        if !to.is_multiple_of(pattern.len() as u64) {
            return Err(error::INVALID_VALUE);
        }
        driver.submit(stream, Work::Fill { to, pattern: pattern.to_vec(), count })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> CuResult {
    fill("cuMemsetD8_v2", to, &[value], count, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) -> CuResult {
    fill("cuMemsetD8Async", to, &[value], count, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16_v2(to: u64, value: u16, count: usize) -> CuResult {
    fill("cuMemsetD16_v2", to, &value.to_le_bytes(), count, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: Handle) -> CuResult {
    fill("cuMemsetD16Async", to, &value.to_le_bytes(), count, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> CuResult {
    fill("cuMemsetD32_v2", to, &value.to_le_bytes(), count, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle) -> CuResult {
    fill("cuMemsetD32Async", to, &value.to_le_bytes(), count, stream)
}

/// Memory of other APIs cannot be reached from here.
#[unsafe(no_mangle)]
extern "C" fn cuImportExternalMemory(_memory: *mut Handle, _description: *const c_void) -> CuResult {
    checked("cuImportExternalMemory", |_| Err(error::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn cuExternalMemoryGetMappedBuffer(
    _address: *mut u64,
    _memory: Handle,
    _description: *const c_void,
) -> CuResult {
    checked("cuExternalMemoryGetMappedBuffer", |_| Err(error::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn cuDestroyExternalMemory(_memory: Handle) -> CuResult {
    checked("cuDestroyExternalMemory", |_| Err(error::INVALID_HANDLE))
}
