//! Writes exports of Nsight Systems from a known schedule, and says what a reader must find.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use rusqlite::{Connection, params};

/// What a reader must find of a forward pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    pub rows: Option<usize>,
    pub layers: BTreeMap<usize, i64>,
    pub rest: i64,
    pub unfinished: bool,
}

/// Kernels of a pass as they are scheduled.
#[derive(Clone, Debug, Default)]
pub struct Scheduled {
    pub rows: Option<usize>,
    pub layers: BTreeMap<usize, Vec<(i64, i64)>>,
    pub rest: Vec<(i64, i64)>,
    pub unfinished: bool,
}

impl Scheduled {
    pub fn truth(&self) -> Truth {
        Truth {
            rows: self.rows,
            layers: self.layers.iter().map(|(layer, kernels)| (*layer, busy(kernels))).collect(),
            rest: busy(&self.rest),
            unfinished: self.unfinished,
        }
    }
}

/// Nanoseconds in which at least one kernel runs, counted one by one.
fn busy(kernels: &[(i64, i64)]) -> i64 {
    kernels.iter().flat_map(|(start, end)| *start..*end).collect::<BTreeSet<i64>>().len() as i64
}

/// A thread of a process.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pub process: i64,
    pub number: i64,
}

impl Thread {
    pub fn global_pid(self) -> i64 {
        (0x1_0000 + self.process) << 24
    }

    pub fn global_tid(self) -> i64 {
        self.global_pid() | self.number
    }
}

/// What an export lacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Without {
    pub strings: bool,
    pub graphs: bool,
    pub device: bool,
    pub version: Option<&'static str>,
}

pub struct Export {
    pub db: Connection,
    without: Without,
    strings: HashMap<String, i64>,
    noise: u64,
}

impl Export {
    pub fn create(path: &Path, without: Without) -> Export {
        let db = Connection::open(path).unwrap();
        db.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;
             CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
             CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,
                textId INTEGER, domainId INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
                nameId INTEGER);",
        )
        .unwrap();
        let node = if without.graphs { "" } else { ", graphNodeId INTEGER" };
        db.execute_batch(&format!(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, shortName INTEGER, demangledName INTEGER{node});"
        ))
        .unwrap();
        if !without.graphs {
            let columns = "start INTEGER, globalTid INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER";
            db.execute_batch(&format!("CREATE TABLE CUDA_GRAPH_NODE_EVENTS ({columns});")).unwrap();
        }
        if !without.strings {
            db.execute_batch("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);").unwrap();
        }
        if !without.device {
            db.execute_batch(
                "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
                INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA GeForce RTX 5070');",
            )
            .unwrap();
        }
        let version = without.version.unwrap_or("3.24.14");
        db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', ?1)", [version]).unwrap();
        Export { db, without, strings: HashMap::new(), noise: 1 }
    }

    pub fn finish(self) {
        self.db.execute_batch("COMMIT").unwrap();
        self.db.close().unwrap();
    }

    /// A number from 1 to `most`.
    pub fn random(&mut self, most: i64) -> i64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (self.noise >> 33) as i64 % most
    }

    pub fn range(&mut self, thread: Thread, start: i64, end: Option<i64>, text: &str) {
        let next = self.strings.len() as i64 + 1;
        let id = *self.strings.entry(text.to_owned()).or_insert(next);
        if id == next && !self.without.strings {
            self.db
                .prepare_cached("INSERT INTO StringIds VALUES (?1, ?2)")
                .unwrap()
                .execute(params![id, text])
                .unwrap();
        }
        let (text, id) = if self.without.strings { (Some(text), None) } else { (None, Some(id)) };
        let sql = "INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, ?3, ?4, ?5, 0)";
        self.db.prepare_cached(sql).unwrap().execute(params![start, end, text, thread.global_tid(), id]).unwrap();
    }

    pub fn module(&mut self, thread: Thread, start: i64, end: Option<i64>, module: &str, rows: usize) {
        let text = format!("{{'Module': '{module}', 'TrainableParams': 7, 'Inputs': [[{rows}, 64]]}}");
        self.range(thread, start, end, &text);
        if let Some(end) = end {
            // Inside the module's own range, and near-empty.
            let outputs = format!("{{'Module': '{module}', 'Outputs': [[{rows}, 64]]}}");
            self.range(thread, end - 2, Some(end - 1), &outputs);
        }
    }

    pub fn call(&self, thread: Thread, at: i64, correlation: i64) {
        let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, 0)";
        self.db.prepare_cached(sql).unwrap().execute(params![at, at + 1, thread.global_tid(), correlation]).unwrap();
    }

    pub fn kernel(&self, thread: Thread, stream: i64, (start, end): (i64, i64), correlation: i64, node: Option<i64>) {
        let pid = thread.global_pid();
        if self.without.graphs {
            let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, 0, ?3, ?4, ?5, 0, 0)";
            self.db.prepare_cached(sql).unwrap().execute(params![start, end, stream, correlation, pid]).unwrap();
        } else {
            let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, 0, ?3, ?4, ?5, 0, 0, ?6)";
            self.db.prepare_cached(sql).unwrap().execute(params![start, end, stream, correlation, pid, node]).unwrap();
        }
    }

    pub fn node(&self, thread: Thread, at: i64, node: i64, original: Option<i64>) {
        let sql = "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (?1, ?2, ?3, ?4)";
        self.db.prepare_cached(sql).unwrap().execute(params![at, thread.global_tid(), node, original]).unwrap();
    }
}

/// A process that serves: calls go forward in time on one thread, kernels on two streams behind them.
pub struct Server {
    pub thread: Thread,
    pub layers: usize,
    pub now: i64,
    /// When each stream is free.
    free: [i64; 2],
    correlation: i64,
    next_node: i64,
    /// (captured node, its instance, its layer).
    graph: Vec<(i64, i64, Option<usize>)>,
    pub passes: Vec<Scheduled>,
}

impl Server {
    pub fn new(process: i64, layers: usize) -> Server {
        let thread = Thread { process, number: 100 + process };
        let free = [1_000; 2];
        Server { thread, layers, now: 1_000, free, correlation: 1, next_node: 1, graph: Vec::new(), passes: Vec::new() }
    }

    /// Launches a kernel some time after the call, on either stream.
    fn launch(&mut self, export: &mut Export, layer: Option<usize>) {
        self.now += export.random(5);
        self.correlation += 1;
        export.call(self.thread, self.now, self.correlation);
        let interval = self.run(export, self.correlation, None);
        self.put(layer, interval);
        self.now += 2;
    }

    fn run(&mut self, export: &mut Export, correlation: i64, node: Option<i64>) -> (i64, i64) {
        let stream = export.random(2) - 1;
        let start = self.free[stream as usize].max(self.now + export.random(40));
        let end = start + export.random(90);
        self.free[stream as usize] = end + export.random(3);
        export.kernel(self.thread, 7 + stream, (start, end), correlation, node);
        (start, end)
    }

    fn put(&mut self, layer: Option<usize>, interval: (i64, i64)) {
        if let Some(pass) = self.passes.last_mut() {
            match layer {
                Some(layer) => pass.layers.entry(layer).or_default().push(interval),
                None => pass.rest.push(interval),
            }
        }
    }

    /// A pass with ranges: embedding, layers, final norm, then logits and sampling outside of the model's range.
    pub fn eager(&mut self, export: &mut Export, rows: usize) {
        self.passes.push(Scheduled { rows: Some(rows), ..Scheduled::default() });
        let begin = self.now + 3;
        self.now = begin;
        self.launch(export, None);
        for layer in 0..self.layers {
            self.eager_layer(export, layer, rows);
        }
        self.launch(export, None);
        self.now += 4;
        export.module(self.thread, begin, Some(self.now), "top", rows);
        self.now += 3;
        let logits = self.now;
        self.launch(export, None);
        self.now += 4;
        export.module(self.thread, logits, Some(self.now), "top.logits_processor", rows);
        self.launch(export, None);
        self.now += 5;
    }

    fn eager_layer(&mut self, export: &mut Export, layer: usize, rows: usize) {
        let begin = self.now + 1;
        self.now = begin;
        self.launch(export, Some(layer));
        let mixer = self.now + 1;
        self.now = mixer;
        for _ in 0..export.random(4) {
            self.launch(export, Some(layer));
        }
        self.now += 4;
        export.module(self.thread, mixer, Some(self.now), &format!("top.model.layers.{layer}.mixer"), rows);
        self.launch(export, Some(layer));
        self.now += 4;
        export.module(self.thread, begin, Some(self.now), &format!("top.model.layers.{layer}"), rows);
    }

    /// A pass that the trace's end cuts off within a layer.
    pub fn cut_off(&mut self, export: &mut Export, rows: usize) {
        self.passes.push(Scheduled { rows: Some(rows), unfinished: true, ..Scheduled::default() });
        let begin = self.now + 3;
        export.module(self.thread, begin, None, "top", rows);
        self.now = begin;
        self.launch(export, None);
        self.eager_layer(export, 0, rows);
        export.module(self.thread, self.now + 1, None, "top.model.layers.1", rows);
        self.now += 2;
        self.launch(export, Some(1));
    }

    /// Captures a pass as a graph; `instances` instances one of another, the last of which is replayed.
    pub fn capture(&mut self, export: &mut Export, rows: usize, instances: usize) {
        self.graph.clear();
        let begin = self.now + 3;
        self.now = begin;
        self.capture_node(export, None);
        for layer in 0..self.layers {
            let start = self.now + 1;
            self.now = start;
            for _ in 0..1 + export.random(3) {
                self.capture_node(export, Some(layer));
            }
            self.now += 4;
            export.module(self.thread, start, Some(self.now), &format!("top.model.layers.{layer}"), rows);
        }
        self.capture_node(export, None);
        self.now += 4;
        export.module(self.thread, begin, Some(self.now), "top", rows);
        for _ in 0..instances {
            for at in 0..self.graph.len() {
                self.now += 1;
                let node = self.node();
                export.node(self.thread, self.now, node, Some(self.graph[at].1));
                self.graph[at].1 = node;
            }
        }
        self.now += 5;
    }

    fn capture_node(&mut self, export: &mut Export, layer: Option<usize>) {
        self.now += export.random(3);
        let node = self.node();
        export.node(self.thread, self.now, node, None);
        self.graph.push((node, node, layer));
    }

    fn node(&mut self) -> i64 {
        self.next_node += 1;
        self.next_node
    }

    /// Replays the graph, then samples outside of it.
    pub fn replay(&mut self, export: &mut Export) {
        self.passes.push(Scheduled::default());
        self.now += 4;
        self.correlation += 1;
        export.call(self.thread, self.now, self.correlation);
        for (_, node, layer) in self.graph.clone() {
            let interval = self.run(export, self.correlation, Some(node));
            self.put(layer, interval);
        }
        self.launch(export, None);
    }

    pub fn truth(&self) -> Vec<Truth> {
        self.passes.iter().map(Scheduled::truth).collect()
    }
}
