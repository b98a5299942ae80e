//! Device memory: allocations, their bytes, and which bytes were ever written.
//!
//! Kernels of many CTAs touch an allocation from several threads at once, as on a GPU. All such access goes through relaxed
//! atomics on raw pointers (see `exec::access`), never through references to the bytes, so that a kernel that races gives some
//! value and not undefined behaviour. Accesses of different sizes may overlap; every supported processor executes aligned
//! accesses of up to 8 bytes singly, which is what the GPU promises too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::zeroed::{SPARSE, Zeroed};

/// First address given to an allocation: high above the windows of other spaces, and no address of this process.
const FIRST_ADDRESS: u64 = 0x0a00_0000_0000;
/// Alignment of allocations, and least distance between two: what lies between belongs to nobody.
const ALIGNMENT: u64 = 512;
/// What fresh memory holds, unless there is so much that it is only there once it is touched: a NaN in every float format, -1 as
/// an integer.
const POISON: u8 = 0xff;

pub struct Allocation {
    pub base: u64,
    pub len: usize,
    /// Number of the allocation in its process, from 1.
    pub serial: u64,
    data: Zeroed<AtomicU8>,
    /// Bit per byte.
    written: Zeroed<AtomicU64>,
    unwritten: AtomicUsize,
    /// Per two bytes, the launch and block that wrote them last; made at a kernel's first write.
    writers: OnceLock<Zeroed<AtomicU32>>,
}

/// A launch and one of its blocks, as the shadow of global memory remembers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTag(u32);

impl BlockTag {
    const BLOCK_BITS: u32 = 20;
    /// Launches told apart; then the shadows must be cleared.
    pub const LAUNCHES: u32 = (1 << (32 - Self::BLOCK_BITS)) - 1;

    /// The tag of a block; None if the launch has one block, or more than can be told apart.
    pub fn new(launch: u32, block: u64, blocks: u64) -> Option<Self> {
        let is_useful = (2..=1 << Self::BLOCK_BITS).contains(&blocks);
        is_useful.then_some(BlockTag((launch % Self::LAUNCHES + 1) << Self::BLOCK_BITS | block as u32))
    }

    /// The block of the same launch that a cell names, if it is another.
    #[inline(always)]
    fn other(self, cell: u32) -> Option<u32> {
        let is_other = cell != self.0 && cell >> Self::BLOCK_BITS == self.0 >> Self::BLOCK_BITS;
        is_other.then_some(cell & ((1 << Self::BLOCK_BITS) - 1))
    }
}

impl Allocation {
    /// `base` None: the address is that of the bytes themselves, which the host may use too (pinned and managed memory).
    fn new(base: Option<u64>, len: usize, serial: u64) -> Option<Self> {
        // Slack, so that a lane that is masked off may be given any pointer into the last 16 bytes.
        let data: Zeroed<AtomicU8> = Zeroed::new(len.checked_add(16)?)?;
        if data.len() < SPARSE {
            // SAFETY: so many bytes are there, and nobody else knows of them yet.
            unsafe { data.as_ptr().write_bytes(POISON, data.len()) };
        }
        let is_shared_with_host = base.is_none();
        let words = if is_shared_with_host { 0 } else { len.div_ceil(64) };
        Some(Allocation {
            base: base.unwrap_or(data.as_ptr() as u64),
            len,
            serial,
            data,
            written: Zeroed::new(words)?,
            // What the host writes directly is not seen.
            unwritten: AtomicUsize::new(if is_shared_with_host { 0 } else { len }),
            writers: OnceLock::new(),
        })
    }

    /// The host address of a byte. The offset is within the allocation.
    #[inline(always)]
    pub fn pointer(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len);
        self.data.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    /// Whether every byte was written.
    #[inline(always)]
    pub fn is_written(&self) -> bool {
        self.unwritten.load(Relaxed) == 0
    }

    /// The bits of `bytes` ≤ 16 bytes at an offset that is a multiple of `bytes`: word and mask.
    #[inline(always)]
    fn bits(offset: usize, bytes: usize) -> (usize, u64) {
        (offset / 64, ((1 << bytes) - 1) << (offset % 64))
    }

    /// Whether `bytes` ≤ 16 aligned bytes were all written.
    #[inline(always)]
    pub fn has(&self, offset: usize, bytes: usize) -> bool {
        let (word, mask) = Self::bits(offset, bytes);
        self.written[word].load(Relaxed) & mask == mask
    }

    /// Notes `bytes` ≤ 16 aligned bytes as written.
    #[inline(always)]
    pub fn note(&self, offset: usize, bytes: usize) {
        let (word, mask) = Self::bits(offset, bytes);
        self.note_bits(word, mask);
    }

    #[inline(always)]
    fn note_bits(&self, word: usize, mask: u64) {
        if self.written[word].load(Relaxed) & mask != mask {
            let before = self.written[word].fetch_or(mask, Relaxed);
            self.unwritten.fetch_sub((mask & !before).count_ones() as usize, Relaxed);
        }
    }

    /// The other block of this launch that wrote any of `bytes` at an offset, both multiples of 2.
    #[inline(always)]
    pub fn other_writer(&self, offset: usize, bytes: usize, tag: BlockTag) -> Option<u32> {
        let cells = &self.writers.get()?[offset / 2..(offset + bytes) / 2];
        cells.iter().find_map(|cell| tag.other(cell.load(Relaxed)))
    }

    /// Notes who wrote `bytes` at an offset; None for atomics, which race with nobody.
    #[inline(always)]
    pub fn note_writer(&self, offset: usize, bytes: usize, tag: Option<BlockTag>) {
        let writers = self.writers.get_or_init(|| {
            Zeroed::new(self.len.div_ceil(2)).unwrap_or_else(|| panic!("no room for the shadow of {self:?}"))
        });
        for cell in &writers[offset / 2..(offset + bytes) / 2] {
            cell.store(tag.map_or(0, |tag| tag.0), Relaxed);
        }
    }

    fn forget_writers(&self) {
        if let Some(writers) = self.writers.get() {
            writers.clear(|cell| cell.store(0, Relaxed));
        }
    }

    /// Notes a range of any length as written.
    pub fn note_range(&self, offset: usize, len: usize) {
        self.for_words(offset, len, |word, mask| self.note_bits(word, mask));
    }

    /// How many bytes of a range nobody wrote.
    pub fn unwritten_in(&self, offset: usize, len: usize) -> usize {
        let mut count = 0;
        self.for_words(offset, len, |word, mask| {
            count += (mask & !self.written[word].load(Relaxed)).count_ones() as usize
        });
        count
    }

    fn for_words(&self, offset: usize, len: usize, mut visit: impl FnMut(usize, u64)) {
        if self.is_written() || len == 0 {
            return;
        }
        let (first, last) = (offset / 64, (offset + len - 1) / 64);
        for word in first..=last {
            let from = if word == first { offset % 64 } else { 0 };
            let to = if word == last { (offset + len - 1) % 64 } else { 63 };
            visit(word, (u64::MAX >> (63 - to)) & (u64::MAX << from));
        }
    }

    /// Copies which bytes were written, beside a copy of the bytes.
    pub fn copy_written(&self, offset: usize, from: &Allocation, from_offset: usize, len: usize) {
        if from.is_written() {
            return self.note_range(offset, len);
        }
        for i in 0..len {
            if from.has(from_offset + i, 1) && !self.is_written() {
                self.note(offset + i, 1);
            }
        }
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "allocation #{} of {} bytes at {:#x}", self.serial, self.len, self.base)
    }
}

/// Why an address range is not memory of the device.
#[derive(Clone, Debug, PartialEq)]
pub struct BadAddress {
    pub is_freed: bool,
    pub message: String,
}

/// What went wrong with a free.
#[derive(Clone, Debug, PartialEq)]
pub enum BadFree {
    Twice(String),
    Unknown(String),
}

/// An allocation that was freed: base, length, serial number.
type Freed = (u64, usize, u64);

/// Freed allocations that are remembered, the last ones.
const REMEMBERED: usize = 4096;

/// All allocations of a device.
#[derive(Default)]
pub struct Heap {
    live: BTreeMap<u64, Arc<Allocation>>,
    freed: BTreeMap<u64, Freed>,
    next: u64,
    serial: u64,
    used: usize,
}

impl Heap {
    /// New memory at an address of the device's own; None if the host has none left.
    pub fn allocate(&mut self, len: usize) -> Option<Arc<Allocation>> {
        let base = self.next.max(FIRST_ADDRESS);
        let allocation = self.insert(Some(base), len)?;
        self.next = (base + len as u64 + ALIGNMENT).next_multiple_of(ALIGNMENT);
        Some(allocation)
    }

    /// New memory that host and device share an address for.
    pub fn allocate_shared(&mut self, len: usize) -> Option<Arc<Allocation>> {
        let allocation = self.insert(None, len)?;
        self.freed.remove(&allocation.base); // the host's allocator gives addresses again
        Some(allocation)
    }

    fn insert(&mut self, base: Option<u64>, len: usize) -> Option<Arc<Allocation>> {
        let allocation = Arc::new(Allocation::new(base, len, self.serial + 1)?);
        self.serial += 1;
        self.used += len;
        self.live.insert(allocation.base, allocation.clone());
        Some(allocation)
    }

    pub fn free(&mut self, base: u64) -> Result<(), BadFree> {
        match self.live.remove(&base) {
            Some(allocation) => {
                self.used -= allocation.len;
                self.freed.insert(base, (base, allocation.len, allocation.serial));
                if self.freed.len() > REMEMBERED {
                    self.freed.pop_first(); // addresses only grow: the oldest
                }
                Ok(())
            }
            None => match self.freed.get(&base) {
                Some((_, len, serial)) => {
                    Err(BadFree::Twice(format!("allocation #{serial} ({len} bytes at {base:#x}) is freed twice")))
                }
                None => Err(BadFree::Unknown(format!("{base:#x} is not the start of an allocation"))),
            },
        }
    }

    /// Forgets which blocks wrote what, before launches' tags are used again.
    pub fn forget_writers(&self) {
        self.live.values().for_each(|allocation| allocation.forget_writers());
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn live(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.live.values()
    }

    /// The allocation that holds all of `len` bytes at `address`, and the offset in it.
    pub fn find(&self, address: u64, len: usize) -> Result<(&Arc<Allocation>, usize), BadAddress> {
        if let Some((base, allocation)) = self.live.range(..=address).next_back() {
            let offset = (address - base) as usize;
            if offset <= allocation.len && len <= allocation.len - offset {
                return Ok((allocation, offset));
            }
        }
        Err(self.snapshot().explain(address, len))
    }

    /// The allocations as they are now, for a launch.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { table: self.live.values().cloned().collect(), freed: self.freed.values().copied().collect() }
    }
}

/// Allocations sorted by address.
pub struct Snapshot {
    table: Vec<Arc<Allocation>>,
    freed: Vec<Freed>,
}

impl Snapshot {
    /// Index of the allocation with the greatest base up to `address`.
    pub fn index(&self, address: u64) -> Option<usize> {
        self.table.partition_point(|allocation| allocation.base <= address).checked_sub(1)
    }

    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&Arc<Allocation>> {
        self.table.get(index)
    }

    /// Says what lies at an address where an access failed.
    pub fn explain(&self, address: u64, len: usize) -> BadAddress {
        let freed = self.freed.iter().find(|(base, size, _)| address >= *base && address < base + *size as u64);
        if let Some((base, size, serial)) = freed {
            let message = format!(
                "{len} bytes at {address:#x}: byte {} of allocation #{serial}, whose {size} bytes were freed",
                address - base
            );
            return BadAddress { is_freed: true, message };
        }
        let before = self.index(address).and_then(|index| self.table.get(index));
        let message = match before {
            Some(a) if address - a.base < a.len as u64 => format!(
                "{len} bytes at {address:#x}: byte {} of allocation #{}, which ends after {}",
                address - a.base,
                a.serial,
                a.len
            ),
            Some(a) if address - a.base < a.len as u64 + (1 << 24) => format!(
                "{len} bytes at {address:#x}: {} bytes past the end of allocation #{} of {} bytes",
                address - a.base - a.len as u64,
                a.serial,
                a.len
            ),
            _ => format!("{len} bytes at {address:#x}: no allocation is near"),
        };
        BadAddress { is_freed: false, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_was_written() {
        let mut heap = Heap::default();
        let a = heap.allocate(200).unwrap();
        assert!(!a.has(0, 4));
        a.note(64, 16);
        assert!(a.has(64, 16) && a.has(72, 8) && !a.has(80, 1));
        assert_eq!(a.unwritten_in(0, 200), 184);
        a.note_range(0, 200);
        assert!(a.is_written());
    }

    #[test]
    fn names_bad_addresses() {
        let mut heap = Heap::default();
        let (a, b) = (heap.allocate(100).unwrap().base, heap.allocate(8).unwrap().base);
        assert!(b >= a + 512);
        assert!(heap.find(a + 96, 4).is_ok());
        assert!(heap.find(a + 98, 4).unwrap_err().message.contains("byte 98 of allocation #1, which ends after 100"));
        assert!(heap.find(a + 104, 4).unwrap_err().message.contains("4 bytes past the end of allocation #1"));
        assert_eq!(heap.free(a), Ok(()));
        assert!(matches!(heap.free(a), Err(BadFree::Twice(_))));
        assert!(matches!(heap.free(b + 1), Err(BadFree::Unknown(_))));
        assert!(heap.find(a, 4).unwrap_err().is_freed);
    }
}
