//! The rows of an export, in order: ranges of modules, and kernels with the calls that launched them.

use std::collections::HashMap;
use std::rc::Rc;

use rusqlite::types::ValueRef;

use super::export::Export;
use super::ranges::Module;
use crate::{Error, Result};

/// The process of a thread or a kernel, as exports number them.
pub const PROCESS: i64 = !0xFF_FFFF;

/// Every module's range, by `order` and then time, outer ones first.
pub fn ranges(export: &Export, order: &str, visit: &mut dyn FnMut(&Range, &Module)) -> Result<()> {
    let mut texts = Texts::new(export)?;
    let mut statement = export.db.prepare(&ranges_sql(export, order)).map_err(export.fault())?;
    let mut rows = statement.query([]).map_err(export.fault())?;
    while let Some(range) = next_range(export, &mut rows, &mut texts)? {
        if let Some(module) = &range.module {
            visit(&range, module);
        }
    }
    Ok(())
}

pub fn ranges_sql(export: &Export, order: &str) -> String {
    let id = if export.has_strings { "textId" } else { "NULL" };
    // 59: pushed and popped. A range without an end is outer to one that begins with it.
    format!(
        "SELECT globalTid, start, end, text, {id} FROM NVTX_EVENTS WHERE eventType = 59 AND globalTid IS NOT NULL \
         ORDER BY {order}, start, IFNULL(end, 9223372036854775807) DESC"
    )
}

/// A range of a thread.
pub struct Range {
    pub thread: i64,
    pub start: i64,
    pub end: Option<i64>,
    /// `None` of ranges that are no module's.
    pub module: Option<Rc<Module>>,
}

/// Texts by their ids, each looked up and parsed once: there are few, and very many ranges.
pub struct Texts<'e> {
    export: &'e Export,
    lookup: Option<rusqlite::Statement<'e>>,
    known: HashMap<i64, Option<Rc<Module>>>,
}

impl<'e> Texts<'e> {
    pub fn new(export: &'e Export) -> Result<Texts<'e>> {
        let sql = "SELECT value FROM StringIds WHERE id = ?1";
        let lookup = match export.has_strings {
            true => Some(export.db.prepare(sql).map_err(export.fault())?),
            false => None,
        };
        Ok(Texts { export, lookup, known: HashMap::new() })
    }

    fn of_id(&mut self, id: i64) -> Result<Option<Rc<Module>>> {
        if let Some(known) = self.known.get(&id) {
            return Ok(known.clone());
        }
        let Some(lookup) = &mut self.lookup else { return Ok(None) };
        let text = match lookup.query_row([id], |row| row.get::<_, Option<String>>(0)) {
            Ok(text) => text.unwrap_or_default(),
            Err(rusqlite::Error::QueryReturnedNoRows) => String::new(),
            Err(error) => return Err(self.export.fault()(error)),
        };
        let module = Module::parse(&text).map(Rc::new);
        self.known.insert(id, module.clone());
        Ok(module)
    }
}

pub fn next_range(export: &Export, rows: &mut rusqlite::Rows<'_>, texts: &mut Texts<'_>) -> Result<Option<Range>> {
    let Some(row) = rows.next().map_err(export.fault())? else { return Ok(None) };
    let module = match row.get_ref(3).map_err(export.fault())? {
        ValueRef::Text(text) => Module::parse(&String::from_utf8_lossy(text)).map(Rc::new),
        _ => match row.get::<_, Option<i64>>(4).map_err(export.fault())? {
            Some(id) => texts.of_id(id)?,
            None => None,
        },
    };
    Ok(Some(Range {
        thread: row.get(0).map_err(export.fault())?,
        start: row.get(1).map_err(export.fault())?,
        end: row.get(2).map_err(export.fault())?,
        module,
    }))
}

/// A kernel with the call that launched it.
#[derive(Clone, Copy)]
pub struct Kernel {
    pub process: i64,
    pub thread: i64,
    /// Of the call.
    pub at: i64,
    pub correlation: i64,
    pub start: i64,
    pub end: i64,
    pub node: i64,
}

/// Kernels by process and the time of their launch. Correlation ids are unique within a process only.
pub fn kernels_sql(export: &Export) -> String {
    let node = if export.has_nodes { "IFNULL(k.graphNodeId, 0)" } else { "0" };
    format!(
        "SELECT k.globalPid, r.globalTid, r.start, k.correlationId, k.start, k.end, {node} \
         FROM CUPTI_ACTIVITY_KIND_KERNEL k CROSS JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId \
         AND (r.globalTid & -16777216) = k.globalPid ORDER BY k.globalPid, r.start, k.start"
    )
}

pub fn next_kernel(export: &Export, rows: &mut rusqlite::Rows<'_>) -> Result<Option<Kernel>> {
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
