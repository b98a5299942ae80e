//! Memory pools: they exist and have attributes; allocation from one is allocation.

use std::ffi::{c_int, c_void};

use super::attribute::check_device;
use super::error;
use super::memory::allocate;
use super::state::{Api, CuResult, Driver, Handle, call, checked, give};

/// The device's default pool.
const DEFAULT_POOL: Handle = 0x5150_0001;

fn check_pool(driver: &Driver, pool: Handle) -> Api {
    let exists = pool == DEFAULT_POOL || driver.objects().pools.contains_key(&pool);
    if exists { Ok(()) } else { Err(error::INVALID_HANDLE) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int) -> CuResult {
    call("cuDeviceGetDefaultMemPool", |_| {
        check_device(device)?;
        // SAFETY: the caller gives a place.
        unsafe { give(pool, DEFAULT_POOL) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut Handle, device: c_int) -> CuResult {
    // SAFETY: the same contract.
    unsafe { cuDeviceGetDefaultMemPool(pool, device) }
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceSetMemPool(device: c_int, pool: Handle) -> CuResult {
    call("cuDeviceSetMemPool", |driver| {
        check_device(device)?;
        check_pool(driver, pool)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolCreate(pool: *mut Handle, _properties: *const c_void) -> CuResult {
    call("cuMemPoolCreate", |driver| {
        let mut objects = driver.objects();
        let handle = objects.new_handle();
        objects.pools.insert(handle, 0);
        // SAFETY: the caller gives a place.
        unsafe { give(pool, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: Handle) -> CuResult {
    call("cuMemPoolDestroy", |driver| driver.objects().pools.remove(&pool).map(|_| ()).ok_or(error::INVALID_HANDLE))
}

/// Freed memory is given back at once: nothing to trim.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: Handle, _keep: usize) -> CuResult {
    call("cuMemPoolTrimTo", |driver| check_pool(driver, pool))
}

/// 1 to 3: reuse flags (int); 4: release threshold; 5 to 8: reserved and used bytes, now and at most.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolGetAttribute(pool: Handle, attribute: u32, value: *mut c_void) -> CuResult {
    call("cuMemPoolGetAttribute", |driver| {
        check_pool(driver, pool)?;
        let threshold = driver.objects().pools.get(&pool).copied().unwrap_or(0);
        // SAFETY: the caller gives a place of the attribute's type.
        unsafe {
            match attribute {
                1..=3 => give(value.cast::<c_int>(), 1),
                4 => give(value.cast::<u64>(), threshold),
                5..=8 => give(value.cast::<u64>(), driver.device.used() as u64),
                _ => Err(error::INVALID_VALUE),
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: *mut c_void) -> CuResult {
    call("cuMemPoolSetAttribute", |driver| {
        check_pool(driver, pool)?;
        if value.is_null() {
            return Err(error::INVALID_VALUE);
        }
        if attribute == 4 {
            // SAFETY: not null; the caller gives a u64 for this attribute.
            driver.objects().pools.insert(pool, unsafe { value.cast::<u64>().read() });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocFromPoolAsync(
    address: *mut u64,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> CuResult {
    checked("cuMemAllocFromPoolAsync", |driver| {
        check_pool(driver, pool)?;
        driver.check_not_capturing(stream)?;
        // SAFETY: the caller gives a place.
        unsafe { allocate(driver, address, bytes) }
    })
}
