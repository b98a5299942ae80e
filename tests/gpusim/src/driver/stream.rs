//! Streams. All are in order and synchronous, so waiting for one is checking that it exists.

use std::ffi::c_int;
use std::sync::Arc;

use super::error;
use super::state::{Api, CURRENT, CuResult, Driver, Handle, Stream, call, checked, give};

/// Handles up to this are the legacy and the per-thread default stream.
const LAST_DEFAULT: Handle = 2;

impl Driver {
    pub fn check_stream(&self, stream: Handle) -> Api {
        if stream <= LAST_DEFAULT || self.objects().streams.contains_key(&stream) {
            Ok(())
        } else {
            self.invalid(error::INVALID_HANDLE, "a stream that does not exist")
        }
    }

    /// For what cannot be captured.
    pub fn check_not_capturing(&self, stream: Handle) -> Api {
        let is_capturing = self.objects().streams.get(&stream).is_some_and(|s| s.capture.is_some());
        if is_capturing { Err(error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _flags: u32) -> CuResult {
    checked("cuStreamCreate", |driver| {
        let mut objects = driver.objects();
        let handle = objects.new_handle();
        objects.streams.insert(handle, Stream::default());
        // SAFETY: the caller gives a place.
        unsafe { give(stream, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut Handle, flags: u32, _priority: c_int) -> CuResult {
    // SAFETY: the same contract.
    unsafe { cuStreamCreate(stream, flags) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> CuResult {
    call("cuStreamDestroy_v2", |driver| match driver.objects().streams.remove(&stream) {
        Some(_) => Ok(()),
        None => Err(error::INVALID_HANDLE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> CuResult {
    checked("cuStreamSynchronize", |driver| {
        driver.check_stream(stream)?;
        driver.check_not_capturing(stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> CuResult {
    cuStreamSynchronize(stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) -> CuResult {
    checked("cuStreamWaitEvent", |driver| {
        driver.check_stream(stream)?;
        let exists = driver.objects().events.contains_key(&event);
        if exists { Ok(()) } else { Err(error::INVALID_HANDLE) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCtx(stream: Handle, context: *mut Handle) -> CuResult {
    checked("cuStreamGetCtx", |driver| {
        driver.check_stream(stream)?;
        // SAFETY: the caller gives a place.
        unsafe { give(context, CURRENT.get()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetPriority(stream: Handle, priority: *mut c_int) -> CuResult {
    checked("cuStreamGetPriority", |driver| {
        driver.check_stream(stream)?;
        // SAFETY: the caller gives a place.
        unsafe { give(priority, 0) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetFlags(stream: Handle, flags: *mut u32) -> CuResult {
    checked("cuStreamGetFlags", |driver| {
        driver.check_stream(stream)?;
        // SAFETY: the caller gives a place.
        unsafe { give(flags, 0) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: Handle, _mode: u32) -> CuResult {
    checked("cuStreamBeginCapture_v2", |driver| {
        let mut objects = driver.objects();
        match objects.streams.get_mut(&stream) {
            None => Err(error::STREAM_CAPTURE_UNSUPPORTED), // the default stream cannot be captured
            Some(stream) if stream.capture.is_some() => Err(error::ILLEGAL_STATE),
            Some(stream) => {
                stream.capture = Some(Vec::new());
                Ok(())
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> CuResult {
    checked("cuStreamEndCapture", |driver| {
        let mut objects = driver.objects();
        let captured = objects.streams.get_mut(&stream).and_then(|stream| stream.capture.take());
        let work = captured.ok_or(error::STREAM_CAPTURE_UNMATCHED)?;
        let handle = objects.new_handle();
        objects.graphs.insert(handle, Arc::new(work));
        // SAFETY: the caller gives a place.
        unsafe { give(graph, handle) }
    })
}

/// 0: not captured, 1: being captured.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: Handle, status: *mut u32) -> CuResult {
    checked("cuStreamIsCapturing", |driver| {
        driver.check_stream(stream)?;
        let is_capturing = driver.check_not_capturing(stream).is_err();
        // SAFETY: the caller gives a place.
        unsafe { give(status, is_capturing as u32) }
    })
}
