//! Global memory as a worker sees it during a launch: addresses to pointers, checked.

use std::sync::Arc;

use super::env::lanes;
use super::heap::{BadAddress, Snapshot};
use super::registers::{LANES, Mask};

/// What an access does to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Read,
    Write,
    /// Atomics.
    Update,
}

/// Host pointers of a warp's access; lanes outside the mask have those of a lane inside.
pub struct Pointers {
    pub pointers: [*mut u8; LANES],
    /// Lanes that read bytes nobody wrote.
    pub unwritten: Mask,
}

pub struct GlobalView {
    snapshot: Arc<Snapshot>,
    /// Index of the allocation found last: the next access is likely there too.
    last: usize,
}

impl GlobalView {
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        GlobalView { snapshot, last: usize::MAX }
    }

    /// Pointers for `bytes` (a power of two up to 16, addresses aligned to it) at each lane's address.
    ///
    /// # Errors
    /// The first lane whose bytes are not all in one allocation, and what is there.
    pub fn resolve(
        &mut self,
        addresses: &[u64; LANES],
        mask: Mask,
        bytes: usize,
        intent: Intent,
    ) -> Result<Pointers, (usize, BadAddress)> {
        let first = mask.trailing_zeros() as usize;
        self.locate(addresses[first], bytes).map_err(|bad| (first, bad))?;
        let snapshot = self.snapshot.clone();
        let Some(allocation) = snapshot.get(self.last) else {
            return Err((first, snapshot.explain(addresses[first], bytes)));
        };
        let (base, room) = (allocation.base, (allocation.len - bytes) as u64);
        let mut offsets = [0u64; LANES];
        let mut outside = false;
        for lane in 0..LANES {
            let address = if mask >> lane & 1 != 0 { addresses[lane] } else { addresses[first] };
            offsets[lane] = address.wrapping_sub(base);
            outside |= offsets[lane] > room;
        }
        if outside {
            return self.resolve_each(addresses, mask, bytes, intent);
        }
        let pointers = offsets.map(|offset| allocation.pointer(offset as usize));
        let mut unwritten = 0;
        if !allocation.is_written() {
            for lane in lanes(mask) {
                unwritten |= (track(allocation, offsets[lane] as usize, bytes, intent) as Mask) << lane;
            }
        }
        Ok(Pointers { pointers, unwritten })
    }

    /// The same where lanes reach into different allocations.
    fn resolve_each(
        &mut self,
        addresses: &[u64; LANES],
        mask: Mask,
        bytes: usize,
        intent: Intent,
    ) -> Result<Pointers, (usize, BadAddress)> {
        let mut result = Pointers { pointers: [std::ptr::null_mut(); LANES], unwritten: 0 };
        for lane in lanes(mask) {
            let offset = self.locate(addresses[lane], bytes).map_err(|bad| (lane, bad))?;
            let Some(allocation) = self.snapshot.get(self.last) else { continue };
            result.pointers[lane] = allocation.pointer(offset);
            result.unwritten |=
                (!allocation.is_written() && track(allocation, offset, bytes, intent)) as Mask * (1 << lane);
        }
        let any = result.pointers[mask.trailing_zeros() as usize];
        for lane in lanes(!mask) {
            result.pointers[lane] = any;
        }
        Ok(result)
    }

    /// Finds the allocation that holds the bytes (then at `last`); gives the offset in it.
    fn locate(&mut self, address: u64, bytes: usize) -> Result<usize, BadAddress> {
        let inside = |index: usize| {
            let allocation = self.snapshot.get(index)?;
            let offset = address.checked_sub(allocation.base)? as usize;
            (offset < allocation.len && bytes <= allocation.len - offset).then_some(offset)
        };
        if let Some(offset) = inside(self.last) {
            return Ok(offset);
        }
        match self.snapshot.index(address).and_then(|index| Some((index, inside(index)?))) {
            Some((index, offset)) => {
                self.last = index;
                Ok(offset)
            }
            None => Err(self.snapshot.explain(address, bytes)),
        }
    }
}

/// Notes a write; whether a read finds bytes nobody wrote.
#[inline(always)]
fn track(allocation: &super::heap::Allocation, offset: usize, bytes: usize, intent: Intent) -> bool {
    let is_unwritten = intent != Intent::Write && !allocation.has(offset, bytes);
    if intent != Intent::Read {
        allocation.note(offset, bytes);
    }
    is_unwritten
}
