//! An Nsight Systems export (`nsys export --type sqlite`), opened and checked.

use std::io::Read;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::{Error, Result, files};

/// The major version of the exports' schema that is read here.
const SCHEMA: u32 = 3;

const EXPECTED: &str = "an export of Nsight Systems: nsys export --type sqlite";
const CAPTURE: &str = "a trace with kernels: nsys profile --trace cuda,nvtx --trace-fork-before-exec=true, with \
                       --profiler-config.profiler=cuda and /start_profile where --capture-range is given";
const GRAPHS: &str = "kernels of graphs one by one: nsys profile --cuda-graph-trace=node";
const NVTX: &str = "ranges of modules: vllm serve --enable-layerwise-nvtx-tracing, nsys profile --trace cuda,nvtx";

/// An open export.
pub struct Export {
    pub db: Connection,
    pub path: PathBuf,
    /// Whether kernels tell the graph node that they are of.
    pub has_nodes: bool,
    pub has_strings: bool,
    /// The GPU's name; empty where the export does not tell.
    pub device: String,
    pub kernels: u64,
}

impl Export {
    /// # Errors
    /// [`Error::Input`] saying what to do about a file that is no such export, ends early, has another schema, or holds no
    /// kernels or ranges.
    pub fn open(path: &Path) -> Result<Export> {
        check_length(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags).map_err(fault(path))?;
        // Sorting spills to files; memory stays bounded whatever the trace's size.
        db.execute_batch("PRAGMA temp_store = FILE; PRAGMA cache_size = -65536;").map_err(fault(path))?;
        let mut export = Export {
            db,
            path: path.to_path_buf(),
            has_nodes: false,
            has_strings: false,
            device: String::new(),
            kernels: 0,
        };
        export.check()?;
        Ok(export)
    }

    fn check(&mut self) -> Result<()> {
        if !self.has_table("META_DATA_EXPORT")? {
            return self.refuse("tables", "no table META_DATA_EXPORT", EXPECTED);
        }
        let version: Option<String> = self.first(
            "SELECT CAST(value AS TEXT) FROM META_DATA_EXPORT WHERE name IN \
             ('EXPORT_SCHEMA_VERSION', 'EXPORT_SCHEMA_VERSION_MAJOR') ORDER BY name LIMIT 1",
        )?;
        let version = version.unwrap_or_default();
        let major = version.split('.').next().and_then(|major| major.trim().parse::<u32>().ok());
        if major != Some(SCHEMA) {
            let found = if version.is_empty() { "none".into() } else { version };
            let expected = format!("{SCHEMA}.…, of nsys 2022 to 2026: export the report with one of these");
            return self.refuse("META_DATA_EXPORT EXPORT_SCHEMA_VERSION", &found, &expected);
        }
        if !self.has_table("CUPTI_ACTIVITY_KIND_KERNEL")? {
            return self.refuse("CUPTI_ACTIVITY_KIND_KERNEL", "no such table", CAPTURE);
        }
        self.kernels = self.first::<i64>("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")?.unwrap_or(0) as u64;
        if self.kernels == 0 {
            let graphs = self.has_table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")?;
            let expected = if graphs { GRAPHS } else { CAPTURE };
            return self.refuse("CUPTI_ACTIVITY_KIND_KERNEL", "no kernel", expected);
        }
        if !self.has_table("CUPTI_ACTIVITY_KIND_RUNTIME")? {
            return self.refuse("CUPTI_ACTIVITY_KIND_RUNTIME", "no such table", CAPTURE);
        }
        if !self.has_table("NVTX_EVENTS")? {
            return self.refuse("NVTX_EVENTS", "no such table", NVTX);
        }
        self.has_strings = self.has_table("StringIds")?;
        self.has_nodes = self.has_column("CUPTI_ACTIVITY_KIND_KERNEL", "graphNodeId")?
            && self.first::<i64>("SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId > 0 LIMIT 1")?.is_some();
        if self.has_nodes && !self.has_table("CUDA_GRAPH_NODE_EVENTS")? {
            let expected = format!("{GRAPHS}, from the server's start on: graphs are captured there");
            return self.refuse("CUDA_GRAPH_NODE_EVENTS", "no such table, and kernels of graphs", &expected);
        }
        if self.has_table("TARGET_INFO_GPU")? && self.has_column("TARGET_INFO_GPU", "name")? {
            self.device = self.first("SELECT name FROM TARGET_INFO_GPU LIMIT 1")?.unwrap_or_default();
        }
        Ok(())
    }

    /// Says that no range names a layer.
    pub fn refuse_without_layers<T>(&self) -> Result<T> {
        self.refuse("NVTX_EVENTS", "no range of a module layers.N around a kernel's launch", NVTX)
    }

    pub fn refuse<T>(&self, at: &str, found: &str, expected: &str) -> Result<T> {
        Err(Error::input(&self.path, at, found, expected))
    }

    /// What SQLite reports, as an error that names the file.
    pub fn fault(&self) -> impl FnOnce(rusqlite::Error) -> Error {
        fault(&self.path)
    }

    fn has_table(&self, name: &str) -> Result<bool> {
        let sql = "SELECT COUNT(*) FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?1";
        self.db.query_row(sql, [name], |row| row.get::<_, i64>(0)).map(|n| n > 0).map_err(self.fault())
    }

    fn has_column(&self, table: &str, column: &str) -> Result<bool> {
        let sql = "SELECT COUNT(*) FROM pragma_table_info(?1) WHERE name = ?2";
        self.db.query_row(sql, [table, column], |row| row.get::<_, i64>(0)).map(|n| n > 0).map_err(self.fault())
    }

    /// The first row's only column.
    fn first<T: rusqlite::types::FromSql>(&self, sql: &str) -> Result<Option<T>> {
        match self.db.query_row(sql, [], |row| row.get::<_, Option<T>>(0)) {
            Ok(value) => Ok(value),
            Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
            Err(error) => Err(fault(&self.path)(error)),
        }
    }
}

fn fault(path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    let path = path.to_path_buf();
    move |error| {
        let expected = match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => EXPECTED.to_owned(),
            Some(rusqlite::ErrorCode::DatabaseCorrupt) => "a whole file: export the report again".to_owned(),
            _ => format!("the tables of {EXPECTED}"),
        };
        Error::input(path, "SQLite", error.to_string(), expected)
    }
}

/// SQLite reads a truncated file until it comes to the missing part; its header tells at once.
fn check_length(path: &Path) -> Result<()> {
    let mut header = [0u8; 100];
    let mut file = files::open(path)?;
    let found = file.metadata().map_err(Error::io(path, "read"))?.len();
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"SQLite format 3\0") {
        return Err(Error::input(path, "header", "no SQLite file", EXPECTED));
    }
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        page => u64::from(page),
    };
    let pages = u64::from(u32::from_be_bytes([header[28], header[29], header[30], header[31]]));
    if found < page * pages {
        let expected = format!("{} bytes: export or copy the report again", page * pages);
        return Err(Error::input(path, "length", format!("{found} bytes"), expected));
    }
    Ok(())
}
