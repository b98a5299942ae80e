//! Local memory: a stack frame per thread of the CTA, with a bit per byte that was written.

pub struct Local {
    words: Vec<u64>,
    written: Vec<u64>,
    /// Bytes of a frame, and the same rounded up to whole words of bits.
    size: usize,
    pitch: usize,
}

impl Local {
    pub fn new(size: usize, threads: usize) -> Self {
        let pitch = size.next_multiple_of(64);
        Local { words: vec![u64::MAX; pitch * threads / 8 + 2], written: vec![0; pitch * threads / 64], size, pitch }
    }

    pub fn start_cta(&mut self) {
        if self.size > 0 {
            self.words.fill(u64::MAX);
            self.written.fill(0);
        }
    }

    pub fn len(&self) -> usize {
        self.size
    }

    /// The host address of a byte of a thread's frame.
    #[inline(always)]
    pub fn pointer(&mut self, thread: usize, offset: usize) -> *mut u8 {
        self.words.as_mut_ptr().cast::<u8>().wrapping_add(thread * self.pitch + offset)
    }

    /// Notes aligned bytes (at most 16) as written.
    #[inline(always)]
    pub fn note(&mut self, thread: usize, offset: usize, bytes: usize) {
        let at = thread * self.pitch + offset;
        self.written[at / 64] |= ((1 << bytes) - 1) << (at % 64);
    }

    /// Whether aligned bytes (at most 16) were all written.
    #[inline(always)]
    pub fn has(&self, thread: usize, offset: usize, bytes: usize) -> bool {
        let (at, mask) = (thread * self.pitch + offset, (1u64 << bytes) - 1);
        self.written[at / 64] >> (at % 64) & mask == mask
    }
}
