//! Result codes: their numbers, names and texts.

use std::ffi::{CStr, c_char};

use super::state::{CuError, CuResult, SUCCESS};
use crate::exec::env::Fault;

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(pub const $name: CuError = CuError($code);)*

        /// Name and description of a code, with a NUL.
        fn texts(code: u32) -> Option<(&'static CStr, &'static CStr)> {
            const fn c(text: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(text.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => c"",
                }
            }
            match code {
                SUCCESS => Some((c"CUDA_SUCCESS", c"no error")),
                $($code => Some((
                    const { c(concat!("CUDA_ERROR_", stringify!($name), "\0")) },
                    const { c(concat!($text, "\0")) },
                )),)*
                _ => None,
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_CONTEXT = 201, "invalid device context";
    INVALID_PTX = 218, "a PTX JIT compilation failed";
    FILE_NOT_FOUND = 301, "file not found";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "the operation cannot be performed in the present state";
    NOT_FOUND = 500, "named symbol not found";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated";
    ASSERT = 710, "device-side assert triggered";
    MISALIGNED_ADDRESS = 716, "misaligned address";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "too many blocks in cooperative launch";
    NOT_SUPPORTED = 801, "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_UNMATCHED = 903, "stream capture was not begun on this stream";
    UNKNOWN = 999, "unknown error";
}

/// The code a kernel's fault is reported with.
pub fn of_fault(fault: Fault) -> CuError {
    match fault {
        Fault::IllegalAddress => ILLEGAL_ADDRESS,
        Fault::MisalignedAddress => MISALIGNED_ADDRESS,
        Fault::LaunchFailed => LAUNCH_FAILED,
        Fault::Assert => ASSERT,
        Fault::Timeout => LAUNCH_TIMEOUT,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: u32, name: *mut *const c_char) -> CuResult {
    // SAFETY: the caller gives a place for the pointer.
    unsafe { text(code, name, |(name, _)| name) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: u32, string: *mut *const c_char) -> CuResult {
    // SAFETY: the caller gives a place for the pointer.
    unsafe { text(code, string, |(_, string)| string) }
}

/// # Safety
/// `out` is null or a place for a pointer.
unsafe fn text(
    code: u32,
    out: *mut *const c_char,
    pick: impl Fn((&'static CStr, &'static CStr)) -> &'static CStr,
) -> CuResult {
    let found = texts(code);
    if out.is_null() {
        return INVALID_VALUE.0;
    }
    // SAFETY: not null, the caller's promise.
    unsafe { out.write(found.map_or(std::ptr::null(), |texts| pick(texts).as_ptr())) };
    if found.is_some() { SUCCESS } else { INVALID_VALUE.0 }
}
