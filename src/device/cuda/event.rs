use std::borrow::Borrow;

use cudarc::driver::{result, sys};

use super::{Cuda, CudaError};

/// A point in the device's stream of work: the time between two of them is the device's own.
///
/// `C` is how it holds the device, `&Cuda` or `Arc<Cuda>`.
pub struct Event<C: Borrow<Cuda>> {
    cuda: C,
    event: sys::CUevent,
}

impl<C: Borrow<Cuda>> Event<C> {
    /// An event that is not recorded yet.
    ///
    /// # Errors
    /// [`CudaError::Driver`], as everything here.
    pub fn new(cuda: C) -> Result<Event<C>, CudaError> {
        let memory = &cuda.borrow().memory;
        memory.context.bind_to_thread().map_err(|e| memory.failure("cuCtxSetCurrent", e))?;
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let event = event.map_err(|e| memory.failure("cuEventCreate", e))?;
        Ok(Event { cuda, event })
    }

    /// Puts it behind everything launched so far.
    pub fn record(&self) -> Result<(), CudaError> {
        let memory = &self.cuda.borrow().memory;
        // SAFETY: the event is there until `self` goes.
        unsafe { result::event::record(self.event, memory.stream.cu_stream()) }
            .map_err(|e| memory.failure("cuEventRecord", e))
    }

    /// Seconds to a later one, after both were recorded and waited for.
    pub fn seconds_to(&self, end: &Event<C>) -> Result<f64, CudaError> {
        // SAFETY: as above; the driver refuses events that it has not come to.
        let milliseconds = unsafe { result::event::elapsed(self.event, end.event) };
        let failure = |e| self.cuda.borrow().memory.failure("cuEventElapsedTime", e);
        Ok(f64::from(milliseconds.map_err(failure)?) / 1e3)
    }
}

impl<C: Borrow<Cuda>> Drop for Event<C> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        let _ = unsafe { result::event::destroy(self.event) };
    }
}
