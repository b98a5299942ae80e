//! The driver's state, and the frame every function runs in.

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use super::error;
use super::work::Work;
use crate::check::finding::{Finding, Kind};
use crate::decode::inst::Kernel;
use crate::device::{Device, Module};
use crate::exec::grid::Execution;

/// `CUresult`.
pub type CuResult = u32;
pub const SUCCESS: CuResult = 0;

/// A result other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuError(pub u32);

pub type Api<T = ()> = Result<T, CuError>;

/// An opaque handle (`CUcontext`, `CUstream`…): a number, 0 where there is none.
pub type Handle = usize;

/// The handle of the device's primary context.
pub const PRIMARY: Handle = 1;

pub struct Function {
    pub kernel: Arc<Kernel>,
    pub module: Handle,
    pub max_dynamic_shared: usize,
}

#[derive(Default)]
pub struct Stream {
    /// Work recorded instead of done, while the stream is being captured.
    pub capture: Option<Vec<Work>>,
}

/// All objects that handles name.
#[derive(Default)]
pub struct Objects {
    next: Handle,
    /// Contexts and how often each is retained.
    pub contexts: HashMap<Handle, usize>,
    pub modules: HashMap<Handle, Module>,
    pub functions: HashMap<Handle, Function>,
    pub streams: HashMap<Handle, Stream>,
    /// When each event was last recorded.
    pub events: HashMap<Handle, Option<Instant>>,
    pub graphs: HashMap<Handle, Arc<Vec<Work>>>,
    /// Memory pools and their release thresholds.
    pub pools: HashMap<Handle, u64>,
}

impl Objects {
    /// A handle never given before.
    pub fn new_handle(&mut self) -> Handle {
        // Apart from the primary context's and the legacy streams' handles (1 and 2), and recognisable.
        self.next = self.next.max(0x5150_0000) + 16;
        self.next
    }
}

pub struct Driver {
    pub device: Device,
    pub objects: Mutex<Objects>,
    /// The error of a kernel that every call returns from then on; 0 if none.
    fault: AtomicU32,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

thread_local! {
    /// The calling thread's current context.
    pub static CURRENT: Cell<Handle> = const { Cell::new(0) };
}

impl Driver {
    fn from_environment() -> Self {
        let mut device = Device::default();
        if let Some(capability) =
            std::env::var("GPUSIM_COMPUTE_CAPABILITY").ok().and_then(|text| parse_capability(&text))
        {
            device.capability = capability;
        }
        if let Some(mebibytes) = number("GPUSIM_MEMORY_MB") {
            device.memory = (mebibytes as usize) << 20;
        }
        let default = Execution::default();
        device.set_execution(Execution {
            workers: number("GPUSIM_THREADS").map_or(default.workers, |n| (n as usize).clamp(1, 1024)),
            watchdog: number("GPUSIM_WATCHDOG").unwrap_or(default.watchdog),
            ..default
        });
        Driver { device, objects: Mutex::default(), fault: AtomicU32::new(SUCCESS) }
    }

    /// The objects. A panic cannot leave them half changed: every change is one insertion or removal.
    pub fn objects(&self) -> std::sync::MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn set_fault(&self, error: CuError) {
        self.fault.store(error.0, Relaxed);
    }

    pub fn clear_fault(&self) {
        self.fault.store(SUCCESS, Relaxed);
    }

    pub fn check_fault(&self) -> Api {
        match self.fault.load(Relaxed) {
            SUCCESS => Ok(()),
            code => Err(CuError(code)),
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// `9.0`, `90` or `12.0`.
fn parse_capability(text: &str) -> Option<(u32, u32)> {
    let text = text.trim();
    match text.split_once('.') {
        Some((major, minor)) => Some((major.parse().ok()?, minor.parse().ok()?)),
        None => text.parse::<u32>().ok().filter(|n| *n >= 10).map(|n| (n / 10, n % 10)),
    }
}

/// The driver, made when first asked for.
pub fn driver() -> &'static Driver {
    DRIVER.get_or_init(Driver::from_environment)
}

/// Runs the body of a function that needs `cuInit`, whatever happened before.
pub fn call(name: &str, body: impl FnOnce(&'static Driver) -> Api) -> CuResult {
    let result = catch_unwind(AssertUnwindSafe(|| match DRIVER.get() {
        Some(driver) => body(driver),
        None => Err(error::NOT_INITIALIZED),
    }));
    match result {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(CuError(code))) => code,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default();
            driver().device.find(Finding::of_call(Kind::Internal, format!("{name} panicked: {text}")));
            error::UNKNOWN.0
        }
    }
}

/// Runs the body of a function that fails once a kernel has faulted, and needs a current context.
pub fn checked(name: &str, body: impl FnOnce(&'static Driver) -> Api) -> CuResult {
    call(name, |driver| {
        driver.check_fault()?;
        if CURRENT.get() == 0 {
            return Err(error::INVALID_CONTEXT);
        }
        body(driver)
    })
}

/// Writes a result through a pointer the caller gave.
///
/// # Safety
/// `out` is null or valid for writing a `T`.
pub unsafe fn give<T>(out: *mut T, value: T) -> Api {
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}
