//! Counts per instruction, and their sums per kernel.

use crate::decode::inst::{Class, Kernel, Op};
use crate::json::Json;
use crate::ptx::ast::Space;

/// How often an instruction ran, and what its memory requests cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct InstCount {
    /// Executions by threads (predicated-off ones not counted).
    pub threads: u64,
    /// Executions by warps with at least one thread.
    pub warps: u64,
    /// 32-byte sectors of global memory touched, and the fewest that could hold the bytes wanted.
    pub sectors: u64,
    pub minimum_sectors: u64,
    /// Wavefronts of shared memory beyond the fewest.
    pub extra_wavefronts: u64,
    /// Shared-memory requests.
    pub shared_requests: u64,
}

impl InstCount {
    fn add(&mut self, other: &InstCount) {
        self.threads += other.threads;
        self.warps += other.warps;
        self.sectors += other.sectors;
        self.minimum_sectors += other.minimum_sectors;
        self.extra_wavefronts += other.extra_wavefronts;
        self.shared_requests += other.shared_requests;
    }
}

/// The counts of one launch, or of several of the same kernel.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub launches: u64,
    pub blocks: u64,
    pub insts: Vec<InstCount>,
    pub tensor_multiply_adds: u64,
}

impl Counters {
    pub fn new(kernel: &Kernel) -> Self {
        Counters { insts: vec![InstCount::default(); kernel.code.len()], ..Counters::default() }
    }

    pub fn add(&mut self, other: &Counters) {
        self.launches += other.launches;
        self.blocks += other.blocks;
        self.tensor_multiply_adds += other.tensor_multiply_adds;
        if self.insts.is_empty() {
            self.insts = other.insts.clone();
        } else {
            self.insts.iter_mut().zip(&other.insts).for_each(|(own, other)| own.add(other));
        }
    }

    pub fn thread_instructions(&self) -> u64 {
        self.insts.iter().map(|i| i.threads).sum()
    }

    pub fn warp_instructions(&self) -> u64 {
        self.insts.iter().map(|i| i.warps).sum()
    }

    /// Thread instructions of a class.
    pub fn of_class(&self, kernel: &Kernel, class: Class) -> u64 {
        self.insts.iter().zip(&kernel.meta).filter(|(_, meta)| meta.class == class).map(|(i, _)| i.threads).sum()
    }

    /// Sums of what `value` gives for the instructions that `is_counted`.
    fn sum(&self, kernel: &Kernel, is_counted: impl Fn(&Op) -> bool, value: impl Fn(&InstCount) -> u64) -> u64 {
        self.insts
            .iter()
            .zip(&kernel.code)
            .filter(|(_, inst)| is_counted(&inst.op))
            .map(|(count, _)| value(count))
            .sum()
    }

    /// Sectors of global memory read and written, each with the fewest possible.
    pub fn global_traffic(&self, kernel: &Kernel) -> [(u64, u64); 2] {
        let reads = |op: &Op| matches!(op, Op::Load(_) | Op::AsyncCopy { .. } | Op::Atomic(_));
        let writes = |op: &Op| matches!(op, Op::Store(_) | Op::Atomic(_));
        [
            (self.sum(kernel, reads, |i| i.sectors), self.sum(kernel, reads, |i| i.minimum_sectors)),
            (self.sum(kernel, writes, |i| i.sectors), self.sum(kernel, writes, |i| i.minimum_sectors)),
        ]
    }

    /// Extra wavefronts of all shared-memory requests, and the number of requests.
    pub fn bank_conflicts(&self) -> (u64, u64) {
        (self.insts.iter().map(|i| i.extra_wavefronts).sum(), self.insts.iter().map(|i| i.shared_requests).sum())
    }

    /// Extra wavefronts of `ldmatrix`.
    pub fn matrix_load_conflicts(&self, kernel: &Kernel) -> u64 {
        self.sum(kernel, |op| matches!(op, Op::MatrixLoad { .. }), |i| i.extra_wavefronts)
    }

    /// Arrivals of warps at barriers of the CTA.
    pub fn barriers(&self, kernel: &Kernel) -> u64 {
        self.sum(kernel, |op| matches!(op, Op::Barrier(_)), |i| i.warps)
    }

    /// Local-memory requests: spilled or dynamically indexed arrays.
    pub fn local_requests(&self, kernel: &Kernel) -> u64 {
        let is_local = |op: &Op| matches!(op, Op::Load(a) | Op::Store(a) if a.address.space == Space::Local);
        self.sum(kernel, is_local, |i| i.warps)
    }

    pub fn to_json(&self, kernel: &Kernel) -> Json {
        let [(read, read_minimum), (written, written_minimum)] = self.global_traffic(kernel);
        let (extra_wavefronts, shared_requests) = self.bank_conflicts();
        let number = Json::Number;
        let classes = Class::ALL.iter().map(|class| (class.name(), number(self.of_class(kernel, *class))));
        Json::object([
            ("kernel", Json::text(&kernel.name)),
            ("launches", number(self.launches)),
            ("blocks", number(self.blocks)),
            ("thread_instructions", number(self.thread_instructions())),
            ("warp_instructions", number(self.warp_instructions())),
            ("thread_instructions_by_class", Json::object(classes)),
            ("global_sectors_read", number(read)),
            ("global_sectors_read_minimum", number(read_minimum)),
            ("global_sectors_written", number(written)),
            ("global_sectors_written_minimum", number(written_minimum)),
            ("shared_requests", number(shared_requests)),
            ("shared_extra_wavefronts", number(extra_wavefronts)),
            ("ldmatrix_extra_wavefronts", number(self.matrix_load_conflicts(kernel))),
            ("local_requests", number(self.local_requests(kernel))),
            ("tensor_multiply_adds", number(self.tensor_multiply_adds)),
            ("barriers", number(self.barriers(kernel))),
        ])
    }

    /// Which instructions ever ran, and the text of those that did not.
    pub fn coverage_json(&self, kernel: &Kernel) -> Json {
        // The exit after the last instruction is the decoder's own.
        let insts = self.insts.iter().zip(&kernel.meta).take(kernel.meta.len() - 1);
        let never = insts.clone().filter(|(count, _)| count.warps == 0).map(|(_, meta)| {
            Json::object([("line", Json::Number(meta.line as u64)), ("instruction", Json::text(&meta.text))])
        });
        let never: Vec<Json> = never.collect();
        Json::object([
            ("kernel", Json::text(&kernel.name)),
            ("instructions", Json::Number(kernel.meta.len() as u64 - 1)),
            ("executed", Json::Number((kernel.meta.len() - 1 - never.len()) as u64)),
            ("never_executed", Json::List(never)),
        ])
    }
}
