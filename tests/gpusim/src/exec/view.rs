//! Global memory as a worker sees it during a launch: addresses to pointers, checked.

use std::sync::Arc;

use super::env::lanes;
use super::heap::{Allocation, BadAddress, BlockTag, Snapshot};
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
    /// Lanes at bytes that another block wrote in this launch, and that block.
    pub raced: Mask,
    pub other_block: u32,
}

pub struct GlobalView {
    snapshot: Arc<Snapshot>,
    /// Index of the allocation found last: the next access is likely there too.
    last: usize,
    /// The block being run.
    tag: Option<BlockTag>,
    /// Whether the block has used atomic or volatile accesses: it may know of others' writes.
    has_met: bool,
}

impl GlobalView {
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        GlobalView { snapshot, last: usize::MAX, tag: None, has_met: false }
    }

    pub fn start_block(&mut self, tag: Option<BlockTag>) {
        (self.tag, self.has_met) = (tag, false);
    }

    /// Pointers for `bytes` (a power of two up to 16, addresses aligned to it) at each lane's address.
    ///
    /// `strong` accesses, and atomics, are meant to meet other blocks'.
    ///
    /// # Errors
    /// The first lane whose bytes are not all in one allocation, and what is there.
    pub fn resolve(
        &mut self,
        addresses: &[u64; LANES],
        mask: Mask,
        bytes: usize,
        intent: Intent,
        strong: bool,
    ) -> Result<Pointers, (usize, BadAddress)> {
        self.has_met |= strong;
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
            return self.resolve_each(addresses, mask, bytes, intent, strong);
        }
        let pointers = offsets.map(|offset| allocation.pointer(offset as usize));
        let mut result = Pointers { pointers, unwritten: 0, raced: 0, other_block: 0 };
        if !allocation.is_written() {
            for lane in lanes(mask) {
                result.unwritten |= (track(allocation, offsets[lane] as usize, bytes, intent) as Mask) << lane;
            }
        }
        if self.tag.is_some() && bytes > 1 {
            for lane in lanes(mask) {
                self.track_block(allocation, offsets[lane] as usize, bytes, intent, strong, lane, &mut result);
            }
        }
        Ok(result)
    }

    /// Looks for another block's write, and notes this one's.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // one call in each of two loops
    fn track_block(
        &self,
        allocation: &Allocation,
        offset: usize,
        bytes: usize,
        intent: Intent,
        strong: bool,
        lane: usize,
        result: &mut Pointers,
    ) {
        let Some(tag) = self.tag else { return };
        if !self.has_met
            && let Some(other) = allocation.other_writer(offset, bytes, tag)
        {
            result.other_block = if result.raced == 0 { other } else { result.other_block };
            result.raced |= 1 << lane;
        }
        if intent != Intent::Read {
            allocation.note_writer(offset, bytes, (!strong).then_some(tag));
        }
    }

    /// The same where lanes reach into different allocations.
    fn resolve_each(
        &mut self,
        addresses: &[u64; LANES],
        mask: Mask,
        bytes: usize,
        intent: Intent,
        strong: bool,
    ) -> Result<Pointers, (usize, BadAddress)> {
        let mut result = Pointers { pointers: [std::ptr::null_mut(); LANES], unwritten: 0, raced: 0, other_block: 0 };
        let snapshot = self.snapshot.clone();
        for lane in lanes(mask) {
            let offset = self.locate(addresses[lane], bytes).map_err(|bad| (lane, bad))?;
            let Some(allocation) = snapshot.get(self.last) else { continue };
            result.pointers[lane] = allocation.pointer(offset);
            result.unwritten |=
                (!allocation.is_written() && track(allocation, offset, bytes, intent)) as Mask * (1 << lane);
            if bytes > 1 {
                self.track_block(allocation, offset, bytes, intent, strong, lane, &mut result);
            }
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
fn track(allocation: &Allocation, offset: usize, bytes: usize, intent: Intent) -> bool {
    let is_unwritten = intent != Intent::Write && !allocation.has(offset, bytes);
    if intent != Intent::Read {
        allocation.note(offset, bytes);
    }
    is_unwritten
}
