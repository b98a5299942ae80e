//! Modules of device code in the driver: each is loaded, and compiled for the device, when one of its kernels is first
//! wanted.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::embedded::Module;
use super::error::{CudaError, describe};
use super::registry::Kernel;

/// Bytes of the log in which the driver's compiler says what it does not like.
const LOG: usize = 16 << 10;

pub(super) struct Modules {
    context: Arc<CudaContext>,
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    /// By name and tier.
    modules: HashMap<(&'static str, &'static str), sys::CUmodule>,
    /// By symbol and tier.
    functions: HashMap<(String, &'static str), sys::CUfunction>,
}

// SAFETY: the handles are of the driver, which takes them from any thread that has the context.
unsafe impl Send for Loaded {}

impl Modules {
    pub fn new(context: Arc<CudaContext>) -> Modules {
        Modules { context, loaded: Mutex::default() }
    }

    /// The kernel's function. The caller has bound the context.
    pub fn function(&self, kernel: &Kernel) -> Result<sys::CUfunction, CudaError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(|e| e.into_inner());
        let key = (kernel.symbol.clone(), kernel.module.tier);
        if let Some(function) = loaded.functions.get(&key) {
            return Ok(*function);
        }
        let at = (kernel.module.name, kernel.module.tier);
        let module = match loaded.modules.get(&at) {
            Some(module) => *module,
            None => {
                let module = load(kernel.module, &kernel.ptx)?;
                loaded.modules.insert(at, module);
                module
            }
        };
        let name = CString::new(kernel.symbol.as_str()).map_err(|e| CudaError::Table(e.to_string()))?;
        // SAFETY: the module is loaded, and unloaded only when `self` goes.
        let function = unsafe { result::module::get_function(module, name) };
        let failure =
            |e| CudaError::Driver { call: "cuModuleGetFunction", kernel: kernel.symbol.clone(), error: describe(e) };
        let function = function.map_err(failure)?;
        loaded.functions.insert(key, function);
        Ok(function)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        let loaded = self.loaded.get_mut().unwrap_or_else(|e| e.into_inner());
        for (_, module) in loaded.modules.drain() {
            // SAFETY: its functions go with `self`.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}

/// cuModuleLoadDataEx with the compiler's log, which the plain call throws away.
fn load(module: &Module, version: &str) -> Result<sys::CUmodule, CudaError> {
    let name = format!("{}.{}.ptx", module.name, module.tier);
    let text = CString::new(module.ptx).map_err(|e| CudaError::Table(format!("{name}: {e}")))?;
    let mut log = vec![0u8; LOG];
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG)];
    let mut handle = std::ptr::null_mut();
    // SAFETY: the text ends in 0; there are two options, their values as the driver's manual has them, and the log
    // outlives the call.
    let done = unsafe {
        sys::cuModuleLoadDataEx(&mut handle, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
    };
    match done {
        sys::CUresult::CUDA_SUCCESS => Ok(handle),
        sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            Err(CudaError::OldDriver { module: name, version: version.into(), driver: driver_for(version) })
        }
        error => {
            let end = log.iter().position(|b| *b == 0).unwrap_or(LOG);
            let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
            Err(CudaError::Module { module: name, error: describe(DriverError(error)), log })
        }
    }
}

/// The oldest driver that takes a PTX version (the PTX ISA's release notes).
fn driver_for(version: &str) -> &'static str {
    match version {
        "7.0" => "a driver of CUDA 11.0, 450, or newer",
        "8.0" => "a driver of CUDA 12.0, 525, or newer",
        "8.1" => "a driver of CUDA 12.1, 530, or newer",
        "8.2" => "a driver of CUDA 12.2, 535, or newer",
        "8.3" => "a driver of CUDA 12.3, 545, or newer",
        "8.4" => "a driver of CUDA 12.4, 550, or newer",
        "8.5" => "a driver of CUDA 12.5, 555, or newer",
        "8.6" => "a driver of CUDA 12.7, 565, or newer",
        "8.7" => "a driver of CUDA 12.8, 570, or newer",
        "8.8" => "a driver of CUDA 12.9, 575, or newer",
        older if older.starts_with("7.") => "a driver of CUDA 11.8, 520, or newer",
        _ => "a driver of CUDA 13.0, 580, or newer",
    }
}
