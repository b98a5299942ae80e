//! Graphs: recorded work, done again at every launch.

use super::error;
use super::state::{CuResult, Driver, Handle, call, checked, give};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64) -> CuResult {
    checked("cuGraphInstantiateWithFlags", |driver| {
        // Launch from the device (4) excludes freeing on launch (1).
        if flags & 5 == 5 {
            return Err(error::INVALID_VALUE);
        }
        let mut objects = driver.objects();
        let work = objects.graphs.get(&graph).ok_or(error::INVALID_HANDLE)?.clone();
        let handle = objects.new_handle();
        objects.graphs.insert(handle, work);
        // SAFETY: the caller gives a place.
        unsafe { give(executable, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: Handle, stream: Handle) -> CuResult {
    checked("cuGraphLaunch", |driver| {
        driver.check_stream(stream)?;
        let work = driver.objects().graphs.get(&executable).ok_or(error::INVALID_HANDLE)?.clone();
        work.iter().try_for_each(|work| driver.perform(work))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(executable: Handle, _stream: Handle) -> CuResult {
    checked("cuGraphUpload", |driver| {
        let exists = driver.objects().graphs.contains_key(&executable);
        if exists { Ok(()) } else { Err(error::INVALID_HANDLE) }
    })
}

fn destroy(driver: &Driver, graph: Handle) -> super::state::Api {
    driver.objects().graphs.remove(&graph).map(|_| ()).ok_or(error::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: Handle) -> CuResult {
    call("cuGraphDestroy", |driver| destroy(driver, graph))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: Handle) -> CuResult {
    call("cuGraphExecDestroy", |driver| destroy(driver, executable))
}
