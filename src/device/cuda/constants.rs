//! Small arrays that kernels read, kept on the device by their contents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{CudaError, DeviceBuffer};

/// An array that nobody writes to.
pub(crate) type Constant = Arc<DeviceBuffer<u8>>;

/// Bytes and arrays kept, beyond which all are forgotten: shapes change from job to job, and the few numbers of a step go with
/// it.
const MOST_KEPT: (usize, usize) = (16 << 20, 1 << 12);

#[derive(Default)]
pub(super) struct Constants {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bytes: usize,
    kept: HashMap<Box<[u8]>, Constant>,
}

impl Constants {
    pub fn get(
        &self,
        bytes: &[u8],
        upload: impl FnOnce(&[u8]) -> Result<DeviceBuffer<u8>, CudaError>,
    ) -> Result<Constant, CudaError> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(found) = state.kept.get(bytes) {
            return Ok(found.clone());
        }
        let made = Arc::new(upload(bytes)?);
        if state.bytes + bytes.len() > MOST_KEPT.0 || state.kept.len() >= MOST_KEPT.1 {
            *state = State::default();
        }
        state.bytes += bytes.len();
        state.kept.insert(bytes.into(), made.clone());
        Ok(made)
    }
}
