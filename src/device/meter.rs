//! The clock and the memory counters of a place to compute.

use std::sync::Arc;
use std::time::Instant;

use super::cuda::{Cuda, Event};
use super::pool::{self, MemoryStats};
use crate::Result;

/// Measures what is computed at one place: time from point to point, bytes in use and at the peak.
///
/// A GPU works behind the host: its points are events in its stream, and the time between two of them is the device's own,
/// so that nothing has to be waited for in between.
#[derive(Clone)]
pub enum Meter {
    Host,
    Gpu(Arc<Cuda>),
}

/// A point in time, made by [`Meter::now`].
pub enum Moment {
    Host(Instant),
    Gpu(Event<Arc<Cuda>>),
}

impl Meter {
    /// Of a GPU, or of this machine's processor and memory.
    pub fn of(gpu: Option<&Arc<Cuda>>) -> Meter {
        gpu.map_or(Meter::Host, |gpu| Meter::Gpu(gpu.clone()))
    }

    /// # Errors
    /// Where the driver fails.
    pub fn now(&self) -> Result<Moment> {
        match self {
            Meter::Host => Ok(Moment::Host(Instant::now())),
            Meter::Gpu(gpu) => {
                let event = Event::new(gpu.clone())?;
                event.record()?;
                Ok(Moment::Gpu(event))
            }
        }
    }

    /// Waits for all that was asked of the place.
    ///
    /// # Errors
    /// Where the driver fails, also for the fault of an earlier kernel.
    pub fn wait(&self) -> Result<()> {
        match self {
            Meter::Host => Ok(()),
            Meter::Gpu(gpu) => Ok(gpu.synchronize()?),
        }
    }

    /// Of the whole process.
    pub fn memory(&self) -> MemoryStats {
        match self {
            Meter::Host => pool::stats(),
            Meter::Gpu(gpu) => gpu.memory(),
        }
    }

    /// Forgets the peak: from here on it is the peak of what follows.
    pub fn reset_peak(&self) {
        match self {
            Meter::Host => pool::reset_peak(),
            Meter::Gpu(gpu) => gpu.reset_peak(),
        }
    }
}

impl Moment {
    /// Seconds to a later one of the same meter, which was waited for.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn seconds_to(&self, later: &Moment) -> Result<f64> {
        match (self, later) {
            (Moment::Host(from), Moment::Host(to)) => Ok(to.duration_since(*from).as_secs_f64()),
            (Moment::Gpu(from), Moment::Gpu(to)) => Ok(from.seconds_to(to)?),
            _ => unreachable!("moments of two meters"),
        }
    }
}
