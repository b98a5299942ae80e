use std::ffi::{CStr, c_char, c_int, c_void};

use serde::{Deserialize, Serialize};

use super::super::{Cuda, CudaError};
use super::Workload;

/// What one launch asks of the hardware, as gpusim counts it: the same on every machine, and no times.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    pub blocks: u64,
    pub warp_instructions: u64,
    pub thread_instructions: u64,
    /// 32-byte sectors of global memory that warps' requests touch.
    pub sectors: u64,
    /// The fewest that each request's bytes fit into.
    pub sectors_minimum: u64,
    /// Passes over shared memory beyond those that the width of the accesses needs.
    pub bank_conflicts: u64,
    pub shared_requests: u64,
    pub tensor_multiply_adds: u64,
    /// The tensor cores' multiply-adds over the formula's; `None` for kernels that do not use them.
    pub tensor_share: Option<f64>,
    /// Bytes of the sectors over the bytes that must pass at the least.
    pub traffic: f64,
}

#[derive(Deserialize)]
struct Counters {
    kernel: String,
    launches: u64,
    blocks: u64,
    thread_instructions: u64,
    warp_instructions: u64,
    global_sectors_read: u64,
    global_sectors_read_minimum: u64,
    global_sectors_written: u64,
    global_sectors_written_minimum: u64,
    shared_requests: u64,
    shared_extra_wavefronts: u64,
    tensor_multiply_adds: u64,
}

/// Launches the workload once.
pub fn count(cuda: &Cuda, workload: &Workload) -> Result<Counted, CudaError> {
    let counters = Gpusim::loaded().ok_or_else(|| CudaError::Table("gpusim's counters cannot be reached".into()))?;
    let set = workload.set(cuda)?;
    cuda.synchronize()?;
    let before = counters.of(&workload.symbol)?;
    workload.run(cuda, &set)?;
    cuda.synchronize()?;
    let after = counters.of(&workload.symbol)?;
    let after = after.ok_or_else(|| CudaError::Table(format!("gpusim did not count {}", workload.symbol)))?;
    let since = |value: fn(&Counters) -> u64| value(&after) - before.as_ref().map_or(0, value);
    if since(|c| c.launches) != 1 {
        return Err(CudaError::Table(format!("{} was launched more than once", workload.symbol)));
    }
    let (sectors, macs) =
        (since(|c| c.global_sectors_read + c.global_sectors_written), since(|c| c.tensor_multiply_adds));
    Ok(Counted {
        blocks: since(|c| c.blocks),
        warp_instructions: since(|c| c.warp_instructions),
        thread_instructions: since(|c| c.thread_instructions),
        sectors,
        sectors_minimum: since(|c| c.global_sectors_read_minimum + c.global_sectors_written_minimum),
        bank_conflicts: since(|c| c.shared_extra_wavefronts),
        shared_requests: since(|c| c.shared_requests),
        tensor_multiply_adds: macs,
        tensor_share: workload.tensor_cores.then(|| 2.0 * macs as f64 / workload.flops as f64),
        traffic: sectors as f64 * 32.0 / workload.bytes as f64,
    })
}

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}
const RTLD_NOW: c_int = 2;

/// gpusim's own functions, which it has beside the driver's (tests/gpusim/src/driver/control.rs).
struct Gpusim {
    counters_json: CountersJson,
}

type Receiver = unsafe extern "C" fn(*const u8, usize, *mut c_void);
type CountersJson = unsafe extern "C" fn(Receiver, *mut c_void);

impl Gpusim {
    fn loaded() -> Option<Gpusim> {
        let name: &CStr = c"libcuda.so";
        // SAFETY: C strings; the loader hands out the library that it has under this name, which is the driver in use.
        let symbol = unsafe {
            let library = dlopen(name.as_ptr(), RTLD_NOW);
            if library.is_null() {
                return None;
            }
            dlsym(library, c"gpusim_counters_json".as_ptr())
        };
        // SAFETY: gpusim gives this name to a function of this type.
        let function = || unsafe { std::mem::transmute::<*mut c_void, CountersJson>(symbol) };
        (!symbol.is_null()).then(|| Gpusim { counters_json: function() })
    }

    /// A kernel's counts so far; `None` before its first launch.
    fn of(&self, symbol: &str) -> Result<Option<Counters>, CudaError> {
        unsafe extern "C" fn receive(bytes: *const u8, len: usize, out: *mut c_void) {
            // SAFETY: the library gives `len` bytes; `out` is the string below.
            unsafe { *out.cast::<String>() = String::from_utf8_lossy(std::slice::from_raw_parts(bytes, len)).into() };
        }
        let mut text = String::new();
        // SAFETY: the callback takes the pointer as what it is.
        unsafe { (self.counters_json)(receive, (&raw mut text).cast()) };
        let all: Vec<Counters> =
            serde_json::from_str(&text).map_err(|e| CudaError::Table(format!("gpusim's counters: {e}")))?;
        Ok(all.into_iter().find(|c| c.kernel == symbol))
    }
}
