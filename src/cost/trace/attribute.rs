//! From a trace to steps: which kernels are which layer's in which forward pass.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rusqlite::types::ValueRef;

use super::export::Export;
use super::ranges::{ModuleText, Stack};
use crate::{Error, Result};

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

/// The process of a thread or a kernel, as exports number them.
const PROCESS: i64 = !0xFF_FFFF;

/// Reads an export and gives its steps, process by process, in order: `visit(process, step)`.
///
/// Memory does not grow with the trace: SQLite sorts in files, and only one step is held.
///
/// # Errors
/// [`Error::Input`] saying what to do where the file is no export, is damaged, or lacks kernels or ranges.
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

/// The layers of graphs' nodes, by where they were captured.
struct Nodes {
    /// (process, node) → the layer, `None` outside of layers.
    layers: HashMap<(i64, i64), Option<usize>>,
}

impl Nodes {
    fn read(export: &Export) -> Result<Nodes> {
        let mut layers = HashMap::new();
        if !export.has_nodes {
            return Ok(Nodes { layers });
        }
        // A node that was captured has no original; instances name theirs, and instances of instances those.
        let mut captured: Vec<(i64, i64, i64)> = Vec::new();
        let mut originals: HashMap<(i64, i64), i64> = HashMap::new();
        let sql = "SELECT globalTid, start, graphNodeId, originalGraphNodeId FROM CUDA_GRAPH_NODE_EVENTS \
                   WHERE globalTid IS NOT NULL AND graphNodeId IS NOT NULL";
        let mut statement = export.db.prepare(sql).map_err(export.fault())?;
        let mut rows = statement.query([]).map_err(export.fault())?;
        while let Some(row) = rows.next().map_err(export.fault())? {
            let get = |i| row.get::<_, Option<i64>>(i).map_err(export.fault());
            let (Some(thread), Some(node)) = (get(0)?, get(2)?) else { continue };
            match get(3)? {
                Some(original) => drop(originals.insert((thread & PROCESS, node), original)),
                None => captured.push((thread, get(1)?.unwrap_or(0), node)),
            }
        }
        captured.sort_unstable();
        for (thread, node, layer) in captured_layers(export, &captured)? {
            layers.insert((thread & PROCESS, node), layer);
        }
        for (process, node) in originals.keys() {
            let mut at = *node;
            // A chain of instances; a circle in a damaged file ends too.
            for _ in 0..originals.len() {
                match originals.get(&(*process, at)) {
                    Some(original) if *original != at => at = *original,
                    _ => break,
                }
            }
            if let Some(layer) = layers.get(&(*process, at)).copied() {
                layers.insert((*process, *node), layer);
            }
        }
        Ok(Nodes { layers })
    }
}

/// The layer around each captured node; `captured` by thread and time.
fn captured_layers(export: &Export, captured: &[(i64, i64, i64)]) -> Result<Vec<(i64, i64, Option<usize>)>> {
    let mut found = Vec::with_capacity(captured.len());
    let mut next = 0;
    let mut stack = Stack::default();
    let mut on_thread = i64::MIN;
    let mut take_until = |stack: &mut Stack, thread: i64, time: i64| {
        while let Some((of, at, node)) = captured.get(next).filter(|(of, at, _)| (*of, *at) < (thread, time)) {
            // Ranges of another thread than the stack's are none of this node's.
            stack.advance(*at);
            let layer = stack.innermost().and_then(|open| open.layer);
            found.push((*of, *node, layer));
            next += 1;
        }
    };
    ranges(export, "globalTid", &mut |thread, start, end, text| {
        if thread != on_thread {
            take_until(&mut stack, on_thread, i64::MAX);
            stack = Stack::default();
            take_until(&mut stack, thread, i64::MIN);
            on_thread = thread;
        }
        take_until(&mut stack, thread, start);
        stack.push(start, end, text);
        Ok(())
    })?;
    take_until(&mut stack, on_thread, i64::MAX);
    take_until(&mut Stack::default(), i64::MAX, i64::MAX);
    Ok(found)
}

/// Every module's range, by `order` and then time, outer ones first: `visit(thread, start, end, text)`.
fn ranges(
    export: &Export,
    order: &str,
    visit: &mut dyn FnMut(i64, i64, Option<i64>, &ModuleText<'_>) -> Result<()>,
) -> Result<()> {
    let mut statement = export.db.prepare(&ranges_sql(export, order)).map_err(export.fault())?;
    let mut rows = statement.query([]).map_err(export.fault())?;
    while let Some(range) = next_range(export, &mut rows, &mut String::new())? {
        if let Some(text) = ModuleText::parse(&range.text) {
            visit(range.thread, range.start, range.end, &text)?;
        }
    }
    Ok(())
}

fn ranges_sql(export: &Export, order: &str) -> String {
    let (text, join) = match export.has_strings {
        true => ("COALESCE(n.text, s.value)", "LEFT JOIN StringIds s ON s.id = n.textId"),
        false => ("n.text", ""),
    };
    // 59: pushed and popped. A range without an end is outer to one that begins with it.
    format!(
        "SELECT globalTid, start, end, {text} FROM NVTX_EVENTS n {join} WHERE eventType = 59 AND globalTid IS NOT NULL \
         ORDER BY {order}, start, IFNULL(end, 9223372036854775807) DESC"
    )
}

struct Range {
    thread: i64,
    start: i64,
    end: Option<i64>,
    text: String,
}

/// The next row; `buffer` keeps its memory.
fn next_range(export: &Export, rows: &mut rusqlite::Rows<'_>, buffer: &mut String) -> Result<Option<Range>> {
    let Some(row) = rows.next().map_err(export.fault())? else { return Ok(None) };
    buffer.clear();
    if let ValueRef::Text(text) = row.get_ref(3).map_err(export.fault())? {
        buffer.push_str(&String::from_utf8_lossy(text));
    }
    Ok(Some(Range {
        thread: row.get(0).map_err(export.fault())?,
        start: row.get(1).map_err(export.fault())?,
        end: row.get(2).map_err(export.fault())?,
        text: std::mem::take(buffer),
    }))
}

/// A kernel with the call that launched it.
#[derive(Clone, Copy)]
struct Kernel {
    process: i64,
    thread: i64,
    /// Of the call.
    at: i64,
    correlation: i64,
    start: i64,
    end: i64,
    node: i64,
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
        let node = if export.has_nodes { "IFNULL(k.graphNodeId, 0)" } else { "0" };
        // Correlation ids are unique within a process only.
        let sql = format!(
            "SELECT k.globalPid, r.globalTid, r.start, k.correlationId, k.start, k.end, {node} \
             FROM CUPTI_ACTIVITY_KIND_KERNEL k CROSS JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId \
             AND (r.globalTid & -16777216) = k.globalPid ORDER BY k.globalPid, r.start, k.start"
        );
        let mut of_kernels = export.db.prepare(&sql).map_err(export.fault())?;
        let mut kernels = of_kernels.query([]).map_err(export.fault())?;
        let mut buffer = String::new();
        let mut range = next_range(export, &mut ranges, &mut buffer)?;
        let mut kernel = next_kernel(export, &mut kernels)?;
        loop {
            let range_at = range.as_ref().map(|r| (r.thread & PROCESS, r.start));
            let kernel_at = kernel.as_ref().map(|k| (k.process, k.at));
            match (range_at, kernel_at) {
                (None, None) => break,
                // A range holds the call at its own start.
                (Some(at), launched) if launched.is_none_or(|launched| at <= launched) => {
                    self.enter(at.0)?;
                    if let Some(r) = range.take() {
                        if let Some(text) = ModuleText::parse(&r.text) {
                            self.begin(&r, &text)?;
                        }
                        buffer = r.text;
                    }
                    range = next_range(export, &mut ranges, &mut buffer)?;
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

    fn begin(&mut self, range: &Range, text: &ModuleText<'_>) -> Result<()> {
        self.end_launch()?;
        let stack = self.threads.entry(range.thread).or_default();
        stack.push(range.start, range.end, text);
        let outermost = stack.depth() == 1;
        if outermost {
            self.end_pass();
            self.pass = Some(Pass {
                thread: range.thread,
                rows: text.rows,
                is_step: false,
                unfinished: false,
                waiting: Vec::new(),
            });
        }
        if text.layer.is_some() {
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
        let layer_of = |kernel: &Kernel| self.nodes.layers.get(&(kernel.process, kernel.node)).copied().flatten();
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
                if self.current.is_none() || last.is_some_and(|last| *least <= last) {
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
        // A graph's capture has ranges, and nothing runs.
        if building.layers.is_empty() && building.rest.is_empty() {
            return Ok(());
        }
        self.summary.steps += 1;
        (self.visit)(self.process.unwrap_or(0), &building.step())
    }
}

fn next_kernel(export: &Export, rows: &mut rusqlite::Rows<'_>) -> Result<Option<Kernel>> {
    let Some(row) = rows.next().map_err(export.fault())? else { return Ok(None) };
    let get = |i| row.get::<_, i64>(i).map_err(|e| -> Error { export.fault()(e) });
    Ok(Some(Kernel {
        process: get(0)?,
        thread: get(1)?,
        at: get(2)?,
        correlation: get(3)?,
        start: get(4)?,
        end: get(5)?,
        node: get(6)?,
    }))
}
