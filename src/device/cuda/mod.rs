//! NVIDIA GPUs: the driver through cudarc, found at run time. A build and a machine without CUDA are fine.
//!
//! [`Cuda`] is one device with its stream, memory and modules. [`Registry`] knows the kernels of `cuda/` and launches are by
//! symbol: grid, block and shared memory follow from the arguments and the kernel's rules, and its limits are held to
//! before anything runs. [`check`] runs every kernel against the ops' f64 references.

mod arguments;
pub mod bench;
pub mod check;
mod constants;
pub mod embedded;
mod error;
mod event;
mod layout;
mod memory;
mod module;
mod registry;
mod rule;
mod staging;

use std::ffi::c_void;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, DriverError, result, sys};

pub use arguments::Arguments;
pub(crate) use constants::Constant;
pub use error::CudaError;
pub use event::Event;
pub use memory::DeviceBuffer;
pub use registry::{Kernel, Registry, Rules};

use super::pool::MemoryStats;
use constants::Constants;
use error::describe;
use memory::Memory;
use module::Modules;

/// The kernels' arguments as text, for their layout.
const ABI: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/ptx/abi.rs"));

/// Dynamic shared memory above this has to be asked for.
const PLAIN_SHARED: u64 = 48 << 10;
/// Blocks along x, and along y and z.
const MOST_BLOCKS: [u64; 3] = [(1 << 31) - 1, 65535, 65535];

/// One GPU.
pub struct Cuda {
    // Modules and memory go before the context that they are in.
    modules: Modules,
    constants: Constants,
    memory: Arc<Memory>,
    registry: &'static Registry,
    pub name: String,
    pub ordinal: usize,
    /// Major and minor.
    pub capability: (u32, u32),
    /// Bytes of shared memory that a block can have.
    pub shared: u64,
    /// CUDA's version as the driver has it, 12040 for 12.4.
    pub driver: u32,
}

impl Cuda {
    /// The device with this ordinal.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`], [`CudaError::NoDevice`], [`CudaError::NoSuchDevice`]; [`CudaError::Driver`] where the driver
    /// fails.
    pub fn open(ordinal: usize) -> Result<Cuda, CudaError> {
        // SAFETY: it loads libcuda.so, whose initialisers are the driver's.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let failure = |call| move |e| CudaError::Driver { call, kernel: String::new(), error: describe(e) };
        match result::init() {
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Err(CudaError::NoDevice),
            // A library for linking only, as CUDA's toolkit has it.
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_STUB_LIBRARY => return Err(CudaError::NoDriver),
            other => other.map_err(failure("cuInit"))?,
        }
        let found = result::device::get_count().map_err(failure("cuDeviceGetCount"))?.max(0) as usize;
        match found {
            0 => return Err(CudaError::NoDevice),
            _ if ordinal >= found => return Err(CudaError::NoSuchDevice { ordinal, found }),
            _ => {}
        }
        let context = CudaContext::new(ordinal).map_err(failure("cuDevicePrimaryCtxRetain"))?;
        let name = context.name().map_err(failure("cuDeviceGetName"))?;
        let (major, minor) = context.compute_capability().map_err(failure("cuDeviceGetAttribute"))?;
        let shared = context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
            .map_err(failure("cuDeviceGetAttribute"))?;
        let mut driver = 0;
        // SAFETY: the driver is initialised; it writes one number.
        unsafe { sys::cuDriverGetVersion(&mut driver) }.result().map_err(failure("cuDriverGetVersion"))?;
        let stream = context.new_stream().map_err(failure("cuStreamCreate"))?;
        Ok(Cuda {
            modules: Modules::new(context.clone()),
            constants: Constants::default(),
            memory: Arc::new(Memory::new(context, stream, name.clone())),
            registry: Registry::embedded()?,
            name,
            ordinal,
            capability: (major.unsigned_abs(), minor.unsigned_abs()),
            shared: u64::from(shared.unsigned_abs()),
            driver: driver.unsigned_abs(),
        })
    }

    pub fn registry(&self) -> &'static Registry {
        self.registry
    }

    /// Bytes in use, the most there were since [`Cuda::reset_peak`], and bytes kept for reuse.
    pub fn memory(&self) -> MemoryStats {
        self.memory.stats()
    }

    /// Forgets the peak: from here on it is the peak of what follows.
    pub fn reset_peak(&self) {
        self.memory.reset_peak();
    }

    /// Whether it is the interpreter of the tests: it counts, and its times are an interpreter's.
    pub fn is_simulated(&self) -> bool {
        self.name == "gpusim"
    }

    /// Keeps at most so many bytes of freed memory for reuse. With 0, every buffer is an allocation of its own that ends where
    /// the buffer ends.
    pub fn keep_at_most(&self, bytes: usize) {
        self.memory.keep_at_most(bytes);
    }

    /// A buffer of any contents.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`].
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, CudaError> {
        DeviceBuffer::unwritten(&self.memory, len)
    }

    /// A copy of `values` on the device.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`], [`CudaError::Driver`].
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<DeviceBuffer<T>, CudaError> {
        let mut buffer = self.buffer(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// `values` on the device, for kernels that only read them. The same values again are the same copy: offsets and tables
    /// that depend on shapes alone are sent once.
    pub(crate) fn constant<T: Pod>(&self, values: &[T]) -> Result<Constant, CudaError> {
        self.constants.get(bytemuck::cast_slice(values), |bytes| self.upload(bytes))
    }

    /// Waits for everything launched.
    ///
    /// # Errors
    /// [`CudaError::Driver`] with the last kernel where one of them failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.memory.stream.synchronize().map_err(|e| self.memory.failure("cuStreamSynchronize", e))
    }

    /// Launches a kernel, and does not wait for it. A grid of no blocks is not launched.
    ///
    /// # Errors
    /// [`CudaError::NoKernel`]; [`CudaError::Limit`] where the arguments are outside the kernel's limits or need more blocks
    /// or shared memory than the device has; [`CudaError::Driver`].
    ///
    /// # Safety
    /// Pointers in `args` are device addresses of this device, as long as the struct's comments in cuda/abi.h say, or null
    /// where they allow it, and no two of them overlap where they do not allow it. Contents that are indices are in range.
    pub unsafe fn launch<A: Arguments>(&self, symbol: &str, args: &A) -> Result<(), CudaError> {
        let Some(kernel) = self.registry.find(symbol, self.capability) else {
            let (symbol, device) = (symbol.into(), self.name.clone());
            return Err(CudaError::NoKernel { symbol, device, capability: self.capability });
        };
        if A::NAME != kernel.rules.args {
            return Err(CudaError::Table(format!("{symbol}: given {}, takes {}", A::NAME, kernel.rules.args)));
        }
        // SAFETY: an argument struct is plain data without padding (cuda/abi.h).
        let bytes = unsafe { std::slice::from_raw_parts((&raw const *args).cast::<u8>(), size_of::<A>()) };
        let Some(geometry) = self.geometry(kernel, bytes)? else { return Ok(()) };
        self.memory.context.bind_to_thread().map_err(|e| self.memory.failure("cuCtxSetCurrent", e))?;
        let function = self.modules.function(kernel)?;
        self.memory.launched(symbol);
        self.dispatch(kernel, function, geometry, (&raw const *args).cast_mut().cast())
            .map_err(|(call, e)| self.memory.failure(call, e))
    }

    /// Blocks and dynamic shared memory; `None` where there is nothing to do.
    fn geometry(&self, kernel: &Kernel, args: &[u8]) -> Result<Option<([u32; 3], u32)>, CudaError> {
        let member = |name: &str| kernel.layout.read(args, name);
        let refuse = |found: String, limit: String| CudaError::Limit { symbol: kernel.symbol.clone(), found, limit };
        let mut grid = [1u32; 3];
        let texts = kernel.rules.grid.iter().zip(MOST_BLOCKS);
        for ((blocks, rule), (text, most)) in grid.iter_mut().zip(&kernel.grid).zip(texts) {
            let value = rule.value(kernel.element, member).filter(|value| *value <= most);
            let value = value.and_then(|value| u32::try_from(value).ok());
            *blocks = value.ok_or_else(|| refuse(format!("a grid of {text}"), format!("at most {most} blocks")))?;
        }
        if grid.contains(&0) {
            return Ok(None);
        }
        for limit in &kernel.limits {
            if let Some(found) = limit.broken(kernel.element, member) {
                return Err(refuse(found, limit.text.clone()));
            }
        }
        let dynamic = kernel.dynamic.value(kernel.element, member);
        let fits = |bytes: &u64| bytes.saturating_add(u64::from(kernel.shared)) <= self.shared;
        match dynamic.filter(fits).and_then(|bytes| u32::try_from(bytes).ok()) {
            Some(bytes) => Ok(Some((grid, bytes))),
            None => {
                let found = dynamic.map_or("more than 64 bits".into(), |bytes| bytes.to_string());
                let limit = format!("at most {} bytes on {}", self.shared - u64::from(kernel.shared), self.name);
                Err(refuse(format!("{found} bytes of shared memory"), limit))
            }
        }
    }

    fn dispatch(
        &self,
        kernel: &Kernel,
        function: sys::CUfunction,
        (grid, dynamic): ([u32; 3], u32),
        args: *mut c_void,
    ) -> Result<(), (&'static str, DriverError)> {
        if u64::from(dynamic) + u64::from(kernel.shared) > PLAIN_SHARED {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: a function of a loaded module.
            unsafe { result::function::set_function_attribute(function, attribute, dynamic as i32) }
                .map_err(|e| ("cuFuncSetAttribute", e))?;
        }
        let (grid, block) = ((grid[0], grid[1], grid[2]), (kernel.block, 1, 1));
        let stream = self.memory.stream.cu_stream();
        // SAFETY: the one parameter is a struct of the kernel's, which the driver copies before it returns.
        unsafe { result::launch_kernel(function, grid, block, dynamic, stream, &mut [args]) }
            .map_err(|e| ("cuLaunchKernel", e))
    }
}
