//! Launches: parameters gathered as the kernel declares them.

use std::ffi::c_void;

use super::error;
use super::state::{Api, CuResult, Driver, Handle, checked};
use super::work::{HostPointer, Work};
use crate::check::finding::{Finding, Kind};
use crate::decode::inst::Kernel;
use crate::device::LaunchConfig;

/// Keys of the `extra` array.
const PARAM_END: usize = 0;
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;

/// `CUlaunchConfig`.
#[repr(C)]
pub struct CuLaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    attributes: *const LaunchAttribute,
    attribute_count: u32,
}

/// `CUlaunchAttribute`: a key and 64 bytes of value.
#[repr(C)]
pub struct LaunchAttribute {
    id: u32,
    padding: [u8; 4],
    value: [u32; 16],
}

/// Attributes that change what a kernel may do: thread-block clusters and cooperative launches.
const CLUSTER_DIMENSION: u32 = 4;
const COOPERATIVE: u32 = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    // SAFETY: the caller gives the kernel's parameters.
    checked("cuLaunchKernel", |driver| unsafe {
        launch(driver, function, grid, block, shared, stream, parameters, extra)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CuLaunchConfig,
    function: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    checked("cuLaunchKernelEx", |driver| {
        if config.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: not null; the caller gives a configuration, its attributes, and the kernel's parameters.
        unsafe {
            let config = &*config;
            for i in 0..config.attribute_count as usize {
                let attribute = &*config.attributes.add(i);
                let is_cluster = attribute.id == CLUSTER_DIMENSION && attribute.value[..3].iter().any(|n| *n > 1);
                let is_cooperative = attribute.id == COOPERATIVE && attribute.value[0] != 0;
                if is_cluster || is_cooperative {
                    return driver.invalid(error::NOT_SUPPORTED, "clusters and cooperative launches are not supported");
                }
            }
            launch(driver, function, config.grid, config.block, config.shared, config.stream, parameters, extra)
        }
    })
}

/// Blocks are run one after the other on each worker: a grid-wide barrier works only if all of them run at once.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchCooperativeKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
) -> CuResult {
    checked("cuLaunchCooperativeKernel", |driver| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        if grid != [1, 1, 1] {
            return driver.invalid(error::COOPERATIVE_LAUNCH_TOO_LARGE, "cooperative launches have one block at most");
        }
        // SAFETY: the caller gives the kernel's parameters.
        unsafe { launch(driver, function, grid, block, shared, stream, parameters, std::ptr::null_mut()) }
    })
}

/// # Safety
/// `parameters` or `extra` hold the kernel's parameters as `cuLaunchKernel` wants them.
#[allow(clippy::too_many_arguments)] // the driver's own list
unsafe fn launch(
    driver: &Driver,
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Api {
    let (kernel, max_dynamic_shared) = {
        let objects = driver.objects();
        let function = objects.functions.get(&function).ok_or(error::INVALID_HANDLE)?;
        (function.kernel.clone(), function.max_dynamic_shared)
    };
    // SAFETY: the caller's promise.
    let gathered = unsafe { if extra.is_null() { gather(&kernel, parameters) } else { unpack(extra) } };
    let Some(parameters) = gathered else {
        let message =
            format!("launch of `{}`: it takes {} parameters, none are given", kernel.name, kernel.parameters.len());
        driver.device.find(Finding::of_call(Kind::BadLaunch, message));
        return Err(error::INVALID_VALUE);
    };
    let config = LaunchConfig { grid, block, dynamic_shared: shared as usize, max_dynamic_shared };
    driver.submit(stream, Work::Launch { kernel, config, parameters })
}

/// Copies each parameter to its place.
///
/// # Safety
/// `parameters` is null or holds a pointer per parameter, to that many bytes.
unsafe fn gather(kernel: &Kernel, parameters: *mut *mut c_void) -> Option<Vec<u8>> {
    let mut bytes = vec![0; kernel.parameter_size];
    if parameters.is_null() && !kernel.parameters.is_empty() {
        return None;
    }
    for (i, (offset, size)) in kernel.parameters.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let source = (*parameters.add(i)).cast::<u8>();
            if source.is_null() {
                return None;
            }
            source.copy_to_nonoverlapping(bytes[*offset..*offset + *size].as_mut_ptr(), *size);
        }
    }
    Some(bytes)
}

/// The parameter buffer of an `extra` array.
///
/// # Safety
/// `extra` is a list of keys and values that ends with `CU_LAUNCH_PARAM_END`.
unsafe fn unpack(extra: *mut *mut c_void) -> Option<Vec<u8>> {
    let (mut buffer, mut size) = (HostPointer(std::ptr::null_mut()), 0usize);
    for i in (0..).step_by(2) {
        // SAFETY: the caller's promise: the end comes before the end of the array.
        unsafe {
            match *extra.add(i) as usize {
                PARAM_END => break,
                PARAM_BUFFER_POINTER => buffer = HostPointer(*extra.add(i + 1)),
                PARAM_BUFFER_SIZE => size = *(*extra.add(i + 1)).cast::<usize>(),
                _ => return None,
            }
        }
    }
    if buffer.0.is_null() {
        return None;
    }
    // SAFETY: the caller's promise: the buffer has that size.
    Some(unsafe { std::slice::from_raw_parts(buffer.0.cast::<u8>(), size) }.to_vec())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(
    stream: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> CuResult {
    checked("cuLaunchHostFunc", |driver| {
        let function = function.ok_or(error::INVALID_VALUE)?;
        driver.submit(stream, Work::Host { function, data: HostPointer(data) })
    })
}
