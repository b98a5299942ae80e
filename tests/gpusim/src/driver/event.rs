//! Events: moments of the host's clock.

use std::time::Instant;

use super::error;
use super::state::{Api, CuResult, Driver, Handle, call, checked, give};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut Handle, _flags: u32) -> CuResult {
    checked("cuEventCreate", |driver| {
        let mut objects = driver.objects();
        let handle = objects.new_handle();
        objects.events.insert(handle, None);
        // SAFETY: the caller gives a place.
        unsafe { give(event, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> CuResult {
    checked("cuEventRecord", |driver| {
        driver.check_stream(stream)?;
        *driver.objects().events.get_mut(&event).ok_or(error::INVALID_HANDLE)? = Some(Instant::now());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) -> CuResult {
    cuEventRecord(event, stream)
}

/// When the event was recorded; None if it never was.
fn recorded(driver: &Driver, event: Handle) -> Api<Option<Instant>> {
    driver.objects().events.get(&event).copied().ok_or(error::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> CuResult {
    checked("cuEventSynchronize", |driver| recorded(driver, event).map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> CuResult {
    cuEventSynchronize(event)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) -> CuResult {
    checked("cuEventElapsedTime", |driver| {
        let (Some(start), Some(end)) = (recorded(driver, start)?, recorded(driver, end)?) else {
            return Err(error::INVALID_HANDLE);
        };
        let elapsed = if end >= start { (end - start).as_secs_f32() } else { -(start - end).as_secs_f32() };
        // SAFETY: the caller gives a place.
        unsafe { give(milliseconds, elapsed * 1000.0) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: Handle, end: Handle) -> CuResult {
    // SAFETY: the same contract.
    unsafe { cuEventElapsedTime(milliseconds, start, end) }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> CuResult {
    call("cuEventDestroy_v2", |driver| driver.objects().events.remove(&event).map(|_| ()).ok_or(error::INVALID_HANDLE))
}
