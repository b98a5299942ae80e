use std::collections::BTreeMap;
use std::path::Path;

use autocompress::Result;
use autocompress::cost::trace::{TraceSummary, read_trace};
use tempfile::TempDir;

use super::generator::{Export, Server, Truth, Without};

/// Steps by process, in the order of the processes' numbers.
fn read(path: &Path) -> Result<(Vec<Vec<Truth>>, TraceSummary)> {
    let mut steps: BTreeMap<i64, Vec<Truth>> = BTreeMap::new();
    let summary = read_trace(path, &mut |process, step| {
        let truth =
            Truth { rows: step.rows, layers: step.layers.clone(), rest: step.rest, unfinished: step.unfinished };
        steps.entry(process).or_default().push(truth);
        Ok(())
    })?;
    Ok((steps.into_values().collect(), summary))
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[track_caller]
fn refused(path: &Path, parts: &[&str]) {
    let error = read(path).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    let text = error.to_string();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(text.contains(name) && parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn eager_passes_on_several_streams_are_recovered_exactly() {
    let dir = folder();
    let path = dir.path().join("a.sqlite");
    let mut export = Export::create(&path, Without::default());
    let mut server = Server::new(0, 5);
    for rows in [48, 2, 2, 2, 33, 15, 2, 2] {
        server.eager(&mut export, rows);
    }
    export.finish();
    let (steps, summary) = read(&path).unwrap();
    assert_eq!(steps, [server.truth()]);
    assert_eq!((summary.processes, summary.steps, summary.kernels_without_step), (1, 8, 0));
    assert_eq!(summary.device, "NVIDIA GeForce RTX 5070");
    // The schedule overlaps: sums of kernels are more than what a layer is busy.
    let summed: i64 = server.passes.iter().flat_map(|p| p.layers.values().flatten()).map(|(a, b)| b - a).sum();
    assert!(summed > steps[0].iter().flat_map(|step| step.layers.values()).sum::<i64>());
}

#[test]
fn processes_with_equal_ids_are_kept_apart() {
    let dir = folder();
    let path = dir.path().join("a.sqlite");
    let mut export = Export::create(&path, Without::default());
    let mut servers = [Server::new(0, 3), Server::new(1, 4)];
    for server in &mut servers {
        server.capture(&mut export, 2, 2);
    }
    for _ in 0..3 {
        for server in &mut servers {
            server.eager(&mut export, 40);
            server.replay(&mut export);
            server.replay(&mut export);
        }
    }
    export.finish();
    let (steps, summary) = read(&path).unwrap();
    assert_eq!(steps, [servers[0].truth(), servers[1].truth()]);
    assert_eq!(summary.processes, 2);
}

#[test]
fn graphs_are_cut_at_the_layers_of_their_capture() {
    for instances in [0, 1, 3] {
        let dir = folder();
        let path = dir.path().join("a.sqlite");
        let mut export = Export::create(&path, Without::default());
        let mut server = Server::new(0, 6);
        // Two templates: the second one's nodes are the ones replayed later.
        server.capture(&mut export, 4, 1);
        server.eager(&mut export, 64);
        server.replay(&mut export);
        server.capture(&mut export, 2, instances);
        server.eager(&mut export, 50);
        for _ in 0..5 {
            server.replay(&mut export);
        }
        server.eager(&mut export, 2);
        server.replay(&mut export);
        export.finish();
        let (steps, summary) = read(&path).unwrap();
        assert_eq!(steps, [server.truth()], "{instances} instances");
        assert_eq!((summary.steps, summary.kernels_without_step), (server.passes.len(), 0));
    }
}

#[test]
fn tables_that_are_made_only_when_needed_may_be_missing() {
    for without in [
        Without { strings: true, ..Without::default() },
        Without { graphs: true, ..Without::default() },
        Without { device: true, ..Without::default() },
        Without { strings: true, graphs: true, device: true, version: Some("3.1.0") },
    ] {
        let dir = folder();
        let path = dir.path().join("a.sqlite");
        let mut export = Export::create(&path, without);
        let mut server = Server::new(0, 3);
        [32, 2, 2].into_iter().for_each(|rows| server.eager(&mut export, rows));
        export.finish();
        let (steps, summary) = read(&path).unwrap();
        assert_eq!(steps, [server.truth()], "{without:?}");
        assert_eq!(summary.device.is_empty(), without.device);
    }
}

#[test]
fn a_range_that_never_ends_marks_its_pass() {
    let dir = folder();
    let path = dir.path().join("a.sqlite");
    let mut export = Export::create(&path, Without::default());
    let mut server = Server::new(0, 3);
    server.eager(&mut export, 32);
    server.eager(&mut export, 2);
    server.cut_off(&mut export, 2);
    // Such a range may also lie in the middle: what comes after is not inside it.
    server.eager(&mut export, 2);
    export.finish();
    let (steps, _) = read(&path).unwrap();
    assert_eq!(steps, [server.truth()]);
    assert_eq!(steps[0].iter().map(|step| step.unfinished).collect::<Vec<_>>(), [false, false, true, false]);
}

#[test]
fn kernels_without_a_launch_in_the_trace_are_counted() {
    let dir = folder();
    let path = dir.path().join("a.sqlite");
    let mut export = Export::create(&path, Without::default());
    let mut server = Server::new(0, 2);
    export.kernel(server.thread, 7, (10, 20), 999, None);
    export.call(server.thread, 15, 998);
    export.kernel(server.thread, 7, (30, 40), 998, None);
    server.eager(&mut export, 8);
    export.finish();
    let (steps, summary) = read(&path).unwrap();
    assert_eq!((steps, summary.kernels_without_step), (vec![server.truth()], 2));
}

#[test]
fn traces_that_cannot_be_used_say_what_to_do() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    let trace = |name: &str, without: Without, edit: &str| {
        let mut export = Export::create(&at(name), without);
        let mut server = Server::new(0, 2);
        [16, 2].into_iter().for_each(|rows| server.eager(&mut export, rows));
        export.db.execute_batch(edit).unwrap();
        export.finish();
        at(name)
    };
    let plain = Without::default();
    refused(
        &trace("kernels.sqlite", plain, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL"),
        &["no kernel", "--trace cuda,nvtx", "--trace-fork-before-exec=true", "/start_profile"],
    );
    refused(
        &trace("table.sqlite", plain, "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL"),
        &["CUPTI_ACTIVITY_KIND_KERNEL", "no such table", "--trace cuda,nvtx"],
    );
    let whole_graphs =
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER)";
    refused(&trace("graphs.sqlite", plain, whole_graphs), &["--cuda-graph-trace=node"]);
    let nodes = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphNodeId = 5; DROP TABLE CUDA_GRAPH_NODE_EVENTS";
    refused(&trace("nodes.sqlite", plain, nodes), &["CUDA_GRAPH_NODE_EVENTS", "--cuda-graph-trace=node"]);
    refused(&trace("calls.sqlite", plain, "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME"), &["CUPTI_ACTIVITY_KIND_RUNTIME"]);
    for (name, edit) in [("ranges.sqlite", "DELETE FROM NVTX_EVENTS"), ("nvtx.sqlite", "DROP TABLE NVTX_EVENTS")] {
        refused(&trace(name, plain, edit), &["NVTX_EVENTS", "--enable-layerwise-nvtx-tracing"]);
    }
    let version = Without { version: Some("2.9.1"), ..plain };
    refused(&trace("version.sqlite", version, ""), &["EXPORT_SCHEMA_VERSION", "2.9.1", "3."]);
    refused(&trace("none.sqlite", plain, "DELETE FROM META_DATA_EXPORT"), &["found none", "3."]);
    refused(&trace("foreign.sqlite", plain, "DROP TABLE META_DATA_EXPORT"), &["META_DATA_EXPORT", "nsys export"]);

    let whole = std::fs::read(trace("whole.sqlite", plain, "")).unwrap();
    std::fs::write(at("truncated.sqlite"), &whole[..whole.len() - 4096]).unwrap();
    refused(&at("truncated.sqlite"), &["length", "export or copy the report again"]);
    std::fs::write(at("short.sqlite"), &whole[..50]).unwrap();
    refused(&at("short.sqlite"), &["no SQLite file", "nsys export --type sqlite"]);
    std::fs::write(at("text.sqlite"), "not a database, but longer than a header would be".repeat(9)).unwrap();
    refused(&at("text.sqlite"), &["no SQLite file"]);
    let mut damaged = whole.clone();
    damaged[100..4096].fill(0xFF);
    std::fs::write(at("damaged.sqlite"), damaged).unwrap();
    refused(&at("damaged.sqlite"), &["SQLite"]);
    assert_eq!(read(&at("missing.sqlite")).unwrap_err().exit_code(), 2);
}

/// A trace of a gigabyte, which takes minutes to make: `cargo test --release -- --ignored gigabyte --nocapture`.
#[test]
#[ignore = "writes a gigabyte"]
fn a_gigabyte_is_read_in_bounded_memory() {
    let dir = folder();
    let path = dir.path().join("large.sqlite");
    let mut export = Export::create(&path, Without::default());
    let mut server = Server::new(0, 40);
    let mut passes = 0;
    // The page count tells the size before all is written.
    while passes % 500 != 0 || size(&export) < 1 << 30 {
        server.eager(&mut export, 2);
        passes += 1;
        server.passes.clear();
    }
    export.finish();
    let before = peak();
    let (started, cpu) = (std::time::Instant::now(), cpu_seconds());
    let mut steps = 0;
    let summary = read_trace(&path, &mut |_, _| {
        steps += 1;
        Ok(())
    })
    .unwrap();
    let seconds = started.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(&path).unwrap().len();
    println!(
        "{:.2} GB, {} kernels, {steps} steps: {seconds:.1} s, of them {:.1} s of the processor's, peak memory {} → {} MiB",
        bytes as f64 / 1e9,
        summary.kernels,
        cpu_seconds() - cpu,
        before >> 10,
        peak() >> 10
    );
    assert_eq!(steps, passes);
    assert!(peak() - before < 400 << 10, "memory grew");
}

fn size(export: &Export) -> u64 {
    let get = |pragma: &str| export.db.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap();
    (get("page_count") * get("page_size")) as u64
}

/// Of this process so far, in user mode and in the kernel: what other processes do not stretch.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Linux counts in hundredths of a second.
    [11, 12].iter().map(|at| fields[*at].parse::<f64>().unwrap() / 100.0).sum()
}

/// Of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}
