//! Devices and what they can do.

use std::ffi::{c_char, c_int};

use super::error;
use super::state::{CuResult, Driver, SUCCESS, call, driver, give};
use crate::device::DEFAULT_SHARED;
use crate::exec::env::MULTIPROCESSORS;

/// The name tests assert, so that none runs on a real device unnoticed.
pub const DEVICE_NAME: &str = "gpusim";

/// CUDA 12.4.
const DRIVER_VERSION: c_int = 12040;

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: u32) -> CuResult {
    driver();
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CuResult {
    driver();
    // SAFETY: the caller gives a place.
    call("cuDriverGetVersion", |_| unsafe { give(version, DRIVER_VERSION) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CuResult {
    // SAFETY: the caller gives a place.
    call("cuDeviceGetCount", |_| unsafe { give(count, 1) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> CuResult {
    call("cuDeviceGet", |_| {
        check_device(ordinal)?;
        // SAFETY: the caller gives a place.
        unsafe { give(device, ordinal) }
    })
}

/// There is one device.
pub fn check_device(device: c_int) -> super::state::Api {
    if device == 0 { Ok(()) } else { Err(error::INVALID_DEVICE) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> CuResult {
    call("cuDeviceGetName", |_| {
        check_device(device)?;
        if name.is_null() || len < 1 {
            return Err(error::INVALID_VALUE);
        }
        let count = DEVICE_NAME.len().min(len as usize - 1);
        // SAFETY: the caller gives `len` bytes, of which count + 1 are written.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(DEVICE_NAME.as_ptr(), count);
            name.add(count).write(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> CuResult {
    call("cuDeviceGetUuid", |_| {
        check_device(device)?;
        // SAFETY: the caller gives a place.
        unsafe { give(uuid, *b"gpusim gpusim 00") }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> CuResult {
    // SAFETY: the same contract.
    unsafe { cuDeviceGetUuid(uuid, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> CuResult {
    call("cuDeviceTotalMem_v2", |driver| {
        check_device(device)?;
        // SAFETY: the caller gives a place.
        unsafe { give(bytes, driver.device.memory) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: u32, device: c_int) -> CuResult {
    call("cuDeviceGetAttribute", |driver| {
        check_device(device)?;
        // SAFETY: the caller gives a place.
        unsafe { give(value, device_attribute(driver, attribute)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: c_int) -> CuResult {
    call("cuDeviceComputeCapability", |driver| {
        check_device(device)?;
        // SAFETY: the caller gives places.
        unsafe {
            give(major, driver.device.capability.0 as c_int)?;
            give(minor, driver.device.capability.1 as c_int)
        }
    })
}

/// Numbers of an A100's kind, with few multiprocessors. Attributes not listed are features this device has not: 0.
fn device_attribute(driver: &Driver, attribute: u32) -> c_int {
    let device = &driver.device;
    match attribute {
        1..=3 => 1024,                              // threads per block, block x and y
        4 => 64,                                    // block z
        5 => c_int::MAX,                            // grid x
        6 | 7 => 65535,                             // grid y, z
        8 => DEFAULT_SHARED as c_int,               // shared memory per block
        9 => 65536,                                 // constant memory
        10 => 32,                                   // warp size
        11 => c_int::MAX,                           // pitch
        12 | 82 => 65536,                           // registers per block, per multiprocessor
        13 => 1_410_000,                            // clock, kHz
        14 | 31 | 41 | 78..=80 | 83 | 89 | 90 => 1, // alignment and features
        16 => MULTIPROCESSORS as c_int,
        15 | 19 => 1,    // copies overlap, host memory maps
        36 => 1_215_000, // memory clock, kHz
        37 => 5120,      // bus width, bits
        38 => 40 << 20,  // L2 cache
        39 => 2048,      // threads per multiprocessor
        40 => 1,         // copy engines
        75 => device.capability.0 as c_int,
        76 => device.capability.1 as c_int,
        81 => device.max_shared() as c_int + 1024, // shared memory per multiprocessor
        95 => 0,                                   // cooperative launch
        97 => device.max_shared() as c_int,        // shared memory per block, opt in
        106 => 32,                                 // blocks per multiprocessor
        111 => 1024,                               // reserved shared memory per block
        115 => 1,                                  // memory pools
        _ => 0,
    }
}
