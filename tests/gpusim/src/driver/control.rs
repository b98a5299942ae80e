//! gpusim's own functions, for tests. Texts are given to a callback, so that no memory changes hands.

use std::ffi::{CStr, c_char, c_void};

use super::context::report_leaks;
use super::error;
use super::state::{CuResult, Driver, SUCCESS, driver};
use crate::exec::grid::Execution;

/// Receives a text: its bytes, their number, and the caller's own pointer.
type Receiver = unsafe extern "C" fn(*const u8, usize, *mut c_void);

/// # Safety
/// `receive` takes `data`.
unsafe fn deliver(receive: Receiver, data: *mut c_void, text: impl FnOnce(&Driver) -> String) {
    let text = text(driver());
    // SAFETY: the caller's promise.
    unsafe { receive(text.as_ptr(), text.len(), data) };
}

/// The list of findings since the last reset.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpusim_findings_json(receive: Receiver, data: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { deliver(receive, data, |driver| driver.device.findings_json().to_string()) };
}

/// The same as sentences, for a person to read; empty if all is well.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpusim_findings_text(receive: Receiver, data: *mut c_void) {
    let text = |driver: &Driver| {
        let findings: Vec<String> = driver.device.findings().iter().map(|finding| finding.to_string()).collect();
        findings.join("\n\n")
    };
    // SAFETY: the caller's promise.
    unsafe { deliver(receive, data, text) };
}

/// Counts per kernel since the last reset.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpusim_counters_json(receive: Receiver, data: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { deliver(receive, data, |driver| driver.device.counters_json().to_string()) };
}

/// Which instructions of each kernel ran since the last reset.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpusim_coverage_json(receive: Receiver, data: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { deliver(receive, data, |driver| driver.device.coverage_json().to_string()) };
}

/// The last mutation in words; empty if there was none.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpusim_mutation(receive: Receiver, data: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { deliver(receive, data, |driver| driver.device.last_mutation().unwrap_or_default()) };
}

/// Alters one instruction, chosen by `seed`, of the next loaded module's kernel of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpusim_mutate_next(kernel: *const c_char, seed: u64) -> CuResult {
    if kernel.is_null() {
        return error::INVALID_VALUE.0;
    }
    // SAFETY: not null; the caller gives a C string.
    let kernel = unsafe { CStr::from_ptr(kernel) }.to_string_lossy();
    driver().device.mutate_next(&kernel, seed);
    SUCCESS
}

/// Loads a text in place of the next module that has this kernel.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpusim_replace_next(kernel: *const c_char, text: *const c_char) -> CuResult {
    if kernel.is_null() || text.is_null() {
        return error::INVALID_VALUE.0;
    }
    // SAFETY: not null; the caller gives C strings.
    let [kernel, text] = [kernel, text].map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    driver().device.replace_next(&kernel, &text);
    SUCCESS
}

/// Forgets findings, counts and the error of a kernel. Memory, modules and streams stay.
#[unsafe(no_mangle)]
extern "C" fn gpusim_reset() {
    driver().device.reset();
    driver().clear_fault();
}

/// Notes every object that exists now as a leak.
#[unsafe(no_mangle)]
extern "C" fn gpusim_check_leaks() {
    report_leaks(driver(), "when leaks were asked for");
}

/// Sets how many threads run blocks; 0 means one per core.
#[unsafe(no_mangle)]
extern "C" fn gpusim_set_workers(workers: usize) {
    let workers = if workers == 0 { Execution::default().workers } else { workers };
    let device = &driver().device;
    device.set_execution(Execution { workers, ..device.execution() });
}

/// Sets how many of a launch's last blocks run; 0: all.
#[unsafe(no_mangle)]
extern "C" fn gpusim_set_last_blocks(count: u64) {
    let device = &driver().device;
    device.set_execution(Execution { last: (count > 0).then_some(count), ..device.execution() });
}

/// Sets whether the last block of a launch comes first.
#[unsafe(no_mangle)]
extern "C" fn gpusim_set_backwards(backwards: bool) {
    let device = &driver().device;
    device.set_execution(Execution { backwards, ..device.execution() });
}

/// Sets how many warp instructions a block may run.
#[unsafe(no_mangle)]
extern "C" fn gpusim_set_watchdog(instructions: u64) {
    let device = &driver().device;
    device.set_execution(Execution { watchdog: instructions, ..device.execution() });
}
