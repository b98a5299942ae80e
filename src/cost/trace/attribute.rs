//! From a trace to steps: which kernels are which layer's in which forward pass.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::events::{Kernel, PROCESS, Range, Texts, kernels_sql, next_kernel, next_range, ranges_sql};
use super::export::Export;
use super::graph::Nodes;
use super::ranges::Stack;
use crate::Result;

/// One forward pass: GPU time by layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Tokens of the pass; `None` for a replayed graph, which has no ranges.
    pub rows: Option<usize>,
    /// Nanoseconds in which at least one of the layer's kernels ran, on any stream.
    pub layers: BTreeMap<usize, i64>,
    /// The same of all that is no layer's.
    pub rest: i64,
    /// Whether one of its ranges was never closed: the trace ended within it.
    pub unfinished: bool,
}

/// What a trace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TraceSummary {
    /// As the export names it.
    pub device: String,
    pub processes: usize,
    pub steps: usize,
    pub kernels: u64,
    /// Kernels whose launch lies before the trace, or before a process's first pass.
    pub kernels_without_step: u64,
}

/// Reads an export and gives its steps, process by process, in order: `visit(process, step)`.
///
/// Memory does not grow with the trace: SQLite sorts in files, and only one step is held.
///
/// # Errors
/// [`crate::Error::Input`] saying what to do where the file is no export, is damaged, or lacks kernels or ranges.
pub fn read_trace(path: &Path, visit: &mut dyn FnMut(i64, &Step) -> Result<()>) -> Result<TraceSummary> {
    let export = Export::open(path)?;
    let nodes = Nodes::read(&export)?;
    let mut reader = Reader {
        visit,
        nodes: &nodes,
        process: None,
        threads: HashMap::new(),
        current: None,
        pass: None,
        launch: None,
        summary: TraceSummary { device: export.device.clone(), kernels: export.kernels, ..TraceSummary::default() },
        matched: 0,
        steps_before: 0,
        any_layer: false,
    };
    reader.run(&export)?;
    if !reader.any_layer {
        return export.refuse_without_layers();
    }
    reader.summary.kernels_without_step += export.kernels - reader.matched.min(export.kernels);
    Ok(reader.summary)
}

/// Intervals of a step until it is over.
#[derive(Default)]
struct Building {
    rows: Option<usize>,
    layers: BTreeMap<usize, Vec<(i64, i64)>>,
    rest: Vec<(i64, i64)>,
    unfinished: bool,
}

impl Building {
    fn add(&mut self, layer: Option<usize>, kernel: &Kernel) {
        let intervals = match layer {
            Some(layer) => self.layers.entry(layer).or_default(),
            None => &mut self.rest,
        };
        intervals.push((kernel.start, kernel.end));
    }

    fn step(self) -> Step {
        Step {
            rows: self.rows,
            layers: self.layers.into_iter().map(|(layer, intervals)| (layer, union(intervals))).collect(),
            rest: union(self.rest),
            unfinished: self.unfinished,
        }
    }
}

/// The length of the union of intervals.
fn union(mut intervals: Vec<(i64, i64)>) -> i64 {
    intervals.sort_unstable();
    let (mut sum, mut covered) = (0, i64::MIN);
    for (start, end) in intervals {
        let from = start.max(covered);
        sum += (end - from).max(0);
        covered = covered.max(end);
    }
    sum
}

/// An outermost module's range that is open: a pass, once a layer begins in it.
struct Pass {
    thread: i64,
    rows: Option<usize>,
    is_step: bool,
    unfinished: bool,
    /// Kernels before its first layer.
    waiting: Vec<Kernel>,
}

struct Reader<'r> {
    visit: &'r mut dyn FnMut(i64, &Step) -> Result<()>,
    nodes: &'r Nodes,
    process: Option<i64>,
    threads: HashMap<i64, Stack>,
    current: Option<Building>,
    pass: Option<Pass>,
    /// Kernels of one launch of a graph, until the next launch.
    launch: Option<Vec<Kernel>>,
    summary: TraceSummary,
    /// Kernels whose launch is in the trace.
    matched: u64,
    /// Steps of the processes before this one.
    steps_before: usize,
    any_layer: bool,
}

impl Reader<'_> {
    /// Goes through ranges and launches in order of process and time.
    fn run(&mut self, export: &Export) -> Result<()> {
        let mut of_ranges =
            export.db.prepare(&ranges_sql(export, "(globalTid & -16777216)")).map_err(export.fault())?;
        let mut ranges = of_ranges.query([]).map_err(export.fault())?;
        let mut of_kernels = export.db.prepare(&kernels_sql(export)).map_err(export.fault())?;
        let mut kernels = of_kernels.query([]).map_err(export.fault())?;
        let mut texts = Texts::new(export)?;
        let mut range = next_range(export, &mut ranges, &mut texts)?;
        let mut kernel = next_kernel(export, &mut kernels)?;
        loop {
            let range_at = range.as_ref().map(|r| (r.thread & PROCESS, r.start));
            let kernel_at = kernel.as_ref().map(|k| (k.process, k.at));
            match (range_at, kernel_at) {
                (None, None) => break,
                // A range holds the call at its own start.
                (Some(at), launched) if launched.is_none_or(|launched| at <= launched) => {
                    self.enter(at.0)?;
                    if let Some(range) = range.take() {
                        self.begin(&range)?;
                    }
                    range = next_range(export, &mut ranges, &mut texts)?;
                }
                _ => {
                    if let Some(k) = kernel.take() {
                        self.enter(k.process)?;
                        self.matched += 1;
                        self.launched(k)?;
                    }
                    kernel = next_kernel(export, &mut kernels)?;
                }
            }
        }
        self.leave()
    }

    /// A new process begins where the last one's rows end.
    fn enter(&mut self, process: i64) -> Result<()> {
        if self.process == Some(process) {
            return Ok(());
        }
        self.leave()?;
        self.process = Some(process);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        self.end_launch()?;
        self.end_pass();
        self.finish()?;
        self.threads.clear();
        self.summary.processes += usize::from(self.summary.steps > self.steps_before);
        self.steps_before = self.summary.steps;
        Ok(())
    }

    fn begin(&mut self, range: &Range) -> Result<()> {
        let Some(module) = &range.module else { return Ok(()) };
        self.end_launch()?;
        let stack = self.threads.entry(range.thread).or_default();
        stack.push(range.start, range.end, module);
        let outermost = stack.depth() == 1;
        if outermost {
            self.end_pass();
            self.pass = Some(Pass {
                thread: range.thread,
                rows: module.rows,
                is_step: false,
                unfinished: false,
                waiting: Vec::new(),
            });
        }
        if module.layer.is_some() {
            self.begin_step(range.thread)?;
        }
        if range.end.is_none() {
            match (&mut self.pass, &mut self.current) {
                (Some(pass), _) if pass.thread == range.thread && !pass.is_step => pass.unfinished = true,
                (_, Some(current)) => current.unfinished = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// The open pass has a layer: it is a step.
    fn begin_step(&mut self, thread: i64) -> Result<()> {
        self.any_layer = true;
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.thread == thread && !pass.is_step) else {
            return Ok(());
        };
        pass.is_step = true;
        let (rows, unfinished, waiting) = (pass.rows, pass.unfinished, std::mem::take(&mut pass.waiting));
        self.finish()?;
        let mut building = Building { rows, unfinished, ..Building::default() };
        waiting.iter().for_each(|kernel| building.add(None, kernel));
        self.current = Some(building);
        Ok(())
    }

    /// What ran in a pass without layers (logits, sampling) belongs to the step before.
    fn end_pass(&mut self) {
        for kernel in self.pass.take().into_iter().flat_map(|pass| pass.waiting) {
            self.add(None, &kernel);
        }
    }

    fn launched(&mut self, kernel: Kernel) -> Result<()> {
        let same =
            |of: &Vec<Kernel>| of.first().is_some_and(|k| (k.at, k.correlation) == (kernel.at, kernel.correlation));
        if kernel.node != 0 {
            match &mut self.launch {
                Some(launch) if same(launch) => launch.push(kernel),
                _ => {
                    self.end_launch()?;
                    self.launch = Some(vec![kernel]);
                }
            }
            return Ok(());
        }
        self.end_launch()?;
        let stack = self.threads.entry(kernel.thread).or_default();
        stack.advance(kernel.at);
        let layer = stack.innermost().and_then(|open| open.layer);
        if stack.is_empty() && self.pass.as_ref().is_some_and(|pass| pass.thread == kernel.thread) {
            self.end_pass();
        }
        match &mut self.pass {
            Some(pass) if layer.is_none() && !pass.is_step && pass.thread == kernel.thread => pass.waiting.push(kernel),
            _ => self.add(layer, &kernel),
        }
        Ok(())
    }

    /// A graph's launch: a step of its own, unless it goes on with layers behind those of the step so far.
    fn end_launch(&mut self) -> Result<()> {
        let Some(launch) = self.launch.take() else { return Ok(()) };
        let Some(first) = launch.first().copied() else { return Ok(()) };
        let layer_of = |kernel: &Kernel| self.nodes.layer(kernel.process, kernel.node);
        let layers: Vec<Option<usize>> = launch.iter().map(layer_of).collect();
        if let Some(least) = layers.iter().flatten().min() {
            self.any_layer = true;
            let stack = self.threads.entry(first.thread).or_default();
            stack.advance(first.at);
            if stack.is_empty() {
                if self.pass.as_ref().is_some_and(|pass| pass.thread == first.thread) {
                    self.end_pass();
                }
                let last = self.current.as_ref().and_then(|current| current.layers.keys().next_back().copied());
                // A step without layers is what a capture's ranges left.
                if last.is_none_or(|last| *least <= last) {
                    self.finish()?;
                    self.current = Some(Building::default());
                }
            } else {
                self.begin_step(first.thread)?;
            }
        }
        for (kernel, layer) in launch.iter().zip(layers) {
            self.add(layer, kernel);
        }
        Ok(())
    }

    fn add(&mut self, layer: Option<usize>, kernel: &Kernel) {
        match &mut self.current {
            Some(current) => current.add(layer, kernel),
            None => self.summary.kernels_without_step += 1,
        }
    }

    /// The step so far is over.
    fn finish(&mut self) -> Result<()> {
        let Some(building) = self.current.take() else { return Ok(()) };
        // A graph's capture has ranges, and no layer's kernel runs.
        if building.layers.is_empty() {
            self.summary.kernels_without_step += building.rest.len() as u64;
            return Ok(());
        }
        self.summary.steps += 1;
        (self.visit)(self.process.unwrap_or(0), &building.step())
    }
}
