//! Buffers that start off 16 bytes, one at a time: of a kernel's pointers each decides alone whether 16 bytes can pass at once.

use std::cell::Cell;

use bytemuck::Pod;

use super::super::{Cuda, CudaError, DeviceBuffer};

/// A buffer whose elements start some way behind the start of an allocation.
pub struct Placed<T: Pod> {
    buffer: DeviceBuffer<T>,
    before: usize,
}

impl<T: Pod> Placed<T> {
    pub fn new(buffer: DeviceBuffer<T>, before: usize) -> Placed<T> {
        Placed { buffer, before }
    }

    pub fn ptr<P>(&self) -> *mut P {
        self.buffer.ptr::<T>().wrapping_add(self.before).cast()
    }

    /// The elements.
    ///
    /// # Errors
    /// [`CudaError::Wrong`] where something was written in front of them.
    pub fn read(&self) -> Result<Vec<T>, CudaError> {
        let mut values = self.buffer.read()?;
        let elements = values.split_off(self.before);
        let untouched = |value: &T| bytemuck::bytes_of(value).iter().all(|byte| *byte == FILLER);
        match values.iter().position(|value| !untouched(value)) {
            Some(at) => Err(CudaError::Wrong(format!("a tensor's front was written at {at} of {}", self.before))),
            None => Ok(elements),
        }
    }
}

const FILLER: u8 = 0xFF;

/// What is in front of elements: a NaN in every float format.
pub fn filler<T: Pod>() -> T {
    bytemuck::pod_read_unaligned(&vec![FILLER; size_of::<T>()])
}

/// Which of a case's buffers starts off 16 bytes; none by default.
#[derive(Default)]
pub struct Places {
    off: Option<Off>,
    made: Cell<usize>,
}

struct Off {
    buffer: usize,
    /// By one element, else by 8 bytes.
    by_one: bool,
}

impl Places {
    pub fn new(buffer: usize, by_one: bool) -> Places {
        Places { off: Some(Off { buffer, by_one }), made: Cell::new(0) }
    }

    /// Whether as many buffers were made that the one which is off is among them.
    pub fn is_met(&self) -> bool {
        self.off.as_ref().is_some_and(|off| off.buffer < self.made.get())
    }

    /// For the name of a case.
    pub fn text(&self) -> String {
        match &self.off {
            Some(off) if off.by_one => format!(", buffer {} off by an element", off.buffer),
            Some(off) => format!(", buffer {} off by 8 bytes", off.buffer),
            None => String::new(),
        }
    }

    /// Elements in front of those of the next buffer.
    pub fn next<T>(&self) -> usize {
        let made = self.made.replace(self.made.get() + 1);
        match &self.off {
            Some(off) if off.buffer == made => {
                if off.by_one {
                    1
                } else {
                    8 / size_of::<T>()
                }
            }
            _ => 0,
        }
    }

    /// `values` on the device.
    pub fn put<T: Pod>(&self, cuda: &Cuda, values: &[T]) -> Result<Placed<T>, CudaError> {
        let before = self.next::<T>();
        let values =
            if before == 0 { cuda.upload(values)? } else { cuda.upload(&[&vec![filler(); before], values].concat())? };
        Ok(Placed::new(values, before))
    }
}
