//! The simulated device: memory, modules, launches, and everything found and counted. The driver functions are a thin layer over
//! this; tests may use it directly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::check::finding::{Finding, Kind};
use crate::count::counters::Counters;
use crate::decode::decode;
use crate::decode::inst::Kernel;
use crate::exec::env::{Fault, Launch, Parameters};
use crate::exec::grid::{self, Execution};
use crate::exec::heap::{Allocation, BadAddress, BadFree, BlockTag, Heap};
use crate::json::Json;
use crate::mutate::{Mutation, mutate};
use crate::ptx::ast::Space;
use crate::ptx::{self, PtxError, ast};

/// Shared memory a launch may use without asking for more.
pub const DEFAULT_SHARED: usize = 48 * 1024;

/// What a launch is asked for.
#[derive(Clone, Debug)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: usize,
    /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` of the function.
    pub max_dynamic_shared: usize,
}

impl LaunchConfig {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn new(blocks: u32, threads: u32) -> Self {
        LaunchConfig {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared: 0,
            max_dynamic_shared: DEFAULT_SHARED,
        }
    }
}

/// Why a launch failed.
#[derive(Clone, Debug, PartialEq)]
pub enum LaunchError {
    /// Refused before it began.
    Refused(String),
    /// Ended by a fault in the kernel.
    Fault(Fault),
}

/// A module variable in device memory.
#[derive(Clone, Debug)]
pub struct Global {
    pub address: u64,
    pub size: usize,
}

/// A loaded PTX text.
pub struct Module {
    pub kernels: BTreeMap<String, Arc<Kernel>>,
    pub globals: BTreeMap<String, Global>,
    /// `.target`: the architecture the text is for.
    pub target: String,
    /// What was altered in it, if anything.
    pub mutation: Option<Mutation>,
}

/// A kernel and its counts over all launches.
struct Total {
    kernel: Arc<Kernel>,
    counters: Counters,
}

#[derive(Default)]
struct Records {
    findings: Vec<Finding>,
    totals: Vec<Total>,
    /// A mutation asked for the next module that has the kernel: name and seed.
    mutation: Option<(String, u64)>,
    last_mutation: Option<String>,
    /// A text to load in place of the next one that has this kernel.
    replacement: Option<(String, String)>,
}

pub struct Device {
    heap: Mutex<Heap>,
    records: Mutex<Records>,
    execution: Mutex<Execution>,
    launches: AtomicU32,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Bytes of device memory.
    pub memory: usize,
}

/// A lock that a panic elsewhere does not spoil: the data behind it is only ever replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Default for Device {
    fn default() -> Self {
        Device {
            heap: Mutex::default(),
            records: Mutex::default(),
            execution: Mutex::default(),
            launches: AtomicU32::new(0),
            capability: (8, 0),
            memory: 16 << 30,
        }
    }
}

impl Device {
    pub fn set_execution(&self, execution: Execution) {
        *lock(&self.execution) = execution;
    }

    pub fn execution(&self) -> Execution {
        *lock(&self.execution)
    }

    /// Most bytes of shared memory a block can have.
    pub fn max_shared(&self) -> usize {
        let kibibytes = match self.capability {
            (8, 0) | (8, 7) => 163,
            (8, _) | (12, _) => 99,
            (9..=11, _) => 227,
            _ => 64,
        };
        kibibytes * 1024
    }

    /// Parses, decodes and places a PTX text.
    pub fn load(&self, text: &str) -> Result<Module, PtxError> {
        let mut tree = ptx::parse(text)?;
        if let Some(replacement) = self.take_replacement(&tree) {
            tree = ptx::parse(&replacement)?;
        }
        let mut mutation = None;
        let wanted = lock(&self.records).mutation.clone();
        if let Some((kernel, seed)) = wanted
            && let Some(function) = tree.functions.iter_mut().find(|f| f.name == kernel && f.has_body)
        {
            mutation = mutate(function, seed);
            let mut records = lock(&self.records);
            records.mutation = None;
            records.last_mutation = mutation.as_ref().map(|m| m.to_string());
        }
        let addresses = self.place_globals(&tree)?;
        let mut kernels = BTreeMap::new();
        for function in tree.functions.iter().filter(|f| f.is_entry && f.has_body) {
            let kernel = decode(&tree, function, &|index| addresses.get(&index).map_or(0, |global| global.address));
            kernels.insert(function.name.clone(), self.register(kernel?));
        }
        let globals = addresses.iter().map(|(index, global)| (tree.variables[*index].name.clone(), global.clone()));
        let globals = globals.collect();
        Ok(Module { kernels, globals, target: tree.target, mutation })
    }

    /// The text that is to be loaded in place of one that has these functions.
    fn take_replacement(&self, tree: &ast::Module) -> Option<String> {
        let has = |kernel: &str| tree.functions.iter().any(|f| f.name == kernel && f.has_body);
        let taken = lock(&self.records).replacement.take_if(|(kernel, _)| has(kernel));
        taken.map(|(_, text)| text)
    }

    /// Gives the module's variables memory and their initial bytes.
    fn place_globals(&self, tree: &ast::Module) -> Result<BTreeMap<usize, Global>, PtxError> {
        let in_memory = |v: &ast::Variable| matches!(v.space, Space::Global | Space::Const);
        let mut placed = BTreeMap::new();
        for (index, variable) in tree.variables.iter().enumerate().filter(|(_, v)| in_memory(v)) {
            let Some(allocation) = self.allocate(variable.size) else {
                return Err(PtxError::new(0, format!("no memory for `{}`", variable.name)));
            };
            allocation.note_range(0, variable.size);
            placed.insert(index, Global { address: allocation.base, size: variable.size });
        }
        for (index, variable) in tree.variables.iter().enumerate().filter(|(_, v)| in_memory(v)) {
            let mut bytes = variable.init.clone();
            bytes.resize(variable.size, 0);
            for (offset, name, addend) in &variable.relocations {
                let target = tree.variables.iter().position(|v| v.name == *name).and_then(|target| placed.get(&target));
                let Some(target) = target else {
                    return Err(PtxError::new(
                        0,
                        format!("`{}` refers to `{name}`, which has no address", variable.name),
                    ));
                };
                bytes[*offset..*offset + 8].copy_from_slice(&target.address.wrapping_add_signed(*addend).to_le_bytes());
            }
            if let Some(global) = placed.get(&index) {
                let written = self.write(global.address, &bytes);
                debug_assert!(written.is_ok());
            }
        }
        Ok(placed)
    }

    /// Whether the device runs code for `target`: that of its own or an older architecture; `sm_90a` and the like only if it is
    /// exactly that, `sm_100f` and the like only in that family.
    pub fn runs(&self, target: &str) -> bool {
        let number = target.trim_start_matches("sm_").trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let own = 10 * self.capability.0 + self.capability.1;
        match (number.parse::<u32>(), target.chars().last()) {
            (Ok(wanted), Some('a')) => wanted == own,
            (Ok(wanted), Some('f')) => wanted <= own && wanted / 10 == self.capability.0,
            (Ok(wanted), _) => wanted <= own,
            (Err(_), _) => false,
        }
    }

    /// Frees what a module's variables took.
    pub fn unload(&self, module: &Module) {
        for global in module.globals.values() {
            let freed = lock(&self.heap).free(global.address);
            debug_assert!(freed.is_ok());
        }
    }

    /// Makes room for a kernel's counts; a kernel with the same code shares those of its earlier load.
    fn register(&self, kernel: Kernel) -> Arc<Kernel> {
        let kernel = Arc::new(kernel);
        let mut records = lock(&self.records);
        if !records.totals.iter().any(|total| is_same_code(&total.kernel, &kernel)) {
            records.totals.push(Total { kernel: kernel.clone(), counters: Counters::new(&kernel) });
        }
        kernel
    }

    pub fn allocate(&self, bytes: usize) -> Option<Arc<Allocation>> {
        let mut heap = lock(&self.heap);
        if heap.used().checked_add(bytes).is_none_or(|total| total > self.memory) { None } else { heap.allocate(bytes) }
    }

    /// Memory that host and device address alike.
    pub fn allocate_shared(&self, bytes: usize) -> Option<Arc<Allocation>> {
        lock(&self.heap).allocate_shared(bytes)
    }

    /// Frees an allocation; a double or wild free is also a finding.
    pub fn free(&self, address: u64) -> Result<(), BadFree> {
        let result = lock(&self.heap).free(address);
        match &result {
            Err(BadFree::Twice(message)) => self.find(Finding::of_call(Kind::DoubleFree, message)),
            Err(BadFree::Unknown(message)) => self.find(Finding::of_call(Kind::InvalidFree, message)),
            Ok(()) => {}
        }
        result
    }

    /// The allocation that holds a range, and the offset in it; a miss is also a finding.
    pub fn find_memory(&self, address: u64, len: usize) -> Result<(Arc<Allocation>, usize), BadAddress> {
        let found = lock(&self.heap).find(address, len).map(|(allocation, offset)| (allocation.clone(), offset));
        if let Err(bad) = &found {
            let kind = if bad.is_freed { Kind::UseAfterFree } else { Kind::OutOfBounds };
            let finding = Finding::of_call(kind, format!("a copy or fill of {}", bad.message));
            self.find(Finding { address: Some(address), ..finding });
        }
        found
    }

    /// Copies bytes into device memory.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), BadAddress> {
        let (allocation, offset) = self.find_memory(address, bytes.len())?;
        // SAFETY: `find_memory` checked the range; no kernel runs while the caller copies (streams are synchronous).
        unsafe { allocation.pointer(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        allocation.note_range(offset, bytes.len());
        Ok(())
    }

    /// Copies bytes out of device memory. Bytes nobody wrote are a finding.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), BadAddress> {
        let (allocation, offset) = self.find_memory(address, bytes.len())?;
        // SAFETY: as in `write`.
        unsafe { allocation.pointer(offset).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        let unwritten = allocation.unwritten_in(offset, bytes.len());
        if unwritten > 0 {
            let message = format!(
                "the host copies {} bytes from {address:#x} (allocation #{}), {unwritten} of which nobody wrote",
                bytes.len(),
                allocation.serial
            );
            self.find(Finding { address: Some(address), ..Finding::of_call(Kind::Uninitialized, message) });
        }
        Ok(())
    }

    /// Copies between two places of device memory, which may overlap.
    pub fn copy(&self, to: u64, from: u64, len: usize) -> Result<(), BadAddress> {
        let (source, source_offset) = self.find_memory(from, len)?;
        let (target, target_offset) = self.find_memory(to, len)?;
        // SAFETY: as in `write`; `copy_to` allows overlap.
        unsafe { source.pointer(source_offset).copy_to(target.pointer(target_offset), len) };
        target.copy_written(target_offset, &source, source_offset, len);
        Ok(())
    }

    /// Repeats a pattern of 1, 2 or 4 bytes.
    pub fn fill(&self, address: u64, pattern: &[u8], count: usize) -> Result<(), BadAddress> {
        self.write(address, &pattern.repeat(count))
    }

    /// Runs a kernel to its end. `parameters` are the bytes of its parameter list.
    pub fn launch(&self, kernel: &Arc<Kernel>, config: &LaunchConfig, parameters: &[u8]) -> Result<(), LaunchError> {
        if let Err(message) = self.check_launch(kernel, config, parameters.len()) {
            self.find(Finding::of_call(Kind::BadLaunch, format!("launch of `{}`: {message}", kernel.name)));
            return Err(LaunchError::Refused(message));
        }
        let launch = Launch {
            grid: config.grid,
            block: config.block,
            dynamic_shared: config.dynamic_shared,
            parameters: Parameters::new(parameters),
            serial: self.launches.fetch_add(1, Relaxed),
        };
        let snapshot = {
            let heap = lock(&self.heap);
            if launch.serial.is_multiple_of(BlockTag::LAUNCHES) {
                heap.forget_writers();
            }
            Arc::new(heap.snapshot())
        };
        let report = grid::run(kernel, &launch, snapshot, *lock(&self.execution));
        let mut records = lock(&self.records);
        report.findings.into_iter().for_each(|finding| join(&mut records.findings, finding));
        if let Some(total) = records.totals.iter_mut().find(|total| is_same_code(&total.kernel, kernel)) {
            total.counters.add(&report.counters);
        }
        report.fault.map_or(Ok(()), |fault| Err(LaunchError::Fault(fault)))
    }

    /// What a device refuses to launch, in words.
    fn check_launch(&self, kernel: &Kernel, config: &LaunchConfig, parameter_bytes: usize) -> Result<(), String> {
        let LaunchConfig { grid, block, dynamic_shared, max_dynamic_shared } = config;
        let threads: u64 = block.iter().map(|n| *n as u64).product();
        let shared = kernel.static_shared + dynamic_shared;
        match () {
            _ if grid.contains(&0) || block.contains(&0) => {
                Err(format!("an extent of grid {grid:?}, block {block:?} is 0"))
            }
            _ if grid[0] > i32::MAX as u32 || grid[1] > 65535 || grid[2] > 65535 => {
                Err(format!("grid {grid:?} is over 2147483647 × 65535 × 65535"))
            }
            _ if threads > 1024 || block[2] > 64 => Err(format!("block {block:?} is over 1024 threads (64 in z)")),
            _ if kernel.max_threads.is_some_and(|max| threads > max as u64) => {
                Err(format!("{threads} threads, but the kernel is compiled for {:?}", kernel.max_threads.unwrap_or(0)))
            }
            _ if kernel.required_threads.is_some_and(|required| required != *block) => Err(format!(
                "block {block:?}, but the kernel requires {:?}",
                kernel.required_threads.unwrap_or_default()
            )),
            _ if dynamic_shared > max_dynamic_shared => Err(format!(
                "{dynamic_shared} bytes of dynamic shared memory, but the function's attribute allows {max_dynamic_shared}"
            )),
            _ if shared > self.max_shared() => {
                Err(format!("{shared} bytes of shared memory, the device has {}", self.max_shared()))
            }
            _ if parameter_bytes != kernel.parameter_size => {
                Err(format!("{parameter_bytes} bytes of parameters, the kernel takes {}", kernel.parameter_size))
            }
            _ => Ok(()),
        }
    }

    /// Adds a finding to the list.
    pub fn find(&self, finding: Finding) {
        join(&mut lock(&self.records).findings, finding);
    }

    pub fn findings(&self) -> Vec<Finding> {
        lock(&self.records).findings.clone()
    }

    pub fn findings_json(&self) -> Json {
        Json::List(lock(&self.records).findings.iter().map(Finding::to_json).collect())
    }

    /// A kernel's counts over all its launches since the last reset.
    pub fn counters(&self, kernel: &Kernel) -> Counters {
        let records = lock(&self.records);
        let total = records.totals.iter().find(|total| is_same_code(&total.kernel, kernel));
        total.map_or_else(|| Counters::new(kernel), |total| total.counters.clone())
    }

    pub fn counters_json(&self) -> Json {
        let records = lock(&self.records);
        Json::List(records.totals.iter().map(|total| total.counters.to_json(&total.kernel)).collect())
    }

    pub fn coverage_json(&self) -> Json {
        let records = lock(&self.records);
        Json::List(records.totals.iter().map(|total| total.counters.coverage_json(&total.kernel)).collect())
    }

    /// Forgets findings and counts. Memory and modules stay.
    pub fn reset(&self) {
        let mut records = lock(&self.records);
        records.findings.clear();
        for Total { kernel, counters } in &mut records.totals {
            *counters = Counters::new(kernel);
        }
    }

    /// Alters one instruction of `kernel` in the next module that has it; the seed chooses which, and how.
    pub fn mutate_next(&self, kernel: &str, seed: u64) {
        lock(&self.records).mutation = Some((kernel.into(), seed));
    }

    /// Loads `text` in place of the next module that has `kernel`: a fault to plant.
    pub fn replace_next(&self, kernel: &str, text: &str) {
        lock(&self.records).replacement = Some((kernel.into(), text.into()));
    }

    /// The last mutation made, in words.
    pub fn last_mutation(&self) -> Option<String> {
        lock(&self.records).last_mutation.clone()
    }

    /// Notes memory still allocated as leaks; `what` says when.
    pub fn report_leaks(&self, what: &str, is_module_memory: impl Fn(u64) -> bool) {
        let leaks: Vec<String> = lock(&self.heap)
            .live()
            .filter(|allocation| !is_module_memory(allocation.base))
            .map(|a| format!("allocation #{} of {} bytes at {:#x} is still there {what}", a.serial, a.len, a.base))
            .collect();
        leaks.into_iter().for_each(|message| self.find(Finding::of_call(Kind::Leak, message)));
    }

    /// Bytes allocated now.
    pub fn used(&self) -> usize {
        lock(&self.heap).used()
    }
}

/// Whether two kernels are the same text: then their counts belong together.
fn is_same_code(a: &Kernel, b: &Kernel) -> bool {
    std::ptr::eq(a, b)
        || (a.name == b.name
            && a.meta.len() == b.meta.len()
            && a.meta.iter().zip(&b.meta).all(|(a, b)| a.line == b.line && a.text == b.text))
}

/// Adds a finding, or counts it where the same was found at the same place before.
fn join(findings: &mut Vec<Finding>, finding: Finding) {
    let place = |f: &Finding| f.place.as_ref().map(|p| (p.kernel.clone(), p.line, p.instruction.clone()));
    match findings.iter_mut().find(|f| f.kind == finding.kind && finding.place.is_some() && place(f) == place(&finding))
    {
        Some(known) => known.count += finding.count,
        None => findings.push(finding),
    }
}
