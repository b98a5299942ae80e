//! Modules: PTX text in, functions and variables out.

use std::ffi::{CStr, c_char, c_uint, c_void};

use super::error;
use super::state::{Api, CuResult, Driver, Function, Handle, checked, give};
use crate::check::finding::{Finding, Kind};
use crate::device::DEFAULT_SHARED;

/// `CU_JIT_ERROR_LOG_BUFFER` and its size, and those of the info log.
const ERROR_LOG: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;
const INFO_LOG_SIZE: u32 = 4;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> CuResult {
    // SAFETY: the caller gives a place and a PTX text with a NUL.
    checked("cuModuleLoadData", |driver| unsafe {
        let (handle, _) = load(driver, image)?;
        give(module, handle)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadFatBinary(module: *mut Handle, image: *const c_void) -> CuResult {
    // SAFETY: the same contract; an image that is no text is refused.
    unsafe { cuModuleLoadData(module, image) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoad(module: *mut Handle, path: *const c_char) -> CuResult {
    checked("cuModuleLoad", |driver| {
        if path.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: not null; the caller gives a C string.
        let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).map_err(|_| error::FILE_NOT_FOUND)?;
        let (handle, _) = load_text(driver, &text).map_err(|_| error::INVALID_PTX)?;
        // SAFETY: the caller gives a place.
        unsafe { give(module, handle) }
    })
}

/// Options of `cuModuleLoadDataEx`: keys, and values that are pointers or numbers.
struct JitOptions {
    count: usize,
    keys: *const u32,
    values: *mut *mut c_void,
}

impl JitOptions {
    fn value(&self, wanted: u32) -> Option<*mut *mut c_void> {
        // SAFETY: the caller of cuModuleLoadDataEx gives `count` keys and values.
        (0..self.count).find(|i| unsafe { *self.keys.add(*i) } == wanted).map(|i| unsafe { self.values.add(i) })
    }

    /// Writes the error log where it is wanted, and how long it is.
    fn write_log(&self, log: &str) {
        let (Some(buffer), Some(size)) = (self.value(ERROR_LOG), self.value(ERROR_LOG_SIZE)) else { return };
        // SAFETY: the caller gives a buffer and its size; the size is passed in the pointer's place.
        unsafe {
            let (buffer, room) = ((*buffer).cast::<u8>(), *size as usize);
            if !buffer.is_null() && room > 0 {
                let count = log.len().min(room - 1);
                buffer.copy_from_nonoverlapping(log.as_ptr(), count);
                buffer.add(count).write(0);
                *size = count as *mut c_void;
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    count: c_uint,
    keys: *mut u32,
    values: *mut *mut c_void,
) -> CuResult {
    checked("cuModuleLoadDataEx", |driver| {
        let is_missing = count > 0 && (keys.is_null() || values.is_null());
        let options = JitOptions { count: if is_missing { 0 } else { count as usize }, keys, values };
        if let Some(size) = options.value(INFO_LOG_SIZE) {
            // SAFETY: a place among the caller's values.
            unsafe { *size = std::ptr::null_mut() };
        }
        // SAFETY: the caller gives a PTX text with a NUL.
        let text = unsafe { image_text(image) }?;
        match load_text(driver, &text) {
            Ok((handle, log)) => {
                options.write_log(&log);
                // SAFETY: the caller gives a place.
                unsafe { give(module, handle) }
            }
            Err(log) => {
                options.write_log(&log);
                Err(error::INVALID_PTX)
            }
        }
    })
}

/// # Safety
/// `image` is null or points to bytes that end with a NUL.
unsafe fn load(driver: &Driver, image: *const c_void) -> Api<(Handle, String)> {
    // SAFETY: the caller's promise.
    let text = unsafe { image_text(image) }?;
    load_text(driver, &text).map_err(|_| error::INVALID_PTX)
}

/// # Safety
/// As for [`load`].
unsafe fn image_text(image: *const c_void) -> Api<String> {
    if image.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null; the caller's promise.
    let text = unsafe { CStr::from_ptr(image.cast()) };
    text.to_str().map(str::to_owned).map_err(|_| error::INVALID_PTX)
}

/// Loads a text; gives the handle and the (empty) log, or the error in words, which is a finding too.
fn load_text(driver: &Driver, text: &str) -> Result<(Handle, String), String> {
    match driver.device.load(text) {
        Ok(module) if !driver.device.runs(&module.target) => {
            driver.device.unload(&module);
            let (major, minor) = driver.device.capability;
            let message =
                format!("ptx error: .target {} does not run on compute capability {major}.{minor}", module.target);
            driver.device.find(Finding::of_call(Kind::InvalidPtx, &message));
            Err(message)
        }
        Ok(module) => {
            let mut objects = driver.objects();
            let handle = objects.new_handle();
            objects.modules.insert(handle, module);
            Ok((handle, String::new()))
        }
        Err(error) => {
            let message = format!("ptx error: {error}");
            driver.device.find(Finding::of_call(Kind::InvalidPtx, &message));
            Err(message)
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> CuResult {
    checked("cuModuleUnload", |driver| {
        let mut objects = driver.objects();
        let Some(removed) = objects.modules.remove(&module) else { return Err(error::INVALID_HANDLE) };
        objects.functions.retain(|_, function| function.module != module);
        drop(objects);
        driver.device.unload(&removed);
        Ok(())
    })
}

/// # Safety
/// `name` is null or a C string.
unsafe fn name_of(name: *const c_char) -> Api<String> {
    if name.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null; the caller's promise.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> CuResult {
    checked("cuModuleGetFunction", |driver| {
        // SAFETY: the caller gives a C string.
        let name = unsafe { name_of(name) }?;
        let mut objects = driver.objects();
        let kernel = objects.modules.get(&module).ok_or(error::INVALID_HANDLE)?.kernels.get(&name).cloned();
        let kernel = kernel.ok_or(error::NOT_FOUND)?;
        let known =
            objects.functions.iter().find(|(_, f)| f.module == module && f.kernel.name == name).map(|(h, _)| *h);
        let handle = known.unwrap_or_else(|| objects.new_handle());
        objects.functions.entry(handle).or_insert(Function { kernel, module, max_dynamic_shared: DEFAULT_SHARED });
        // SAFETY: the caller gives a place.
        unsafe { give(function, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetGlobal_v2(
    address: *mut u64,
    bytes: *mut usize,
    module: Handle,
    name: *const c_char,
) -> CuResult {
    checked("cuModuleGetGlobal_v2", |driver| {
        // SAFETY: the caller gives a C string.
        let name = unsafe { name_of(name) }?;
        let objects = driver.objects();
        let module = objects.modules.get(&module).ok_or(error::INVALID_HANDLE)?;
        let global = module.globals.get(&name).ok_or(error::NOT_FOUND)?;
        // SAFETY: null, or places.
        unsafe {
            if !address.is_null() {
                give(address, global.address)?;
            }
            if bytes.is_null() { Ok(()) } else { give(bytes, global.size) }
        }
    })
}

/// 1: everything is loaded when a module is.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetLoadingMode(mode: *mut u32) -> CuResult {
    // SAFETY: the caller gives a place.
    super::state::call("cuModuleGetLoadingMode", |_| unsafe { give(mode, 1) })
}
