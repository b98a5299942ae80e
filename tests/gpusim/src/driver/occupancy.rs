//! Occupancy: by threads and shared memory; registers are not known here.

use std::ffi::{c_int, c_void};

use super::error;
use super::state::{Api, CuResult, Driver, Handle, checked, give};
use crate::exec::env::MULTIPROCESSORS;

const MAX_BLOCKS: usize = 32;
const MAX_THREADS: usize = 2048;
/// Shared memory the system takes from each block.
const RESERVED: usize = 1024;

/// A callback that gives a block size's dynamic shared memory.
type BlockToShared = Option<unsafe extern "C" fn(c_int) -> usize>;

/// Blocks of `threads` threads that a multiprocessor holds at once.
fn active_blocks(driver: &Driver, function: Handle, threads: usize, dynamic: usize) -> Api<usize> {
    let objects = driver.objects();
    let kernel = &objects.functions.get(&function).ok_or(error::INVALID_HANDLE)?.kernel;
    if threads == 0 {
        return Err(error::INVALID_VALUE);
    }
    let room = driver.device.max_shared() + RESERVED;
    let by_shared = room / (kernel.static_shared + dynamic + RESERVED);
    let limit = kernel.max_threads.unwrap_or(1024) as usize;
    let by_threads = if threads > limit { 0 } else { MAX_THREADS / threads.next_multiple_of(32) };
    Ok(by_threads.min(by_shared).min(MAX_BLOCKS))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: Handle,
    threads: c_int,
    dynamic: usize,
) -> CuResult {
    checked("cuOccupancyMaxActiveBlocksPerMultiprocessor", |driver| {
        let count = active_blocks(driver, function, threads.max(0) as usize, dynamic)?;
        // SAFETY: the caller gives a place.
        unsafe { give(blocks, count as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: Handle,
    threads: c_int,
    dynamic: usize,
    _flags: u32,
) -> CuResult {
    // SAFETY: the same contract.
    unsafe { cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    function: Handle,
    blocks: c_int,
    _threads: c_int,
) -> CuResult {
    checked("cuOccupancyAvailableDynamicSMemPerBlock", |driver| {
        let objects = driver.objects();
        let kernel = &objects.functions.get(&function).ok_or(error::INVALID_HANDLE)?.kernel;
        let share = (driver.device.max_shared() + RESERVED) / usize::try_from(blocks).unwrap_or(1).max(1);
        // SAFETY: the caller gives a place.
        unsafe { give(bytes, share.saturating_sub(RESERVED + kernel.static_shared)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut c_int,
    block: *mut c_int,
    function: Handle,
    block_to_shared: BlockToShared,
    dynamic: usize,
    limit: c_int,
) -> CuResult {
    checked("cuOccupancyMaxPotentialBlockSize", |driver| {
        let largest = driver.objects().functions.get(&function).ok_or(error::INVALID_HANDLE)?.kernel.max_threads;
        let largest = largest.unwrap_or(1024).min(if limit > 0 { limit as u32 } else { 1024 });
        let mut best = (0, 0, 0); // threads in flight, block size, blocks
        for threads in (1..=largest / 32).map(|warps| warps as usize * 32) {
            // SAFETY: the caller's function takes a block size.
            let dynamic = block_to_shared.map_or(dynamic, |shared| unsafe { shared(threads as c_int) });
            let blocks = active_blocks(driver, function, threads, dynamic)?;
            best = best.max((threads * blocks, threads, blocks));
        }
        // SAFETY: the caller gives places.
        unsafe {
            give(grid, (best.2 * MULTIPROCESSORS as usize) as c_int)?;
            give(block, best.1 as c_int)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: *mut c_int,
    block: *mut c_int,
    function: Handle,
    block_to_shared: BlockToShared,
    dynamic: usize,
    limit: c_int,
    _flags: u32,
) -> CuResult {
    // SAFETY: the same contract.
    unsafe { cuOccupancyMaxPotentialBlockSize(grid, block, function, block_to_shared, dynamic, limit) }
}

/// There are no thread-block clusters here.
#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveClusters(
    _clusters: *mut c_int,
    _function: Handle,
    _config: *const c_void,
) -> CuResult {
    checked("cuOccupancyMaxActiveClusters", |_| Err(error::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialClusterSize(
    _size: *mut c_int,
    _function: Handle,
    _config: *const c_void,
) -> CuResult {
    checked("cuOccupancyMaxPotentialClusterSize", |_| Err(error::NOT_SUPPORTED))
}
