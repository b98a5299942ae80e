//! Graphs: which layer each of their nodes was captured in.

use std::collections::HashMap;

use super::events::{PROCESS, ranges};
use super::export::Export;
use super::ranges::Stack;
use crate::Result;

/// Instances of instances; more is a damaged file.
const LONGEST_CHAIN: usize = 1 << 10;

/// The layers of graphs' nodes, by where they were captured.
pub struct Nodes {
    /// (process, node) → the layer, `None` outside of layers.
    layers: HashMap<(i64, i64), Option<usize>>,
}

impl Nodes {
    /// The layer of a process's node.
    pub fn layer(&self, process: i64, node: i64) -> Option<usize> {
        self.layers.get(&(process, node)).copied().flatten()
    }

    pub fn read(export: &Export) -> Result<Nodes> {
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
            for _ in 0..LONGEST_CHAIN {
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
    ranges(export, "globalTid", &mut |range, module| {
        if range.thread != on_thread {
            take_until(&mut stack, on_thread, i64::MAX);
            stack = Stack::default();
            take_until(&mut stack, range.thread, i64::MIN);
            on_thread = range.thread;
        }
        take_until(&mut stack, range.thread, range.start);
        stack.push(range.start, range.end, module);
    })?;
    take_until(&mut stack, on_thread, i64::MAX);
    take_until(&mut Stack::default(), i64::MAX, i64::MAX);
    Ok(found)
}
