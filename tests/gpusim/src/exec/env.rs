//! What a CTA's warps share while they run.

use super::local::Local;
use super::registers::{LANES, Mask};
use super::shared::Shared;
use super::view::GlobalView;
use crate::check::finding::{Finding, Findings, Kind, Place};
use crate::count::counters::Counters;
use crate::decode::inst::Kernel;

/// Multiprocessors of the simulated device.
pub const MULTIPROCESSORS: u32 = 16;

/// Extents of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: usize,
    pub parameters: Parameters,
    /// Number of the launch on its device.
    pub serial: u32,
}

/// A kernel's parameters as it reads them, aligned for any access.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    words: Vec<u128>,
    len: usize,
}

impl Parameters {
    pub fn new(bytes: &[u8]) -> Self {
        let words = bytes.chunks(16).map(|chunk| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        });
        Parameters { words: words.collect(), len: bytes.len() }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// For reading only.
    pub fn pointer(&self) -> *mut u8 {
        self.words.as_ptr().cast::<u8>().cast_mut()
    }
}

impl Launch {
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| *n as u64).product()
    }

    pub fn threads_per_block(&self) -> usize {
        self.block.iter().map(|n| *n as usize).product()
    }

    pub fn warps_per_block(&self) -> usize {
        self.threads_per_block().div_ceil(LANES)
    }

    /// Coordinates of a block.
    pub fn block_index(&self, linear: u64) -> [u32; 3] {
        coordinates(linear, self.grid)
    }

    /// Coordinates of a thread in its block.
    pub fn thread_index(&self, linear: u64) -> [u32; 3] {
        coordinates(linear, self.block)
    }
}

fn coordinates(linear: u64, extents: [u32; 3]) -> [u32; 3] {
    let (x, y) = (extents[0] as u64, extents[1] as u64);
    [(linear % x) as u32, (linear / x % y) as u32, (linear / (x * y)) as u32]
}

/// An error that ends the launch, as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    IllegalAddress,
    MisalignedAddress,
    /// Deadlock, barrier misuse, trap.
    LaunchFailed,
    Assert,
    Timeout,
}

pub type Outcome<T> = Result<T, Fault>;

/// The state of the CTA being run, beside its warps' registers.
pub struct Env<'a> {
    pub kernel: &'a Kernel,
    pub launch: &'a Launch,
    pub global: GlobalView,
    pub shared: Shared,
    pub local: Local,
    pub counters: Counters,
    pub findings: Findings,
    /// Linear index of the block.
    pub block: u64,
    /// Warp instructions executed: what `%clock` reads.
    pub clock: u64,
}

impl Env<'_> {
    /// Notes a finding at `pc`, seen by `count` threads, the first of which is `thread` of this block.
    pub fn note(
        &mut self,
        kind: Kind,
        pc: usize,
        thread: usize,
        address: Option<u64>,
        count: u32,
        message: impl FnOnce() -> String,
    ) {
        let (kernel, launch, block) = (self.kernel, self.launch, self.block);
        self.findings.note(kind, pc, block, count as u64, || Finding {
            kind,
            place: Some(place(kernel, launch, pc, block, thread)),
            address,
            message: message(),
            count: 1,
        });
    }

    /// A thread in words, by its coordinates in the block.
    pub fn name_thread(&self, thread: u32) -> String {
        let [x, y, z] = self.launch.thread_index(thread as u64);
        format!("thread ({x}, {y}, {z})")
    }

    /// An instruction in words.
    pub fn name_inst(&self, pc: usize) -> String {
        let meta = &self.kernel.meta[pc];
        format!("`{}` (line {})", meta.text, meta.line)
    }
}

fn place(kernel: &Kernel, launch: &Launch, pc: usize, block: u64, thread: usize) -> Place {
    let meta = &kernel.meta[pc];
    let source = meta.location.and_then(|(file, line)| {
        let (_, path) = kernel.files.iter().find(|(index, _)| *index == file)?;
        Some(format!("{path}:{line}"))
    });
    Place {
        kernel: kernel.name.clone(),
        instruction: meta.text.clone(),
        line: meta.line,
        source,
        block: launch.block_index(block),
        thread: launch.thread_index(thread as u64),
    }
}

/// The lanes of a mask, lowest first.
pub fn lanes(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let lane = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(lane)
    })
}
