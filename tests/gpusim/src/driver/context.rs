//! Contexts: the device's primary one, and others.

use std::ffi::{c_int, c_void};

use super::attribute::check_device;
use super::error;
use super::state::{Api, CURRENT, CuResult, Driver, Handle, PRIMARY, call, checked, give};
use crate::check::finding::{Finding, Kind};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> CuResult {
    call("cuDevicePrimaryCtxRetain", |driver| {
        check_device(device)?;
        *driver.objects().contexts.entry(PRIMARY).or_default() += 1;
        // SAFETY: the caller gives a place.
        unsafe { give(context, PRIMARY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> CuResult {
    call("cuDevicePrimaryCtxRelease_v2", |driver| {
        check_device(device)?;
        release(driver, PRIMARY)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> CuResult {
    call("cuDevicePrimaryCtxReset_v2", |driver| {
        check_device(device)?;
        driver.clear_fault();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut u32, active: *mut c_int) -> CuResult {
    call("cuDevicePrimaryCtxGetState", |driver| {
        check_device(device)?;
        let is_active = driver.objects().contexts.contains_key(&PRIMARY);
        // SAFETY: the caller gives places.
        unsafe {
            give(flags, 0)?;
            give(active, is_active as c_int)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: u32) -> CuResult {
    call("cuDevicePrimaryCtxSetFlags_v2", |_| check_device(device))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v3(
    context: *mut Handle,
    _affinity: *mut c_void,
    _count: c_int,
    _flags: u32,
    device: c_int,
) -> CuResult {
    // SAFETY: the same contract.
    call("cuCtxCreate_v3", |driver| unsafe { create(driver, context, device) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v2(context: *mut Handle, _flags: u32, device: c_int) -> CuResult {
    // SAFETY: the same contract.
    call("cuCtxCreate_v2", |driver| unsafe { create(driver, context, device) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v4(
    context: *mut Handle,
    _parameters: *mut c_void,
    _flags: u32,
    device: c_int,
) -> CuResult {
    // SAFETY: the same contract.
    call("cuCtxCreate_v4", |driver| unsafe { create(driver, context, device) })
}

/// # Safety
/// `context` is null or a place for a handle.
unsafe fn create(driver: &Driver, context: *mut Handle, device: c_int) -> Api {
    check_device(device)?;
    let mut objects = driver.objects();
    let handle = objects.new_handle();
    objects.contexts.insert(handle, 1);
    CURRENT.set(handle);
    // SAFETY: the caller's promise.
    unsafe { give(context, handle) }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: Handle) -> CuResult {
    call("cuCtxDestroy_v2", |driver| {
        if CURRENT.get() == context {
            CURRENT.set(0);
        }
        release(driver, context)
    })
}

/// Lets go of a context. With the last one goes all it held: what is left of it is reported, then forgotten, and so is the error of
/// a kernel.
fn release(driver: &Driver, context: Handle) -> Api {
    let is_last = {
        let mut objects = driver.objects();
        let Some(count) = objects.contexts.get_mut(&context) else { return Err(error::INVALID_CONTEXT) };
        *count -= 1;
        if *count == 0 {
            objects.contexts.remove(&context);
        }
        objects.contexts.is_empty()
    };
    if is_last {
        report_leaks(driver, "when the context ended");
        driver.clear_fault();
    }
    Ok(())
}

/// Notes every object that still exists as a leak; `when` completes the sentence.
pub fn report_leaks(driver: &Driver, when: &str) {
    let objects = driver.objects();
    let of_modules: Vec<u64> = objects.modules.values().flat_map(|m| m.globals.values()).map(|g| g.address).collect();
    let counts = [
        (objects.modules.len(), "modules"),
        (objects.streams.len(), "streams"),
        (objects.events.len(), "events"),
        (objects.graphs.len(), "graphs"),
    ];
    drop(objects);
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        driver.device.find(Finding::of_call(Kind::Leak, format!("{count} {what} still there {when}")));
    }
    driver.device.report_leaks(when, |address| of_modules.contains(&address));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> CuResult {
    // SAFETY: the caller gives a place.
    call("cuCtxGetCurrent", |_| unsafe { give(context, CURRENT.get()) })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> CuResult {
    call("cuCtxSetCurrent", |driver| {
        if context != 0 && !driver.objects().contexts.contains_key(&context) {
            return Err(error::INVALID_CONTEXT);
        }
        CURRENT.set(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> CuResult {
    cuCtxSetCurrent(context)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut Handle) -> CuResult {
    call("cuCtxPopCurrent_v2", |_| {
        let current = CURRENT.replace(0);
        // SAFETY: null, or a place.
        if context.is_null() { Ok(()) } else { unsafe { give(context, current) } }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> CuResult {
    // SAFETY: the caller gives a place.
    checked("cuCtxGetDevice", |_| unsafe { give(device, 0) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetApiVersion(_context: Handle, version: *mut u32) -> CuResult {
    // SAFETY: the caller gives a place.
    call("cuCtxGetApiVersion", |_| unsafe { give(version, 3020) })
}

/// All work is done when its call returns: what is left to report is a kernel's error.
#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> CuResult {
    checked("cuCtxSynchronize", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetFlags(_flags: u32) -> CuResult {
    checked("cuCtxSetFlags", |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetFlags(flags: *mut u32) -> CuResult {
    // SAFETY: the caller gives a place.
    checked("cuCtxGetFlags", |_| unsafe { give(flags, 0) })
}

/// Stack size, printf buffer, malloc heap: the defaults of a real driver.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetLimit(value: *mut usize, limit: u32) -> CuResult {
    checked("cuCtxGetLimit", |_| {
        let default = match limit {
            0 => 1024,
            1 => 1 << 20,
            2 => 8 << 20,
            _ => 0,
        };
        // SAFETY: the caller gives a place.
        unsafe { give(value, default) }
    })
}

/// Local memory here is as large as kernels declare: limits restrict nothing.
#[unsafe(no_mangle)]
extern "C" fn cuCtxSetLimit(_limit: u32, _value: usize) -> CuResult {
    checked("cuCtxSetLimit", |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCacheConfig(config: *mut u32) -> CuResult {
    // SAFETY: the caller gives a place.
    checked("cuCtxGetCacheConfig", |_| unsafe { give(config, 0) })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCacheConfig(_config: u32) -> CuResult {
    checked("cuCtxSetCacheConfig", |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> CuResult {
    // SAFETY: the caller gives places.
    checked("cuCtxGetStreamPriorityRange", |_| unsafe {
        give(least, 0)?;
        give(greatest, -5)
    })
}

/// Profilers are not here to be started.
#[unsafe(no_mangle)]
extern "C" fn cuProfilerStart() -> CuResult {
    checked("cuProfilerStart", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStop() -> CuResult {
    checked("cuProfilerStop", |_| Ok(()))
}
