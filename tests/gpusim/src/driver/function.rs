//! Attributes of functions.

use std::ffi::c_int;

use super::error;
use super::state::{CuResult, Handle, checked, give};
use crate::device::DEFAULT_SHARED;

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: u32 = 8;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: u32, function: Handle) -> CuResult {
    checked("cuFuncGetAttribute", |driver| {
        let objects = driver.objects();
        let function = objects.functions.get(&function).ok_or(error::INVALID_HANDLE)?;
        let kernel = &function.kernel;
        let (major, minor) = driver.device.capability;
        let result = match attribute {
            0 => kernel.max_threads.unwrap_or(1024).min(1024) as c_int,
            1 => kernel.static_shared as c_int,
            3 => kernel.local_size as c_int,
            // Registers (4) are the business of a compiler that is not here; constant memory (2) is memory.
            5 => 80,
            6 => (10 * major + minor) as c_int,
            MAX_DYNAMIC_SHARED => function.max_dynamic_shared as c_int,
            9 => -1,
            _ => 0,
        };
        // SAFETY: the caller gives a place.
        unsafe { give(value, result) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: u32, value: c_int) -> CuResult {
    checked("cuFuncSetAttribute", |driver| {
        let room = driver.device.max_shared();
        let mut objects = driver.objects();
        let function = objects.functions.get_mut(&function).ok_or(error::INVALID_HANDLE)?;
        if attribute == MAX_DYNAMIC_SHARED {
            let bytes = usize::try_from(value).map_err(|_| error::INVALID_VALUE)?;
            if bytes + function.kernel.static_shared > room {
                let message = format!(
                    "{bytes} bytes of dynamic shared memory asked for `{}`, beside {} static ones: the device has {room}",
                    function.kernel.name, function.kernel.static_shared
                );
                drop(objects);
                return driver.invalid(error::INVALID_VALUE, &message);
            }
            function.max_dynamic_shared = bytes.max(DEFAULT_SHARED);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(function: Handle, _config: u32) -> CuResult {
    checked("cuFuncSetCacheConfig", |driver| {
        let exists = driver.objects().functions.contains_key(&function);
        if exists { Ok(()) } else { Err(error::INVALID_HANDLE) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetModule(module: *mut Handle, function: Handle) -> CuResult {
    checked("cuFuncGetModule", |driver| {
        let handle = driver.objects().functions.get(&function).ok_or(error::INVALID_HANDLE)?.module;
        // SAFETY: the caller gives a place.
        unsafe { give(module, handle) }
    })
}
