//! The CTA's shared memory: bytes and shadow.

use crate::check::shadow::Shadow;

pub struct Shared {
    /// Words, so that every access is aligned.
    words: Vec<u64>,
    bytes: usize,
    pub shadow: Shadow,
}

impl Shared {
    pub fn new(bytes: usize, granule: usize) -> Self {
        // Slack for pointers of lanes that are masked off.
        Shared { words: vec![u64::MAX; bytes.div_ceil(8) + 2], bytes, shadow: Shadow::new(bytes, granule) }
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// A fresh CTA finds poison: results do not depend on which CTA ran here before.
    pub fn start_cta(&mut self) {
        self.words.fill(u64::MAX);
        self.shadow.start_cta();
    }

    #[inline(always)]
    pub fn pointer(&mut self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes);
        self.words.as_mut_ptr().cast::<u8>().wrapping_add(offset)
    }

    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.words.len() * 8);
        // SAFETY: within the words (just checked); bytes have no invalid values.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u8>().add(offset), len) }
    }

    pub fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset + len <= self.words.len() * 8);
        // SAFETY: as in `bytes`; the borrow of self is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>().add(offset), len) }
    }
}
