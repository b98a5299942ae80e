//! What streams carry: done at once, or recorded while the stream is captured into a graph.

use std::ffi::c_void;
use std::sync::Arc;

use super::error;
use super::state::{Api, Driver, Handle};
use crate::check::finding::{Finding, Kind};
use crate::decode::inst::Kernel;
use crate::device::{LaunchConfig, LaunchError};
use crate::exec::heap::BadAddress;

/// A pointer into the host's memory, kept until the work is done.
#[derive(Clone, Copy)]
pub struct HostPointer(pub *mut c_void);

// SAFETY: only a number here; whoever dereferences it relies on the promise of the call that gave it.
unsafe impl Send for HostPointer {}
unsafe impl Sync for HostPointer {}

#[derive(Clone)]
pub enum Work {
    Launch { kernel: Arc<Kernel>, config: LaunchConfig, parameters: Vec<u8> },
    CopyIn { to: u64, from: HostPointer, len: usize },
    CopyOut { to: HostPointer, from: u64, len: usize },
    Copy { to: u64, from: u64, len: usize },
    Fill { to: u64, pattern: Vec<u8>, count: usize },
    Host { function: unsafe extern "C" fn(*mut c_void), data: HostPointer },
}

impl Driver {
    /// Does the work, or records it if the stream is being captured.
    pub fn submit(&self, stream: Handle, work: Work) -> Api {
        if stream > 2 {
            let mut objects = self.objects();
            let Some(stream) = objects.streams.get_mut(&stream) else {
                drop(objects);
                return self.invalid(error::INVALID_HANDLE, "a stream that does not exist");
            };
            if let Some(capture) = &mut stream.capture {
                capture.push(work);
                return Ok(());
            }
        }
        self.perform(&work)
    }

    /// Notes a call with bad arguments, and gives its error.
    pub fn invalid<T>(&self, error: super::state::CuError, message: &str) -> Api<T> {
        self.device.find(Finding::of_call(Kind::InvalidCall, message));
        Err(error)
    }

    pub fn perform(&self, work: &Work) -> Api {
        let bad = |_: BadAddress| error::INVALID_VALUE;
        match work {
            Work::Launch { kernel, config, parameters } => match self.device.launch(kernel, config, parameters) {
                Ok(()) => Ok(()),
                Err(LaunchError::Refused(_)) => Err(error::INVALID_VALUE),
                Err(LaunchError::Fault(fault)) => {
                    let error = error::of_fault(fault);
                    self.set_fault(error);
                    Err(error)
                }
            },
            Work::CopyIn { to, from, len } => {
                // SAFETY: the caller of the copy promised `len` readable bytes.
                let bytes = unsafe { slice(from.0, *len) };
                self.device.write(*to, bytes).map_err(bad)
            }
            Work::CopyOut { to, from, len } => {
                if *len == 0 {
                    return Ok(());
                }
                // SAFETY: the caller of the copy promised `len` writable bytes.
                let bytes = unsafe { std::slice::from_raw_parts_mut(to.0.cast::<u8>(), *len) };
                self.device.read(*from, bytes).map_err(bad)
            }
            Work::Copy { to, from, len } => self.device.copy(*to, *from, *len).map_err(bad),
            Work::Fill { to, pattern, count } => self.device.fill(*to, pattern, *count).map_err(bad),
            Work::Host { function, data } => {
                // SAFETY: the caller of cuLaunchHostFunc promised that the function takes this pointer.
                unsafe { function(data.0) };
                Ok(())
            }
        }
    }
}

/// # Safety
/// `pointer` is valid for reading `len` bytes, or `len` is 0.
unsafe fn slice<'a>(pointer: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer.cast(), len) }
}
